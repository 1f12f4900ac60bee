"""Cues by which networks classify synthetic images: shares of predictions that match the shape and the texture.

    python -m benchmarks.cues FOLDER ...

Each FOLDER is an experiment on synthetic images with ``data.synthetic.task: shape``. The images are rendered again, and
the predictions are read from the runs. Only images whose shape and texture belong to two different classes are counted.
Prints means over seeds, with the smallest and the largest value.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas

from benchmarks import command_line, markdown_table, range_text, run_command
from vit_vs_cnn.config.experiment import experiment_from_dict, read_config
from vit_vs_cnn.data.synthetic.source import render_objects
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.networks.evaluation import Predictions
from vit_vs_cnn.runs.experiment_folder import read_finished_results
from vit_vs_cnn.runs.record import load_run_predictions
from vit_vs_cnn.runs.result import longest_results


def cue_shares(folder: Path) -> pandas.DataFrame:
    """Shares of predictions of the class of the shape, and of the texture, for each run of an experiment.

    The number of images whose two cues belong to different classes is in ``images``.

    Raises:
        InputError: no experiment with finished runs, or an experiment on other images.
    """
    data = experiment_from_dict(read_config(folder / "experiment.yaml"), trusted=False).data
    if data.source != "synthetic" or data.synthetic.task != "shape":
        raise InputError(f"{folder} is not an experiment with data.synthetic.task: shape, whose images have two cues")
    options = data.synthetic
    shape, texture = options.agreements("test")
    look: dict[str, Any] = {"image_size": options.image_size, "difficulty": options.difficulty}
    look |= {"shape_agreement": shape, "texture_agreement": texture}
    objects = render_objects(options.test_images, seed=options.seed, split="test", **look)
    conflicting = objects.shapes != objects.textures
    rows = []
    for result in longest_results(read_finished_results(folder).values()):
        predictions = Predictions.from_arrays(load_run_predictions(folder, result.run))
        same_names = list(predictions.sample_ids) == list(objects.images.sample_ids)
        if not same_names or not predictions.labels.equal(objects.images.labels):
            raise InputError(f"{folder}: predictions of {result.model} are for other images than the config describes")
        agrees = [(predictions.classes == cue)[conflicting] for cue in (objects.shapes, objects.textures)]
        shares = [float(share.double().mean()) for share in agrees]
        rows.append([result.train_size, result.model, *shares, int(conflicting.sum())])
    return pandas.DataFrame(rows, columns=["size", "model", "shape", "texture", "images"])


def table_of(folders: Iterable[Path]) -> str:
    """Markdown table with a row for each model and training size."""
    rows = []
    for folder in folders:
        for _, runs in cue_shares(folder).groupby(["size", "model"]):
            size, model, images = runs[["size", "model", "images"]].iloc[0]
            cues = [range_text((100 * runs[cue]).tolist(), 1, " %") for cue in ("shape", "texture")]
            rows.append([folder.name, f"{size:,}", model, len(runs), *cues, f"{images:,}"])
    columns = ["experiment", "n", "model", "seeds", "answers that name the shape", "the texture", "images"]
    return markdown_table(columns, rows)


if __name__ == "__main__":
    parser = command_line(__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    run_command(parser, table_of)
