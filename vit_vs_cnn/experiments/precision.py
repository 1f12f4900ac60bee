"""``trainer.precision: auto``: the fastest precision here, of those that were shown to give equal results."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from rich.console import Console

from vit_vs_cnn.config.experiment import Experiment, read_config
from vit_vs_cnn.config.trainer import AUTO
from vit_vs_cnn.plain import Plain
from vit_vs_cnn.runs.images import Pool
from vit_vs_cnn.told import listed
from vit_vs_cnn.workers.step_time import Steps, side_by_side
from vit_vs_cnn.workers.supervise import threads_set
from vit_vs_cnn.workers.trainer import is_helper_process, is_launched_from_outside, on_cpu, world_size

SINGLE = "32-true"
#: In these the same runs end with accuracies that are no different from those in single precision: results/speed.
EQUAL = ("bf16-mixed",)
#: Another precision has to be so many times as fast, or results are not worth a name of their own.
LEAST_GAIN = 1.1
_WARM_UP, _TIMED = 1, 2


def begun_in(experiment: Experiment) -> Experiment:
    """The experiment in the precision that it was begun in; as it is where it names one, or has not been begun.

    Precision is part of a cell's identity: a machine on which another one is faster goes on in this one.

    Raises:
        InputError: what lies in its folder is no config.
    """
    if experiment.trainer.get("precision") != AUTO:
        return experiment
    for path in (experiment.folder / "experiment.yaml", experiment.folder / "tuning" / "experiment.yaml"):
        if path.exists():
            before = read_config(path).get("trainer")
            return _in(experiment, before.get("precision", SINGLE) if isinstance(before, Mapping) else SINGLE)
    return experiment


def with_precision(experiment: Experiment, pool: Pool, *, console: Console) -> Experiment:
    """The experiment in the precision that its cells train in: as it was begun, or else in the fastest.

    Each contender makes a few steps in every precision, in turns, and the fastest for all of them together is taken:
    the contenders of a comparison share it. On processors as many are timed at once as runs go side by side. Where
    several processes share a run, and where only heads are fitted, it is single precision.

    Arguments:
        pool: its images.
        console: where the choice is told.

    Raises:
        InputError: images or networks that can't be used.
        OSError: the experiment's folder can't be made.
    """
    experiment = begun_in(experiment)
    if experiment.trainer.get("precision") != AUTO:
        return experiment
    trained = [name for name, contender in experiment.contenders.items() if not contender.tune.head]
    if not trained or is_helper_process() or is_launched_from_outside() or world_size(experiment) > 1:
        return _in(experiment, SINGLE)
    experiment.folder.mkdir(parents=True, exist_ok=True)  # a place that can't be written to is told of before
    at_a_time = int(side_by_side(experiment, len(trained))) if on_cpu(experiment) else 1
    with threads_set(experiment.protocol.threads), ThreadPoolExecutor(at_a_time) as timers:
        times = dict(zip(trained, timers.map(lambda name: _seconds(experiment, name, pool), trained), strict=True))
    totals = {one: sum(seconds[one] for seconds in times.values()) for one in (SINGLE, *EQUAL)}
    chosen = min(EQUAL, key=totals.__getitem__)
    if totals[SINGLE] < LEAST_GAIN * totals[chosen]:
        console.print(f"Precision: {SINGLE}; {chosen} is {_ratios(times, chosen)} here", soft_wrap=True)
        return _in(experiment, SINGLE)
    console.print(f"Precision: {chosen}, {_ratios(times, chosen)} as {SINGLE} here", soft_wrap=True)
    return _in(experiment, chosen)


def _in(experiment: Experiment, precision: str) -> Experiment:
    """The experiment in a precision; single precision has no name, so that cells are those without the setting."""
    rest = {name: value for name, value in experiment.trainer.items() if name != "precision"}
    return replace(experiment, trainer=Plain(rest if precision == SINGLE else {**rest, "precision": precision}))


def _seconds(experiment: Experiment, contender: str, pool: Pool) -> dict[str, float]:
    """The quickest step in every precision, timed in turns: another program on the machine slows all of them."""
    steps = {one: Steps(_in(experiment, one), contender, pool, _WARM_UP + _TIMED) for one in (SINGLE, *EQUAL)}
    times = [{one: step.seconds(turn) for one, step in steps.items()} for turn in range(_WARM_UP + _TIMED)]
    return {one: min(turn[one] for turn in times[_WARM_UP:]) for one in steps}


def _ratios(times: Mapping[str, Mapping[str, float]], precision: str) -> str:
    """``1.6 (vit) and 2.3 (resnet) times as fast``."""
    told = [f"{seconds[SINGLE] / seconds[precision]:.2g} ({name})" for name, seconds in times.items()]
    return f"{listed(told)} times as fast"
