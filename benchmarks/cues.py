"""Cues by which networks classify synthetic images: shares of predictions that match the shape and the texture.

    python -m benchmarks.cues FOLDER ...

Each FOLDER is an experiment on synthetic images with ``data.synthetic.task: shape``. The images are rendered again, and
the predictions are read from the runs. Only images whose shape and texture belong to two different classes are counted.
Prints means over seeds, with the smallest and the largest value.
"""

import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from benchmarks import command_line, markdown_table, range_text
from vit_vs_cnn.analysis.budgets import BudgetResults
from vit_vs_cnn.config.experiment import experiment_from_dict, read_config
from vit_vs_cnn.data.synthetic.source import render_objects
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.networks.evaluation import Predictions
from vit_vs_cnn.runs.experiment_folder import read_finished_results
from vit_vs_cnn.runs.record import load_run_predictions


@dataclass(frozen=True)
class CueShares:
    """Shares of predictions by cue, of one model at one training size.

    Arguments:
        shape: share of predictions of the class of the shape, for each seed.
        texture: share of predictions of the class of the texture, for each seed.
        images: number of images whose two cues belong to different classes.
    """

    model: str
    size: int
    shape: tuple[float, ...]
    texture: tuple[float, ...]
    images: int


def cue_shares(folder: Path) -> list[CueShares]:
    """Measure the shares of each model of an experiment, by training size.

    Raises:
        InputError: no experiment with finished runs, or an experiment on other images.
    """
    data = experiment_from_dict(read_config(folder / "experiment.yaml"), trusted=False).data
    if data.source != "synthetic" or data.synthetic.task != "shape":
        raise InputError(
            f"{folder} is not an experiment with data.synthetic.task: shape; only its images have two known cues"
        )
    options = data.synthetic
    shape_agreement, texture_agreement = options.agreements("test")
    objects = render_objects(
        options.test_images,
        seed=options.seed,
        split="test",
        image_size=options.image_size,
        shape_agreement=shape_agreement,
        texture_agreement=texture_agreement,
        difficulty=options.difficulty,
    )
    conflicting = objects.shapes != objects.textures
    shares = defaultdict(list)
    budgets = BudgetResults(list(read_finished_results(folder).values()))
    for result in budgets.groups[budgets.names[-1]]:
        predictions = Predictions.from_arrays(load_run_predictions(folder, result.run))
        same_names = list(predictions.sample_ids) == list(objects.images.sample_ids)
        if not same_names or not predictions.labels.equal(objects.images.labels):
            raise InputError(
                f"{folder}: the predictions of {result.run} are for other images than the config describes"
            )
        by_shape, by_texture = (
            float((predictions.classes == cue)[conflicting].double().mean())
            for cue in (objects.shapes, objects.textures)
        )
        shares[result.model, result.train_size].append((by_shape, by_texture))
    answers = []
    for (model, size), pairs in sorted(shares.items(), key=lambda item: (item[0][1], item[0][0])):
        by_shape, by_texture = zip(*pairs, strict=True)
        answers.append(CueShares(model, size, by_shape, by_texture, int(conflicting.sum())))
    return answers


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    rows = []
    for folder in parser.parse_args().folders:
        try:
            shares = cue_shares(folder)
        except InputError as error:
            sys.exit(f"error: {error}")
        for row in shares:
            cues = [range_text([100 * share for share in cue], 1, " %") for cue in (row.shape, row.texture)]
            rows.append([folder.name, f"{row.size:,}", row.model, len(row.shape), *cues, f"{row.images:,}"])
    columns = ["experiment", "n", "model", "seeds", "answers that name the shape", "the texture", "images"]
    print(markdown_table(columns, rows))


if __name__ == "__main__":
    main()
