"""Cues by which networks classify synthetic images: shares of predictions that match the shape and the texture.

    python -m benchmarks.cues FOLDER ...

Each FOLDER is an experiment on synthetic images with ``data.synthetic.task: shape``. The images are rendered again, and
the predictions are read from the runs. Only images whose shape and texture belong to two different classes are counted.
Prints means over seeds, with the smallest and the largest value.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import command_line, markdown_table, print_text, range_text
from vit_vs_cnn.config.experiment import experiment_from_dict, read_config
from vit_vs_cnn.data.synthetic.source import render_objects
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.networks.evaluation import Predictions
from vit_vs_cnn.runs.experiment_folder import read_finished_results
from vit_vs_cnn.runs.record import load_run_predictions
from vit_vs_cnn.runs.result import group_results, longest_results


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
    answers = []
    for (model, size), results in group_results(longest_results(read_finished_results(folder).values())).items():
        of_seeds = [Predictions.from_arrays(load_run_predictions(folder, result.run)) for result in results]
        for predictions in of_seeds:
            same_names = list(predictions.sample_ids) == list(objects.images.sample_ids)
            if not same_names or not predictions.labels.equal(objects.images.labels):
                raise InputError(f"{folder}: predictions of {model} are for other images than the config describes")
        by_shape, by_texture = (
            tuple(float((one.classes == cue)[conflicting].double().mean()) for one in of_seeds)
            for cue in (objects.shapes, objects.textures)
        )
        answers.append(CueShares(model, size, by_shape, by_texture, int(conflicting.sum())))
    return sorted(answers, key=lambda one: (one.size, one.model))


def table_of(folders: Iterable[Path]) -> str:
    """Markdown table with a row for each model and training size."""
    rows = []
    for folder in folders:
        for row in cue_shares(folder):
            cues = [range_text([100 * share for share in cue], 1, " %") for cue in (row.shape, row.texture)]
            rows.append([folder.name, f"{row.size:,}", row.model, len(row.shape), *cues, f"{row.images:,}"])
    columns = ["experiment", "n", "model", "seeds", "answers that name the shape", "the texture", "images"]
    return markdown_table(columns, rows)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    folders = parser.parse_args().folders
    print_text(lambda: table_of(folders))


if __name__ == "__main__":
    main()
