"""By what cue networks classify drawn images: of their answers on test images, how many name the shape, how many the
texture.

    python -m benchmarks.cues FOLDER ...

Each FOLDER is an experiment on synthetic images with ``data.synthetic.task: shape``. The images are rendered again, and
the predictions are read from the runs. Only images whose shape and texture belong to two different classes are counted.
Prints means over seeds, with the smallest and the largest value.
"""

import argparse
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from vit_vs_cnn.config.experiment import experiment_from_dict, read_config
from vit_vs_cnn.data.synthetic.source import render_objects
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.regimes.budgets import Budgets
from vit_vs_cnn.runs.evaluation import Predictions
from vit_vs_cnn.runs.experiment_folder import read_finished_results
from vit_vs_cnn.runs.record import load_run_predictions


@dataclass(frozen=True)
class Answered:
    """By what one contender went at one size.

    Arguments:
        shape: share of the answers that name the class of the shape, for each seed; texture: that of the texture.
        images: whose two cues are of different classes.
    """

    contender: str
    size: int
    shape: tuple[float, ...]
    texture: tuple[float, ...]
    images: int


def answered(folder: Path) -> list[Answered]:
    """By what each contender of an experiment goes, by size.

    Raises:
        InputError: no experiment with finished cells there, or one of other images.
    """
    data = experiment_from_dict(read_config(folder / "experiment.yaml"), trusted=False).data
    if data.source != "synthetic" or data.synthetic.task != "shape":
        raise InputError(f"{folder} is not of drawn images of the task shape, of which alone both cues are known")
    options = data.synthetic
    shape_agreement, texture_agreement = options.agreements("test")
    drawn = render_objects(
        options.test_images,
        seed=options.seed,
        split="test",
        image_size=options.image_size,
        shape_agreement=shape_agreement,
        texture_agreement=texture_agreement,
        difficulty=options.difficulty,
    )
    apart = drawn.shapes != drawn.textures
    shares = defaultdict(list)
    budgets = Budgets(list(read_finished_results(folder).values()))
    for result in budgets.groups[budgets.names[-1]]:
        from_arrays = Predictions.from_arrays(load_run_predictions(folder, result.run))
        if list(from_arrays.sample_ids) != list(drawn.images.sample_ids) or not from_arrays.labels.equal(
            drawn.images.labels
        ):
            raise InputError(f"{folder}: {result.run} answered other images than those that are drawn")
        by_shape, by_texture = (
            float((from_arrays.classes == cue)[apart].double().mean()) for cue in (drawn.shapes, drawn.textures)
        )
        shares[result.contender, result.train_size].append((by_shape, by_texture))
    answers = []
    for (contender, size), found in sorted(shares.items(), key=lambda one: (one[0][1], one[0][0])):
        by_shape, by_texture = zip(*found, strict=True)
        answers.append(Answered(contender, size, by_shape, by_texture, int(apart.sum())))
    return answers


def _told(shares: tuple[float, ...]) -> str:
    return f"{100 * fmean(shares):.1f} % ({100 * min(shares):.1f} to {100 * max(shares):.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    args = parser.parse_args()
    print("| experiment | n | contender | seeds | answers that name the shape | the texture | images |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for folder in args.folders:
        try:
            found = answered(folder)
        except InputError as error:
            sys.exit(f"error: {error}")
        for one in found:
            cues = f"{_told(one.shape)} | {_told(one.texture)}"
            print(f"| {folder.name} | {one.size:,} | {one.contender} | {len(one.shape)} | {cues} | {one.images:,} |")


if __name__ == "__main__":
    main()
