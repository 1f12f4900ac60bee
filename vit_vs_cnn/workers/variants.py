"""Training of a run with variants, of which its validation images choose one."""

import shutil
from dataclasses import replace

from rich.console import Console

from vit_vs_cnn.errors import InputError, TrainingDiverged
from vit_vs_cnn.images.experiment_data import ExperimentData
from vit_vs_cnn.networks.preparation import PreparedRun, prepare
from vit_vs_cnn.training.checkpoints import read_checkpoint, write_checkpoint
from vit_vs_cnn.workers.fit import FittedNetwork, fit
from vit_vs_cnn.workers.probe import fit_head


def fit_variants(prepared: PreparedRun, data: ExperimentData, console: Console) -> FittedNetwork:
    """Train every variant, and return the one with the best validation accuracy, the first of equally good ones.

    A resumed run continues with the variant that was interrupted. Variants that diverged are left out.

    Raises TrainingDiverged: all variants diverged.
    """
    run, validation = prepared.run, prepared.images.validation
    if not len(validation):
        raise InputError(
            f"models.{run.model}.variants are compared on validation images, and data.validation_fraction leaves none "
            f"at {run.train_size} images"
        )
    best, best_accuracy, flops, seconds = None, -1.0, 0, 0.0
    for number, variant in enumerate(run.variants):
        variant.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        try:
            trial = prepare(variant, data)
            fitted = fit_head(trial, console) if variant.recipe.finetune.head else fit(trial, [], console)
            accuracy = fitted.predict(validation).accuracy
        except TrainingDiverged as error:
            console.print(f"{run.name}: left out, as it diverged: {run.recipe.variants[number]} ({error})")
            continue
        flops, seconds = flops + fitted.cost.flops, seconds + fitted.cost.train_seconds
        console.print(f"{run.name}: validation accuracy {100 * accuracy:.1f} % with {run.recipe.variants[number]}")
        if accuracy > best_accuracy:
            best, best_accuracy = replace(fitted, variant=number), accuracy
    if best is None or best.variant is None:
        raise TrainingDiverged(f"{run.name}: all of its variants diverged")
    chosen = run.variants[best.variant]
    metadata = read_checkpoint(chosen.checkpoint)["vit_vs_cnn"]
    write_checkpoint(run.checkpoint, metadata | {"identity": run.identity, "origin": run.to_dict()}, best.network)
    if (log := chosen.folder / "metrics.csv").exists():
        shutil.copyfile(log, run.folder / log.name)
    images = round(flops / (2 * best.cost.passes * best.cost.macs))
    return replace(best, cost=replace(best.cost, images_processed=images, train_seconds=seconds))
