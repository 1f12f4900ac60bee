"""The loggers of a cell: one run of theirs for each cell, named after it, with its config and its result, and ended."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, TensorBoardLogger

from vit_vs_cnn.config.trainer import listed
from vit_vs_cnn.files import read_mapping, write_text
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.result import RunResult
from vit_vs_cnn.training.metrics_csv import MetricsCsv
from vit_vs_cnn.workers.trainer import is_helper_process

#: The folder of the TensorBoard that a cell has where its config names no logger.
TENSORBOARD = "tensorboard"
#: How a run of these services is ended, by what they call it.
ENDINGS = ("finish", "end", "stop")


def named_after(cell: Cell, given: Any) -> Any:
    """``trainer.logger`` with every logger of Lightning's told which cell it is for.

    A logger without a name of its own gets the cell's; one that has a name keeps it, as the group of its cells.

    Arguments:
        given: the config's value: true, false, null, or one or several specs ``{class_path, init_args}``.
    """
    if not isinstance(given, Mapping | list | tuple):
        return given
    return [_named(cell, one) for one in listed(given)]


def _named(cell: Cell, spec: Any) -> Any:
    if not isinstance(spec, Mapping):
        return spec
    kind, own = str(spec.get("class_path", "")).rpartition(".")[2], dict(spec.get("init_args") or {})
    if (arguments := NAMED.get(kind)) is None:
        return spec
    return {**spec, "init_args": {**own, **arguments(cell, own)}}


def _in_files(cell: Cell, own: dict[str, Any]) -> dict[str, Any]:
    return {"name": _group(cell, own), "version": cell.folder.name}


def _group(cell: Cell, own: dict[str, Any]) -> str:
    return str(own.get("name") or cell.experiment.name)


def _in_wandb(cell: Cell, own: dict[str, Any]) -> dict[str, Any]:
    group = own.get("group") or _group(cell, own)
    identifier = f"{cell.experiment.name}-{cell.folder.name}"[-128:]  # a run that was killed goes on in its own
    return {"name": cell.name, "group": group, "id": identifier, "save_dir": own.get("save_dir") or str(cell.folder)}


def _in_mlflow(cell: Cell, own: dict[str, Any]) -> dict[str, Any]:
    experiment = own.get("experiment_name") or cell.experiment.name
    run = read_mapping(_book(cell)).get("MLFlowLogger")
    return {"run_name": cell.name, "experiment_name": experiment, "run_id": run if isinstance(run, str) else None}


def _by_name(cell: Cell, own: dict[str, Any]) -> dict[str, Any]:
    return {"name": cell.name}


#: What a logger is given for a cell, by the name of its class.
NAMED: dict[str, Callable[[Cell, dict[str, Any]], dict[str, Any]]] = {
    "CSVLogger": _in_files,
    "TensorBoardLogger": _in_files,
    "WandbLogger": _in_wandb,
    "MLFlowLogger": _in_mlflow,
    "CometLogger": _by_name,
    "NeptuneLogger": _by_name,
}


def loggers_of(cell: Cell, given: Any) -> list[Logger]:
    """metrics.csv always; TensorBoard beside it unless the config names other loggers or none.

    Arguments:
        given: the value of ``trainer.logger``, its loggers made.
    """
    loggers: list[Logger] = [MetricsCsv(cell.folder / "metrics.csv")]
    if given is True:
        return [*loggers, TensorBoardLogger(cell.folder, name=TENSORBOARD, version="")]
    return [*loggers, *listed(given)] if given else loggers


def begin(cell: Cell, loggers: Sequence[Logger]) -> None:
    """Tell the loggers what they log, and keep the names that a service gave its runs."""
    if is_helper_process():
        return
    for logger in _beside_the_csv(loggers):
        logger.log_hyperparams({"cell": cell.to_dict()["cell"], **cell.settings})
        if (kind := type(logger).__name__) == "MLFlowLogger" and (identifier := getattr(logger, "run_id", None)):
            write_text(_book(cell), json.dumps({kind: identifier}) + "\n")


def end(loggers: Sequence[Logger], result: RunResult | None) -> None:
    """Tell the loggers how it ended, and end their runs, so that the next cell has its own.

    Arguments:
        result: of the cell; None where it has none.
    """
    with ExitStack() as stack:  # one that fails does not leave the runs of the others open
        for logger in _beside_the_csv(loggers):
            stack.callback(_end_run, logger)
            stack.callback(_log_end, logger, result)


def _log_end(logger: Logger, result: RunResult | None) -> None:
    if result is not None:
        scores, cost = result.scores, result.cost
        values = {
            "accuracy": scores.accuracy,
            "loss": scores.loss,
            "calibration_error": scores.calibration_error,
            "validation_accuracy": scores.validation_accuracy,
            "steps": cost.steps,
            "train_seconds": cost.train_seconds,
        }
        metrics = {f"result/{name}": float(value) for name, value in values.items() if value is not None}
        logger.log_metrics(metrics, step=cost.steps)
        logger.save()
    logger.finalize("failed" if result is None else "success")


def _end_run(logger: Logger) -> None:
    run = getattr(logger, "experiment", None)
    if ending := next((method for name in ENDINGS if callable(method := getattr(run, name, None))), None):
        ending()


@contextmanager
def end_loggers_on_error(loggers: Sequence[Logger]) -> Iterator[None]:
    """End the loggers' runs if the block raises, so that the next run gets its own."""
    try:
        yield
    except BaseException:
        with suppress(Exception):  # the first error is the one to report
            end(loggers, None)
        raise


def _beside_the_csv(loggers: Sequence[Logger]) -> list[Logger]:
    """Those that the config named: metrics.csv and the TensorBoard of every cell have config and result beside them."""
    return [one for one in loggers if not isinstance(one, MetricsCsv) and one.name != TENSORBOARD]


def _book(cell: Cell) -> Path:
    """The names that services gave the runs that an earlier piece of this cell's run began."""
    return cell.folder / "loggers.json"
