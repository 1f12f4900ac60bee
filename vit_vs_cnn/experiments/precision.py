"""``trainer.precision: auto``: the faster of two precisions that were shown to give equal results."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from rich.console import Console

from vit_vs_cnn.config.experiment import Experiment, read_config
from vit_vs_cnn.config.trainer import AUTO
from vit_vs_cnn.console import join_names
from vit_vs_cnn.process import torch_threads
from vit_vs_cnn.runs.experiment_data import ExperimentData
from vit_vs_cnn.strict_yaml import Plain
from vit_vs_cnn.workers.step_time import Steps, runs_at_a_time
from vit_vs_cnn.workers.trainer import is_helper_process, is_launched_from_outside, on_cpu, world_size

SINGLE_PRECISION = "32-true"
#: Precisions whose runs end with the same accuracies as in single precision (results/speed).
EQUIVALENT_PRECISIONS = ("bf16-mixed",)
#: Another precision is chosen only if it is faster by this factor.
MIN_SPEEDUP = 1.1
_WARM_UP, _TIMED = 1, 2


def reuse_saved_precision(experiment: Experiment) -> Experiment:
    """The experiment with the precision of its folder; unchanged if it names one, or has no folder yet.

    Precision is part of the identity of a run, so another machine continues in the same precision.

    Raises:
        InputError: the config in the folder cannot be read.
    """
    if experiment.trainer.get("precision") != AUTO:
        return experiment
    for path in (experiment.folder / "experiment.yaml", experiment.folder / "tuning" / "experiment.yaml"):
        if path.exists():
            before = read_config(path).get("trainer")
            return _in(
                experiment,
                before.get("precision", SINGLE_PRECISION) if isinstance(before, Mapping) else SINGLE_PRECISION,
            )
    return experiment


def choose_precision(experiment: Experiment, pool: ExperimentData, *, console: Console) -> Experiment:
    """The experiment with the precision of its folder, or else with the fastest.

    Each contender makes a few steps in every precision, in turns. All contenders get the precision that is fastest in
    total. On a CPU as many steps are timed at a time as there will be runs. If several processes share a run, or only
    heads are fitted, it is single precision.

    Arguments:
        pool: images of the experiment.
        console: prints the choice.

    Raises:
        InputError: images or networks that cannot be used.
        OSError: the folder of the experiment cannot be made.
    """
    experiment = reuse_saved_precision(experiment)
    if experiment.trainer.get("precision") != AUTO:
        return experiment
    trained = [name for name, contender in experiment.contenders.items() if not contender.finetune.head]
    if not trained or is_helper_process() or is_launched_from_outside() or world_size(experiment) > 1:
        return _in(experiment, SINGLE_PRECISION)
    experiment.folder.mkdir(parents=True, exist_ok=True)  # an unwritable folder is reported before the timing
    at_a_time = int(runs_at_a_time(experiment, len(trained))) if on_cpu(experiment) else 1
    with torch_threads(experiment.protocol.threads), ThreadPoolExecutor(at_a_time) as timers:
        times = dict(zip(trained, timers.map(lambda name: _seconds(experiment, name, pool), trained), strict=True))
    totals = {
        one: sum(seconds[one] for seconds in times.values()) for one in (SINGLE_PRECISION, *EQUIVALENT_PRECISIONS)
    }
    chosen = min(EQUIVALENT_PRECISIONS, key=totals.__getitem__)
    if totals[SINGLE_PRECISION] < MIN_SPEEDUP * totals[chosen]:
        console.print(f"Precision: {SINGLE_PRECISION}; {chosen} is {_ratios(times, chosen)} here", soft_wrap=True)
        return _in(experiment, SINGLE_PRECISION)
    console.print(f"Precision: {chosen}, {_ratios(times, chosen)} as {SINGLE_PRECISION} here", soft_wrap=True)
    return _in(experiment, chosen)


def _in(experiment: Experiment, precision: str) -> Experiment:
    """The experiment in a precision. Single precision is the default, and is not written."""
    rest = {name: value for name, value in experiment.trainer.items() if name != "precision"}
    return replace(
        experiment, trainer=Plain(rest if precision == SINGLE_PRECISION else {**rest, "precision": precision})
    )


def _seconds(experiment: Experiment, contender: str, pool: ExperimentData) -> dict[str, float]:
    """Time of the fastest step in each precision, timed in turns, so that other programs slow all of them."""
    steps = {
        one: Steps(_in(experiment, one), contender, pool, _WARM_UP + _TIMED)
        for one in (SINGLE_PRECISION, *EQUIVALENT_PRECISIONS)
    }
    times = [{one: step.seconds(turn) for one, step in steps.items()} for turn in range(_WARM_UP + _TIMED)]
    return {one: min(turn[one] for turn in times[_WARM_UP:]) for one in steps}


def _ratios(times: Mapping[str, Mapping[str, float]], precision: str) -> str:
    """``1.6 (vit) and 2.3 (resnet) times as fast``."""
    ratios = [f"{seconds[SINGLE_PRECISION] / seconds[precision]:.2g} ({name})" for name, seconds in times.items()]
    return f"{join_names(ratios)} times as fast"
