"""Seed after seed until the primary comparison is decided."""

from rich.console import Console

from vit_vs_cnn.config.experiment import Experiment
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.runner import run_experiment
from vit_vs_cnn.regimes.findings import comparisons_of, judged_results
from vit_vs_cnn.runs.design import read_design
from vit_vs_cnn.runs.images import Pool
from vit_vs_cnn.runs.result import RunResult
from vit_vs_cnn.statistics.looks import SEEDS_FOR_A_VERDICT
from vit_vs_cnn.statistics.verdict import DECIDED
from vit_vs_cnn.workers.trainer import is_helper_process, is_launched_from_outside, world_size


def run_until_decided(experiment: Experiment, *, console: Console, pool: Pool | None = None) -> list[RunResult]:
    """Run three seeds of everything, look, and go on seed by seed until the primary comparison is decided.

    At most the planned seeds are run (``protocol.max_seeds``), or those of the plan that was settled, where it was
    another one. What a look may say, with all the others before it, is in ``statistics.looks.Plan``. Called again it
    looks at what is there in the same order and goes on.

    Arguments:
        pool: the experiment's images, where they are at hand already.

    Raises:
        InputError, CellsFailed, Interrupted: as ``run_experiment``; a primary comparison on which no verdict can be
            given, whatever the seeds.
    """
    if len(experiment.contenders) < 2:
        raise InputError("protocol.until_decided: there is one contender, so there is nothing to decide")
    if is_helper_process() or is_launched_from_outside() or world_size(experiment) > 1:
        raise InputError(
            "protocol.until_decided: one process looks and goes on; train on one device, with an executor for more"
        )
    planned, results, settled = experiment.protocol.planned_seeds, [], read_design(experiment.folder)
    first = SEEDS_FOR_A_VERDICT
    if settled is not None and not settled.on_the_way:  # one look was settled, at all of its seeds
        first = max(first, len({*settled.seeds} & {*planned}))
    for count in range(first, len(planned) + 1):
        results = run_experiment(experiment, console=console, seeds=planned[:count], pool=pool)
        settled = read_design(experiment.folder)
        primary = next(
            (one for one in comparisons_of(experiment.folder, judged_results(experiment.folder)) if one.primary), None
        )
        if settled is None or primary is None:
            raise InputError(f"{experiment.folder}: the primary comparison that was settled is not part of this grid")
        console.print(f"{count} of at most {len(settled.seeds)} seeds: {primary.sentence}", soft_wrap=True)
        if primary.verdict in DECIDED:
            console.print(f"Decided at n = {primary.size:,}: no more seeds are needed", soft_wrap=True)
            return results
        if primary.verdict == "no verdict":  # whatever the seeds
            raise InputError(f"protocol.until_decided: more seeds decide nothing, as {primary.reason}")
        if count == len(settled.seeds):
            break
    assert settled is not None
    every = f"all {len(settled.seeds)} planned seeds"
    some = f"{len(planned)} of {len(settled.seeds)} planned seeds: protocol.max_seeds allows no more"
    console.print(f"Not decided with {every if len(planned) >= len(settled.seeds) else some}", soft_wrap=True)
    return results
