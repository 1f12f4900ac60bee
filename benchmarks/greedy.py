"""Scores of saliency maps next to those of a greedy order, for the scale of deletion and insertion.

    python -m benchmarks.greedy runs/NAME/vit-* --images 32

The greedy order is chosen step by step by the effects of replaced tokens (``DeletionTest.greedy_maps``). Tokens are
replaced by the mean colour of the image. The scores are relative to random maps, as in ``inspect --score``.
"""

from collections.abc import Sequence
from pathlib import Path

import torch

import vit_vs_cnn as vc
from benchmarks import command_line, markdown_table, run_command
from vit_vs_cnn.inspection import list_methods, saliency_maps
from vit_vs_cnn.inspection.deletion import DeletionTest, deletion_grid
from vit_vs_cnn.inspection.inspect import images_for, select_images
from vit_vs_cnn.inspection.map_scores import random_maps


def table_of(runs: Sequence[Path], images: int) -> str:
    """Markdown table with the scores of each network in both tests."""
    rows = []
    for run in runs:
        trained = vc.load(run)
        (selected,) = select_images([trained], count=images, seed=0)
        batch, network = images_for(trained, selected.data.images), trained.network
        with torch.no_grad():
            classes = network(batch).argmax(dim=1)
        grid_size = deletion_grid(network, (batch.shape[2], batch.shape[3]))
        test = DeletionTest(network, batch, classes, grid_size=grid_size)
        maps = {name: saliency_maps(network, batch, name, classes=classes) for name in list_methods(network)}
        for insert in (False, True):
            chance = torch.stack([test.areas(noise, insert=insert).mean() for noise in random_maps(batch)]).mean()
            tested = {"greedy": test.greedy_maps(insert=insert), **maps}
            sign = 1 if insert else -1
            scores = [sign * float(test.areas(m, insert=insert).mean() / chance - 1) for m in tested.values()]
            texts = [f"{name} {score:z.2f}" for name, score in zip(tested, scores, strict=True)]
            rows.append([run.name, "insertion" if insert else "deletion", ", ".join(texts)])
    return markdown_table(["network", "test", "scores"], rows)


if __name__ == "__main__":
    parser = command_line(__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    parser.add_argument("--images", type=int, default=32)
    run_command(parser, table_of)
