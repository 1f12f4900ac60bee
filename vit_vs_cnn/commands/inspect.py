"""``inspect``: where networks look, and how far the maps of that can be trusted."""

from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from vit_vs_cnn.commands.arguments import TRUST, Arguments, existing, positive
from vit_vs_cnn.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from vit_vs_cnn.inspection.runs import InspectedRun
    from vit_vs_cnn.inspection.scores import MethodScore

#: As many lines of attention flow take longer than everything else together: it is scored where it is asked for.
SLOW = {"attention_flow"}


def run(words: list[str]) -> None:
    """Look, print, and write down."""
    if (given := _parser().parse(words)) is None:
        return
    from rich.console import Console

    from vit_vs_cnn.inspection.look import ATTENDED, grid_for, look_into, methods_for
    from vit_vs_cnn.inspection.runs import images_to_show, open_runs
    from vit_vs_cnn.reporting.explorer import most_images, write_explorer
    from vit_vs_cnn.reporting.inspection_report import print_scores, write_inspection

    console = Console()
    runs = open_runs(given.checkpoints, trust=given.trust)
    first = runs[0]
    methods = {run.name: methods_for(run, given.methods) for run in runs}
    class_index = _class_index(given.class_name, first.class_names)
    folder = given.output or default_folder(given.checkpoints[0], first.path)
    with console.status("Reading images") as status:
        shown = images_to_show(first, given.images, count=given.count, seed=given.seed, root=given.root)
        grid_size = grid_for(runs, (shown.data.images.shape[2], shown.data.images.shape[3]))
        tell, budget = _teller(console, status.update), round(given.explorer_megabytes * 1e6)
        attended = max(ATTENDED, most_images(runs, shown, budget)) if given.explorer else ATTENDED
        looked = []
        for one in runs:
            looked.append(
                look_into(
                    one,
                    shown,
                    methods[one.name],
                    grid_size=grid_size,
                    class_index=class_index,
                    attended=attended,
                    tell=tell,
                )
            )
        title = f"Inspection of {', '.join(methods)}"
        explorer = None
        if given.explorer:
            tell("explorer")
            about = title.replace("Inspection", "Explorer")
            explorer = write_explorer(shown, looked, folder / "explorer.html", title=about, budget=budget)
        scores = {one.name: _score(given, one, grid_size, tell, console) for one in runs} if given.score else None
        written = write_inspection(
            shown,
            looked,
            folder,
            title=title,
            scores=scores,
            explorer=None if explorer is None else explorer.page,
            tell=tell,
        )
    if scores:
        print_scores(scores, console)
    for one in looked:
        if one.unseen is not None:
            console.print(f"{one.run.name}: no figures of attention: {one.unseen}", soft_wrap=True, markup=False)
        for maps in one.methods:
            beaten = sum(maps.faster(index) > 0 for index in range(len(shown.data)))
            console.print(
                f"{one.run.name}: {maps.label} beats random maps in deletion on {beaten} of {len(shown.data)} images",
                soft_wrap=True,
                markup=False,
            )
    if explorer is not None:
        attending = any(one.attention is not None for one in looked)
        console.print(
            f"wrote {explorer.page} ({explorer.page.stat().st_size / 1e6:.1f} MB, {explorer.images} images"
            f"{f', weights right to {explorer.error:.0e}' if attending else ''})",
            soft_wrap=True,
        )
    console.print(f"wrote {written[-1]} and {len(written) - 1} more files beside it", soft_wrap=True)


def _parser() -> Arguments:
    parser = Arguments(
        "inspect",
        "Show where networks look: maps of attention and of gradients over images, each with a score against random "
        "maps, and figures of what the network learned. No label is used but to print it.",
    )
    parser.add_argument(
        "checkpoints",
        nargs="+",
        type=existing,
        metavar="CHECKPOINT",
        help="checkpoints and cells' folders, side by side; several checkpoints of one run show its training; of an "
        "experiment's folder the first transformer and the first CNN at the largest size",
    )
    parser.add_argument(
        "--images",
        nargs="+",
        default=[],
        metavar="WHICH",
        help="files, folders, or numbers of test images; default: test images drawn by --seed, right or wrong",
    )
    parser.add_argument("--count", type=positive, default=16, help="images that are drawn, or taken of a folder")
    parser.add_argument(
        "--methods", nargs="+", default=[], metavar="METHOD", help="default: rollout and relevance, or grad_cam"
    )
    parser.add_argument("--class", dest="class_name", metavar="NAME", help="default: the class that the network says")
    parser.add_argument(
        "--score", action="store_true", help="score all methods, or those of --methods, on --score_images images"
    )
    parser.add_argument(
        "--score_images", type=positive, default=200, metavar="N", help="images that methods are scored on"
    )
    parser.add_argument("--explorer", action="store_true", help="a page to point at patches on, too: explorer.html")
    parser.add_argument(
        "--explorer-megabytes",
        type=_megabytes,
        default=10,
        metavar="MB",
        help="size of that page: weights are rounded more coarsely first, then there are fewer images on it",
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="default: inspection/ in the first cell or beside its checkpoint"
    )
    parser.add_argument("--root", type=existing, metavar="DIR", help="where the data lies, if no longer where it lay")
    parser.add_argument("--trust", action="store_true", help=TRUST)
    parser.add_argument("--seed", type=int, default=0, help="of the images that are drawn")
    return parser


def _megabytes(text: str) -> float:
    """An argument's type: a positive number."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ArgumentTypeError(f"{text} must be a number of megabytes above 0")
    return value


def _teller(console: "Console", update: Callable[[str], None]) -> Callable[[str], None]:
    """What is being done: beside the spinner of a terminal, a line each where there is none."""
    if console.is_terminal:
        return update
    return lambda line: console.print(line, soft_wrap=True, markup=False, highlight=False)


def _class_index(name: str | None, class_names: tuple[str, ...]) -> int | None:
    if name is None:
        return None
    if name not in class_names:
        raise InputError(f"--class {name}: no such class; there are {', '.join(class_names)}")
    return class_names.index(name)


def default_folder(path: Path, checkpoint: Path) -> Path:
    """Where to write: in the experiment's report, in the cell's folder, or beside a checkpoint that lies elsewhere."""
    if (path / "grid.json").exists():
        return path / "report" / "inspection"
    return (checkpoint.parents[1] if checkpoint.parent.name == "checkpoints" else checkpoint.parent) / "inspection"


def _score(
    given: Namespace, one: "InspectedRun", grid_size: tuple[int, int], tell: Callable[[str], None], console: "Console"
) -> list["MethodScore"]:
    """The scores of a network's methods on images of their own draw."""
    from vit_vs_cnn.inspection.faithfulness import score_methods
    from vit_vs_cnn.inspection.look import answerable, methods_for
    from vit_vs_cnn.inspection.runs import images_to_score
    from vit_vs_cnn.inspection.saliency import list_methods

    tell(f"Scoring the methods of {one.name}")
    shown = images_to_score(one, count=given.score_images, seed=given.seed, root=given.root)
    methods = methods_for(one, given.methods)
    if not given.methods:
        able = [name for name in list_methods(one.network) if name not in SLOW]
        methods, refused = answerable(one, able, shown)
        for name, reason in refused.items():
            console.print(f"{one.name}: {name} is not scored: {reason}", soft_wrap=True, markup=False)
    return score_methods(
        one.network,
        shown.data,
        methods,
        normalise=one.normalise,
        grid_size=grid_size,
        seed=given.seed,
    )
