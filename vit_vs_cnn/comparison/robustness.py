"""How accuracy holds when images are spoiled, shifted, cut to tiles, or their two cues are set against each other."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor, nn

from vit_vs_cnn.comparison.corruptions import CORRUPTIONS, LEVELS, Bytes, corrupted
from vit_vs_cnn.comparison.entries import Entry, paired_rows
from vit_vs_cnn.data.drawn.objects import draw_objects
from vit_vs_cnn.data.drawn.shapes import SHAPE_NAMES
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.models.resized import ResizedInput, inner
from vit_vs_cnn.runs.evaluation import predict
from vit_vs_cnn.seeds import derive_seed
from vit_vs_cnn.statistics.intervals import Estimate
from vit_vs_cnn.statistics.mean_distribution import SeedScores, difference_over_seeds, mean_over_seeds

TILES = (2, 4, 8)
#: Side of a patch where no network has one.
USUAL_PATCH = 4
Groups = Mapping[str, Sequence[Entry]]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Corrupted:
    """Accuracy on spoiled images; groups are means over their networks.

    Arguments:
        accuracy: by group and corruption, one for each level.
        mean: over all corruptions and levels, with an interval of the images.
        by_network: the same of each network, by its name.
        mce: mean corruption error in per cent of the reference's: ``mean_c sum_l err / sum_l err_ref``; None
            where the reference makes none.
        reference: the first group.
        retained: mean accuracy on spoiled images over that on clean ones.
        differences: of ``mean`` between every two groups, on the same images.
    """

    accuracy: dict[str, dict[str, list[float]]]
    mean: dict[str, Estimate]
    by_network: dict[str, float]
    mce: dict[str, float | None]
    reference: str
    retained: dict[str, float]
    differences: dict[str, Estimate]


@dataclass(frozen=True)
class Shifts:
    """Share of images whose class stays when the image is moved by so many pixels, along rows or columns.

    Arguments:
        patch: pixels by which an image moves by whole patches; of the networks that have them the most.
        has_patch: whether there is such a network, and the image is large enough.
        on_patch, off_patch: mean over shifts that are multiples of it, and over those by one pixel more or less.
    """

    pixels: list[int]
    consistency: dict[str, list[float]]
    patch: int
    has_patch: bool
    on_patch: dict[str, float]
    off_patch: dict[str, float]


@dataclass(frozen=True)
class Shuffled:
    """Accuracy when the image is cut into g x g tiles which change places.

    Arguments:
        sensitivity: ``(acc - acc_g) / (acc - chance)``: 0 for a bag of tiles, 1 where all is lost; None at chance.
    """

    tiles: list[int]
    accuracy: dict[str, list[float]]
    sensitivity: dict[str, list[float | None]]


@dataclass(frozen=True)
class Cues:
    """Shape against texture, on drawn objects of ten classes.

    Arguments:
        shape_only, texture_only: accuracy where only one of the two tells the class.
        shape_share: where the two name different classes: of the answers that are one of them, the share of shape.
        decided: share of answers that are one of them.
    """

    images: int
    shape_only: dict[str, float]
    texture_only: dict[str, float]
    shape_share: dict[str, float | None]
    decided: dict[str, float]


@dataclass(frozen=True)
class Robustness:
    """All of it, on the same ``images`` test images for everyone; a part that does not fit the images is None."""

    images: int
    clean: dict[str, float]
    corruptions: Corrupted
    shifts: Shifts
    shuffled: Shuffled
    cues: Cues | None


def judge_robustness(groups: Groups, test: LabelledImages, *, seed: int = 0, tell: Tell = lambda _: None) -> Robustness:
    """Test every network on spoiled copies of the test images; who calls this notes it in the ledgers."""
    tell("clean images")
    clean = _accuracy(groups, test)
    return Robustness(
        images=len(test),
        clean=clean,
        corruptions=_corrupted(groups, test, clean, seed=seed, tell=tell),
        shifts=_shifts(groups, test, tell),
        shuffled=_shuffled(groups, test, clean, seed, tell),
        cues=_cues(groups, test, seed, tell) if test.class_names == SHAPE_NAMES else None,
    )


def evenly(test: LabelledImages, count: int) -> LabelledImages:
    """About ``count`` images, spread over the whole set; all of them if there are no more."""
    if len(test) <= count:
        return test
    return test.subset(torch.linspace(0, len(test) - 1, count).round().long())


def _answers(groups: Groups, images: LabelledImages) -> dict[str, Tensor]:
    """What the networks of each group say, ``(networks, images)``."""
    return {
        name: torch.stack(
            [predict(one.network, images, one.normalise, what=one.name).logits.argmax(1) for one in group]
        )
        for name, group in groups.items()
    }


def _correct(groups: Groups, images: LabelledImages) -> dict[str, np.ndarray]:
    return {name: (said == images.labels).numpy() for name, said in _answers(groups, images).items()}


def _accuracy(groups: Groups, images: LabelledImages) -> dict[str, float]:
    return {name: float(right.mean()) for name, right in _correct(groups, images).items()}


def _corrupted(groups: Groups, test: LabelledImages, clean: dict[str, float], *, seed: int, tell: Tell) -> Corrupted:
    reference = next(iter(groups))
    accuracy: dict[str, dict[str, list[float]]] = {name: {} for name in groups}
    by_image = {name: np.zeros((len(members), len(test))) for name, members in groups.items()}
    for number, corruption in enumerate(CORRUPTIONS, start=1):
        tell(f"{corruption} ({number}/{len(CORRUPTIONS)})")
        for level in LEVELS:
            spoiled = test.with_pixels(corrupted(test.images, corruption, level, seed=seed))
            for name, right in _correct(groups, spoiled).items():
                accuracy[name].setdefault(corruption, []).append(float(right.mean()))
                by_image[name] += right / (len(CORRUPTIONS) * len(LEVELS))
    return Corrupted(
        accuracy=accuracy,
        mean={
            name: mean_over_seeds(SeedScores.of(values)).interval(bounds=(0.0, 1.0))
            for name, values in by_image.items()
        },
        by_network={
            one.name: float(share)
            for name, members in groups.items()
            for one, share in zip(members, by_image[name].mean(1), strict=True)
        },
        mce={name: mean_corruption_error(accuracy[name], accuracy[reference]) for name in groups},
        reference=reference,
        retained={name: float(by_image[name].mean()) / clean[name] if clean[name] else 0.0 for name in groups},
        differences={
            f"{a} - {b}": _difference(groups[a], groups[b], by_image[a], by_image[b])
            for a, b in itertools.combinations(groups, 2)
        },
    )


def _difference(first: Sequence[Entry], second: Sequence[Entry], ours: np.ndarray, theirs: np.ndarray) -> Estimate:
    mine, other, paired = paired_rows(first, second)
    single = len(mine) == len(other) == 1
    sides = SeedScores.of(ours[mine]), SeedScores.of(theirs[other])
    return difference_over_seeds(*sides, paired=paired or single).interval()


def mean_corruption_error(
    accuracy: Mapping[str, Sequence[float]], reference: Mapping[str, Sequence[float]]
) -> float | None:
    """``100 mean_c (sum_l 1 - acc_cl) / (sum_l 1 - ref_cl)``; None where no corruption does the reference harm.

    Reference: Hendrycks & Dietterich 2019, section 4.1.
    Differs: the reference is one of the networks compared, not AlexNet; a corruption that does it no harm is left out.
    """
    ratios = []
    for corruption, levels in accuracy.items():
        errors, theirs = (sum(1 - a for a in some) for some in (levels, reference[corruption]))
        if theirs > 0:
            ratios.append(errors / theirs)
    return 100 * float(np.mean(ratios)) if ratios else None


def patch_of(network: nn.Module, image_size: tuple[int, int]) -> int | None:
    """Fewest pixels by which images move by whole patches, as it sees them, along their rows and along their columns.

    None for a network that does not cut images into patches.
    """
    seen = network.uncropped if isinstance(network, ResizedInput) else image_size
    for name in ("patch_embedding", "patch_embed"):
        size = getattr(getattr(inner(network), name, None), "patch_size", None)
        sides = (size, size) if isinstance(size, int) else size
        if isinstance(sides, tuple | list) and len(sides) == 2:
            moves = zip(sides, image_size, seen, strict=True)
            return math.lcm(*(Fraction(int(side) * whole, there).numerator for side, whole, there in moves))
    return None


def moved(images: Bytes, rows: int, cols: int) -> Bytes:
    """The images shifted down and to the right; what comes in at the edge is the image's own reflection."""
    places = [_mirrored(size, by) for size, by in zip(images.shape[-2:], (rows, cols), strict=True)]
    return images[..., places[0][:, None], places[1]]


def _mirrored(size: int, by: int) -> Tensor:
    """Where each place of an axis has its value from when all move on by so many, and the edges are mirrors."""
    place = (torch.arange(size) - by).abs()
    return size - 1 - (size - 1 - place).abs()


def _shifts(groups: Groups, test: LabelledImages, tell: Tell) -> Shifts:
    size = (test.images.shape[-2], test.images.shape[-1])
    most = min(size) - 1
    patches = {patch_of(one.network, size) for members in groups.values() for one in members}
    fitting = [patch for patch in patches if patch and patch < most]
    patch = max(fitting, default=USUAL_PATCH)
    multiples = [distance for distance in (patch, 2 * patch) if distance + 1 <= most]
    beside = {distance + step for distance in multiples for step in (-1, 1)} - {0}
    pixels = sorted({1, 2, 3, patch // 2 or 1, *multiples, *beside} & {*range(1, most + 1)})
    before = _answers(groups, test)
    consistency: dict[str, list[float]] = {name: [] for name in groups}
    for distance in pixels:
        tell(f"shift by {distance}")
        ways = ((distance, 0), (-distance, 0), (0, distance), (0, -distance))
        after = [_answers(groups, test.with_pixels(moved(test.images, *way))) for way in ways]
        for name, said in before.items():
            consistency[name].append(float(np.mean([float((one[name] == said).double().mean()) for one in after])))
    on = [i for i, distance in enumerate(pixels) if distance in multiples]
    off = [i for i, distance in enumerate(pixels) if distance in beside]

    def over(places: list[int]) -> dict[str, float]:
        return {name: float(np.mean([values[i] for i in places])) for name, values in consistency.items() if places}

    return Shifts(pixels, consistency, patch, bool(fitting), over(on), over(off))


def shuffled_tiles(images: Bytes, tiles: int, *, seed: int) -> Bytes:
    """Each image cut into ``tiles`` x ``tiles`` tiles, in an order of its own."""
    count, channels, rows, cols = images.shape
    if rows % tiles or cols % tiles:
        raise ValueError(f"images of {rows} x {cols} cannot be cut into {tiles} x {tiles} tiles of one size")
    generator = torch.Generator().manual_seed(derive_seed(seed, "tiles", tiles))
    order = torch.rand(count, tiles * tiles, generator=generator).argsort(1)
    cut = images.view(count, channels, tiles, rows // tiles, tiles, cols // tiles)
    pieces = cut.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    placed = pieces[torch.arange(count)[:, None], order].unflatten(1, (tiles, tiles))
    return placed.permute(0, 3, 1, 4, 2, 5).reshape(images.shape)


def _shuffled(groups: Groups, test: LabelledImages, clean: dict[str, float], seed: int, tell: Tell) -> Shuffled:
    rows, cols = test.images.shape[-2:]
    sizes = [tiles for tiles in TILES if rows % tiles == 0 and cols % tiles == 0]
    accuracy: dict[str, list[float]] = {name: [] for name in groups}
    for tiles in sizes:
        tell(f"{tiles} x {tiles} tiles shuffled")
        there = test.with_pixels(shuffled_tiles(test.images, tiles, seed=seed))
        for name, share in _accuracy(groups, there).items():
            accuracy[name].append(share)
    chance = 1 / test.num_classes
    sensitivity = {
        name: [(clean[name] - a) / (clean[name] - chance) if clean[name] > chance else None for a in accuracy[name]]
        for name in groups
    }
    return Shuffled(sizes, accuracy, sensitivity)


def _cues(groups: Groups, test: LabelledImages, seed: int, tell: Tell) -> Cues | None:
    """New images, not those of the test set; None where the networks read other channels than these have."""
    if test.images.shape[1] != 3:
        return None
    tell("shape against texture")
    size, count = (int(test.images.shape[-2]), int(test.images.shape[-1])), min(len(test), 1000)
    draw_seed = derive_seed(seed, "cues")

    def drawn(shape: float, texture: float) -> tuple[LabelledImages, Bool[Tensor, "count"], Tensor]:
        draw = draw_objects(
            count, seed=draw_seed, split="test", image_size=size, shape_agreement=shape, texture_agreement=texture
        )
        return draw.images, draw.shapes != draw.textures, draw.textures

    shape_only, texture_only = drawn(1.0, 0.1)[0], drawn(0.1, 1.0)[0]
    conflict, apart, textures = drawn(1.0, 0.0)
    assert bool(apart.all()), "with a texture agreement of 0 the cues never agree"
    share: dict[str, float | None] = {}
    decided: dict[str, float] = {}
    for name, answers in _answers(groups, conflict).items():
        by_shape, by_texture = (float((answers == cue).double().mean()) for cue in (conflict.labels, textures))
        decided[name] = by_shape + by_texture
        share[name] = by_shape / decided[name] if decided[name] else None
    return Cues(
        images=count,
        shape_only=_accuracy(groups, shape_only),
        texture_only=_accuracy(groups, texture_only),
        shape_share=share,
        decided=decided,
    )
