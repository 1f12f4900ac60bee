"""The ``trainer`` block of a config: allowed arguments of Lightning's Trainer, and those that decide a result."""

import inspect
import pydoc
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, Literal

from vit_vs_cnn.config.reading import read_value
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.training.python_objects import uses_objects
from vit_vs_cnn.typed_values import Setting, list_settings, refuse_unknown

#: Refused arguments of lightning.Trainer: the setting that decides them, or the reason.
REFUSED_ARGUMENTS = {
    **dict.fromkeys(("max_epochs", "min_epochs", "max_steps", "min_steps"), "set protocol.budget instead"),
    **dict.fromkeys(("limit_train_batches", "fast_dev_run", "max_time"), "set protocol.budget instead"),
    **dict.fromkeys(("check_val_every_n_epoch", "val_check_interval"), "set execution.validation_interval instead"),
    "num_sanity_val_steps": "set execution.validation_interval instead",
    "overfit_batches": "set protocol.train_sizes instead",
    "use_distributed_sampler": "the batches of a run are shared out already",
    "reload_dataloaders_every_n_epochs": "a run is one pass over a stream of batches",
    "default_root_dir": "set output instead",
    "enable_checkpointing": "set execution.checkpoint_interval instead",
    "barebones": "runs need checkpoints and logs",
    "inference_mode": "evaluation always runs without gradients",
}
#: Arguments that change a result. Loggers and profilers are passive; devices are counted (``world_size``).
DECISIVE = ("precision", *("gradient_clip_val", "gradient_clip_algorithm", "accumulate_grad_batches", "sync_batchnorm"))
#: Short names of precisions, as Lightning reads them.
PRECISIONS = {"16": "16-mixed", "bf16": "bf16-mixed", "32": "32-true", "64": "64-true"}
#: Lightning's passive callbacks. Custom ones belong in ``execution.passive_callbacks``.
PASSIVE_CALLBACKS = {
    *("DeviceStatsMonitor", "LearningRateMonitor", "ModelCheckpoint", "ModelSummary", "OnExceptionCheckpoint"),
    *("RichModelSummary", "RichProgressBar", "ThroughputMonitor", "TQDMProgressBar"),
}
#: Callbacks of Lightning that change the budget of a run, and the reason why each is refused.
BUDGET_CALLBACKS = {
    "BatchSizeFinder": "it changes the batch size; set protocol.batch_size",
    "GradientAccumulationScheduler": "it changes the number of optimizer steps; set trainer.accumulate_grad_batches",
    "LearningRateFinder": "it trains steps beyond the budget; tune chooses the learning rate",
    "Timer": "a budget in seconds would depend on the machine; set protocol.budget",
}
#: Plugins that place processes, and strategies that distribute a batch, do not change training.
PASSIVE_PLUGINS = ("lightning.fabric.plugins.environments", "lightning.pytorch.plugins.environments")
PASSIVE_STRATEGIES = ("auto", "ddp", "fsdp")
#: Libraries that loggers of Lightning need, by the name in the package registry.
LOGGER_LIBRARIES = {
    "CometLogger": "comet_ml",
    "MLFlowLogger": "mlflow",
    "TensorBoardLogger": "tensorboard",
    "WandbLogger": "wandb",
}
#: Logger of ``logger: true``.
DEFAULT_LOGGER = "lightning.pytorch.loggers.TensorBoardLogger"
#: Additional value of precision: "bf16-mixed" where the hardware has units for it, otherwise "32-true".
AUTO_PRECISION = "auto"
#: Arguments that take classes.
_OF_CLASSES = ("callbacks", "plugins", "strategy")


def read_trainer(values: Any, passive_callbacks: Any = None, *, trusted: bool) -> dict[str, Any]:
    """The checked block, with full names of all classes. Raises InputError: a name or value that is not allowed."""
    if not isinstance(values, Mapping):
        raise InputError(f"trainer: expected a mapping, got {values!r}")
    for name, reason in REFUSED_ARGUMENTS.items():
        if name in values:
            raise InputError(f"trainer.{name} cannot be set: {reason}")
    theirs = {name: value for name, value in values.items() if (name, value) != ("precision", AUTO_PRECISION)}
    if not trusted or not (theirs or passive_callbacks):
        return dict(values)
    settings = trainer_settings()
    refuse_unknown(theirs, settings, "trainer")
    checked = {name: read_value(settings[name].hint, value, f"trainer.{name}") for name, value in theirs.items()}
    checked_callbacks = read_value(settings["callbacks"].hint, passive_callbacks or [], "execution.passive_callbacks")
    full_values = {name: _in_full(values[name], checked[name]) for name in _OF_CLASSES if name in values}
    for logger in as_list(values.get("logger")):
        module, _, kind = (DEFAULT_LOGGER if logger is True else _name(logger)).rpartition(".")
        library = LOGGER_LIBRARIES.get(kind) if module.partition(".")[0] in ("", "lightning") else None
        if library is not None and not find_spec(library):
            raise InputError(f"trainer.logger: {kind} needs {library}, which is not installed: pip install {library}")
    _refuse_budget_callbacks("trainer.callbacks", full_values.get("callbacks"))
    _refuse_budget_callbacks("execution.passive_callbacks", _in_full(passive_callbacks or [], checked_callbacks))
    return {**values, **full_values}


def _refuse_budget_callbacks(location: str, callbacks: Any) -> None:
    for name in map(_name, as_list(callbacks)):
        for parent in getattr(_class_at(name), "__mro__", ()):
            if parent.__module__.startswith("lightning.") and (reason := BUDGET_CALLBACKS.get(parent.__name__)):
                raise InputError(f"{location}: {name} is not allowed: {reason}")


def trainer_settings() -> dict[str, Setting]:
    """Allowed arguments of Lightning's Trainer."""
    from lightning import Trainer

    settings = {name: setting for name, setting in list_settings(Trainer).items() if name not in REFUSED_ARGUMENTS}
    theirs = settings["precision"]
    message = f"auto: bf16-mixed on a processor or GPU with bfloat16 units, otherwise 32-true. {theirs.help}"
    return {**settings, "precision": replace(theirs, hint=Literal["auto"] | theirs.hint, help=message)}


def as_list(value: Any) -> list[Any]:
    """None, one value or several values as a list."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _in_full(value: Any, checked: Any) -> Any:
    """Specs of classes with their full ``class_path``; other values unchanged."""
    if isinstance(value, list):
        return [_in_full(item, checked_item) for item, checked_item in zip(value, checked, strict=True)]
    if (full := getattr(checked, "class_path", None)) is None:
        return value
    return {**value, "class_path": full} if isinstance(value, Mapping) else {"class_path": full}


def decisive(trainer: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that change a result, as plain values."""
    selected = {name: trainer[name] for name in DECISIVE if trainer.get(name) is not None}
    if "precision" in selected:
        selected["precision"] = PRECISIONS.get(str(selected["precision"]), selected["precision"])
    changing = {
        "callbacks": [spec for spec in as_list(trainer.get("callbacks")) if not _is_passive(spec)],
        "plugins": [spec for spec in as_list(trainer.get("plugins")) if not _name(spec).startswith(PASSIVE_PLUGINS)],
        "strategy": [
            spec for spec in as_list(trainer.get("strategy")) if _name(spec).split("_")[0] not in PASSIVE_STRATEGIES
        ],
    }
    return selected | {name: values for name, values in changing.items() if values}


def _class_at(path: str) -> Any:
    """Class at a path; of an object that was given in Python, its type."""
    located: Any = pydoc.locate(path)
    return inspect.get_annotations(located).get("return") if inspect.isfunction(located) else located


def _is_passive(callback: Any) -> bool:
    kind = _class_at(_name(callback)) if uses_objects(callback) else None
    module, _, name = (_name(callback) if kind is None else f"{kind.__module__}.{kind.__name__}").rpartition(".")
    return module.startswith("lightning.pytorch.callbacks") and name in PASSIVE_CALLBACKS


def _name(spec: Any) -> str:
    return str(spec.get("class_path", "")) if isinstance(spec, Mapping) else str(spec)
