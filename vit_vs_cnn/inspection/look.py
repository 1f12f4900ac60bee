"""What networks say about images, where they look for it, and how much of it is there."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection.attention_weights import AttentionMaps, attention_maps, has_attention, joined
from vit_vs_cnn.inspection.class_activation import feature_layer
from vit_vs_cnn.inspection.faithfulness import random_maps, score_methods
from vit_vs_cnn.inspection.layout import Images, layout_of
from vit_vs_cnn.inspection.perturbation import BACKGROUNDS, FILLS, area_under, deletion_curves, no_finer
from vit_vs_cnn.inspection.runs import InspectedRun, ShownImages, ShuffledNetwork, images_to_score
from vit_vs_cnn.inspection.saliency import list_methods, method_named, saliency_maps
from vit_vs_cnn.inspection.scores import MethodScore
from vit_vs_cnn.runs.evaluation import check_finite
from vit_vs_cnn.runs.trained import UNKNOWN, TrainedNetwork, folder_of

#: What is shown where nothing is asked for: attention through all layers, attention for the class; Grad-CAM, or where
#: there is no feature map for it what any network can be asked.
OF_ATTENTION, OF_CONVOLUTION, OF_ANY = ("rollout", "relevance"), ("grad_cam",), ("integrated_gradients",)
#: Pixels of an image beyond which ROAD is left out: a system of linear equations for every point of every curve.
ROAD_PIXELS = 64 * 64
FILL, STEPS, BATCH = "mean", 16, 32
#: As many lines of attention flow take longer than everything else together: it is scored where it is asked for.
SLOW = {"attention_flow"}
#: Images whose weights are kept for the figures: they are many numbers.
ATTENDED = 64


@dataclass(frozen=True, eq=False)
class MethodMaps:
    """The maps of one method, with a score of each.

    Arguments:
        maps: of each image, on the method's own grid.
        deletion: area under the probability as the map's places are taken away, the most important first.
        of_label: by the number of an image, the map for its true class; of those where the maps are for another one.
    """

    method: str
    description: str
    class_specific: bool
    maps: Float[Tensor, "images map_rows map_cols"]
    deletion: Float[Tensor, "images"]
    chance: Float[Tensor, "images"]
    of_label: Mapping[int, Float[Tensor, "map_rows map_cols"]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name, and what has to be said with it."""
        return self.method if self.class_specific else f"{self.method} (class-agnostic)"

    def faster(self, index: int) -> float:
        """How much lower than chance the area is, as a share: ``(AUC_random - AUC) / AUC_random``."""
        return float(1 - self.deletion[index] / self.chance[index].clamp_min(1e-12))


@dataclass(frozen=True, eq=False)
class NetworkMaps:
    """What one network says and where it looks.

    Arguments:
        classes: the class of each image that maps and scores are for.
        attention: its weights on the first images; None for a network without, or one whose weights cannot be had.
        unseen: why not, if it has attention.
    """

    run: InspectedRun
    probabilities: Float[Tensor, "images classes"]
    classes: Int64[Tensor, "images"]
    methods: list[MethodMaps]
    attention: AttentionMaps | None
    unseen: str | None = None

    @property
    def predicted(self) -> Int64[Tensor, "images"]:
        return self.probabilities.argmax(dim=1)


def methods_for(run: TrainedNetwork, asked: Sequence[str] = ()) -> list[str]:
    """Those of the methods asked for that the network can answer; of none, the defaults of its kind that it can."""
    for name in asked:
        method_named(name)
    able, attends = list_methods(run.network), has_attention(run.network)
    if not asked:
        if attends:
            return [name for name in OF_ATTENTION if _answers(run, name)] or list(OF_ANY)
        return list(OF_CONVOLUTION if _has_feature_maps(run) else OF_ANY)
    if chosen := [name for name in asked if name in able]:
        return chosen
    lacks = "is no CNN with feature maps" if attends else "has no attention between all tokens of one grid"
    raise InputError(
        f"{run.name} ({type(run.network).__name__}) {lacks}, so it cannot answer {', '.join(asked)}; "
        f"its methods are {', '.join(able)}"
    )


def answerable(run: InspectedRun, names: Sequence[str], shown: ShownImages) -> tuple[list[str], dict[str, str]]:
    """Those of the methods that the network answers for the first image, and by name why it does not the others."""
    pixels = images_for(run, shown.data.images[:1])
    with torch.no_grad():
        check_finite(run.network(pixels), run.name)
    able, refused = [], {}
    for name in names:
        try:
            saliency_maps(run.network, pixels, name)
        except InputError as error:
            refused[name] = str(error)
        else:
            able.append(name)
    return able, refused


def grid_for(runs: Sequence[InspectedRun], image_size: tuple[int, int]) -> tuple[int, int]:
    """The tokens that deletion takes away, the same for all: those of the first network that has any, or 8 x 8."""
    for run in runs:
        if run.attends:
            with contextlib.suppress(InputError):  # whoever needs its tokens says so
                return no_finer(layout_of(run.network, image_size).grid_size, image_size)
    return no_finer((8, 8), image_size)


def look_into(
    run: InspectedRun,
    shown: ShownImages,
    methods: Sequence[str],
    *,
    grid_size: tuple[int, int],
    class_index: int | None = None,
    attended: int = ATTENDED,
    labels_too: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> NetworkMaps:
    """Predictions, maps and their scores, and the attention of one network.

    The probability that deletion follows is that of the class which the network says, or of ``class_index``: no label
    is used.

    Arguments:
        grid_size: (rows, cols) of what deletion takes away.
        class_index: of the class that is asked for; the one that the network says if None.
        labels_too: whether maps for the true class are made, too, where it is known and not the one that is asked for.

    Raises:
        InputError: as ``saliency_maps``; attention that cannot be had is no mistake where no method needs it.
    """
    tell(f"{run.name}: what it says, and random maps")
    pixels = images_for(run, shown.data.images)
    with torch.no_grad():
        logits = torch.cat([run.network(batch) for batch in pixels.split(BATCH)])
        check_finite(logits, run.name)
        probabilities = logits.softmax(dim=1)
    classes = probabilities.argmax(dim=1)
    if class_index is not None:
        classes = torch.full_like(classes, class_index)
    chance = torch.stack([_areas(run, pixels, noise, classes, grid_size) for noise in random_maps(pixels)]).mean(dim=0)
    found = []
    for number, name in enumerate(methods, start=1):
        tell(f"{run.name}: {name} ({number} of {len(methods)})")
        method = method_named(name)
        parts = zip(pixels.split(BATCH), classes.split(BATCH), strict=True)
        maps = torch.cat([saliency_maps(run.network, part, method, classes=of) for part, of in parts])
        areas = _areas(run, pixels, maps, classes, grid_size)
        of_label = {}
        if labels_too and method.class_specific:
            labels = shown.data.labels
            others = torch.nonzero((labels != UNKNOWN) & (labels != classes.cpu()))[:, 0]
            for part in others.split(BATCH) if len(others) else ():
                made = saliency_maps(run.network, pixels[part], method, classes=labels[part].to(pixels.device))
                of_label |= zip(part.tolist(), made, strict=True)
        found.append(MethodMaps(name, method.description, method.class_specific, maps, areas, chance, of_label))
    tell(f"{run.name}: weights of attention")
    attention, unseen = attention_of(run, pixels[:attended])
    return NetworkMaps(run, probabilities, classes, found, attention, unseen)


def maps_over_training(
    run: InspectedRun, shown: ShownImages, method: str
) -> list[tuple[int, Float[Tensor, "images map_rows map_cols"]]]:
    """The maps of one method at every state of a run, each with its optimizer step."""
    pixels = images_for(run, shown.data.images)
    return [
        (step, saliency_maps(state.network, pixels, method)) for step, state in zip(run.steps, run.states, strict=True)
    ]


def images_for(run: TrainedNetwork, images: UInt8[Tensor, "batch channels rows cols"]) -> Images:
    """Images as the network takes them, on its device."""
    normalised = run.normalise(images)
    return normalised.to(next(run.network.parameters(), normalised).device)


def _has_feature_maps(run: TrainedNetwork) -> bool:
    try:
        feature_layer(run.network, _blank_image(run))
    except InputError:
        return False
    return True


def _answers(run: TrainedNetwork, method: str) -> bool:
    """Whether a network of attention gives its weights, or their gradients: timm's CaiT and XCiT do not."""
    try:
        saliency_maps(run.network, _blank_image(run), method, verify=False)
    except InputError:
        return False
    return True


def _blank_image(run: TrainedNetwork) -> Images:
    return images_for(run, torch.zeros(1, *run.image_shape, dtype=torch.uint8))


def attention_of(run: InspectedRun, pixels: Tensor) -> tuple[AttentionMaps | None, str | None]:
    """The weights on these images, or why there are none."""
    if not run.attends:
        return None, None
    try:
        parts = pixels.split(BATCH)
        return joined([attention_maps(run.network, part, verify=part is parts[0]) for part in parts]), None
    except InputError as error:
        return None, str(error)


def _areas(
    run: InspectedRun, pixels: Tensor, maps: Tensor, classes: Int64[Tensor, "images"], grid_size: tuple[int, int]
) -> Float[Tensor, "images"]:
    tokens = grid_size[0] * grid_size[1]
    steps = min(STEPS, tokens)
    parts = zip(pixels.split(BATCH), maps.split(BATCH), classes.split(BATCH), strict=True)
    curves = [deletion_curves(run.network, *part, fill=FILL, grid_size=grid_size, steps=steps) for part in parts]
    return area_under(torch.cat(curves), tokens)


def score_run(
    run: InspectedRun,
    methods: Sequence[str],
    *,
    grid_size: tuple[int, int],
    count: int,
    seed: int,
    root: Path | None,
    shuffled: Sequence[ShuffledNetwork] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[list[MethodScore], dict[str, str]]:
    """The scores of a network's methods on images of their own draw, and by name why others have none.

    Arguments:
        methods: names; all that it can answer, but for the slow ones, if there are none.
        shuffled: networks of the same parameters that were trained on shuffled labels.
        tell: is told how far it is.
    """
    shown, refused = images_to_score(run, count=count, seed=seed, root=root), {}
    names = methods_for(run, methods)
    if not methods:
        names, refused = answerable(run, [name for name in list_methods(run.network) if name not in SLOW], shown)
    fills, (rows, cols) = FILLS, shown.data.images.shape[2:]
    if rows * cols > ROAD_PIXELS:
        fills = BACKGROUNDS
        refused |= {"road": f"images of {rows} x {cols} pixels take it hours; score_methods(fills=['road']) does it"}
    how = {
        "normalise": lambda images: images_for(run, images),
        "grid_size": grid_size,
        "seed": seed,
        "fills": fills,
        "tell": tell,
    }
    others = [one.trained.network for one in shuffled]
    return score_methods(run.network, shown.data, names, shuffled=others, **how), refused


def default_folder(path: Path, checkpoint: Path) -> Path:
    """Where to write: in the experiment's report, in the cell's folder, or beside a checkpoint that lies elsewhere."""
    if (path / "grid.json").exists():
        return path / "report" / "inspection"
    return folder_of(checkpoint) / "inspection"
