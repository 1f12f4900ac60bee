"""A folder of synthetic photographs, for ``configs/decide.yaml``: four classes, many sizes and shapes, JPEG and PNG.

    python -m benchmarks.draw_photographs photos
    python train.py --config configs/decide.yaml --data.root photos --minutes 15

300 scenes of the embedded objects at about 200 pixels, 75 of each class, in the frames of cameras (1:1, 4:3, 3:2,
upright and lying), each rendered at its own size. Two thirds are JPEG of quality 60 to 95, a third PNG. The same call
gives the same pixels on every machine. The class is the shape, and no other feature depends on it.
"""

from collections.abc import Collection
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks import command_line, run_command
from vit_vs_cnn.data.synthetic.source import render_objects

CLASSES = (0, 3, 4, 7)
#: Seed of scenes, sizes and qualities.
SEED = 5
FRAMES = ((1, 1), (4, 3), (3, 4), (3, 2), (2, 3))


def draw_photographs(root: Path, *, of_each: int = 75, side: int = 200, classes: Collection[int] = CLASSES) -> str:
    """Write ``root/<class>/<file>``. Returns a sentence with the number of files.

    Arguments:
        root: the folder, made if it is missing.
        of_each: images of each class.
        side: the shorter side in pixels of the average image; they vary by a third.
        classes: which of the ten synthetic classes.
    """
    rng = np.random.default_rng(SEED)
    labels = render_objects(10 * of_each, image_size=8, seed=SEED).images.labels.tolist()
    chosen = [number for number, label in enumerate(labels) if label in classes]
    for number in chosen:
        wide, high = FRAMES[rng.integers(len(FRAMES))]
        short = rng.uniform(2 * side / 3, 4 * side / 3) / min(wide, high)
        size = round(short * high), round(short * wide)
        scene = render_objects(1, start=number, image_size=size, seed=SEED).images
        folder = root / scene.class_names[labels[number]]
        folder.mkdir(parents=True, exist_ok=True)
        photo = Image.fromarray(scene.images[0].permute(1, 2, 0).numpy())
        if number % 3:
            photo.save(folder / f"Photo {number}.JPG", quality=int(rng.integers(60, 96)))
        else:
            photo.save(folder / f"img_{number}.png")
    return f"{len(chosen)} images of {len(classes)} classes are in {root}"


if __name__ == "__main__":
    parser = command_line(__doc__)
    parser.add_argument("root", metavar="folder", type=Path)
    parser.add_argument("--of-each", type=int, default=75, help="images of each class (default: 75)")
    run_command(parser, draw_photographs)
