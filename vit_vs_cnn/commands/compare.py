"""``compare``: checkpoints, cells, whole experiments, timm models and exported files on the same test images."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vit_vs_cnn.commands.arguments import TRUST, Arguments, existing, positive
from vit_vs_cnn.errors import InputError


def run(words: list[str]) -> None:
    """Compare, print, and write down."""
    if (given := _parser().parse(words)) is None:
        return
    from rich.console import Console

    from vit_vs_cnn import api
    from vit_vs_cnn.comparison.compare import PARTS
    from vit_vs_cnn.reporting.comparison_report import as_json, print_comparison

    parts = _parts(given, PARTS)
    with _progress() as tell:
        found = api.compare(
            *given.paths,
            parts=parts,
            output=given.output,
            train_size=given.size,
            root=given.root,
            quick=given.quick,
            attack=given.attack,
            images=given.images,
            seed=given.seed,
            open_test_set=given.open_test_set,
            device=given.device,
            trust=given.trust,
            tell=tell,
        )
    if given.json:
        sys.stdout.write(as_json(found.comparison, found.notes))
        return
    console = Console()
    print_comparison(found.comparison, found.notes, console)
    if found.page is not None:
        console.print(f"wrote {found.page} and {len(found.written) - 1} more files beside it", soft_wrap=True)


def _parser() -> Arguments:
    parser = Arguments("compare", "Compare networks on the same test images: paired, with intervals, on the record.")
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a checkpoint, a cell's folder, an experiment's folder, an exported .safetensors or .onnx, timm/NAME "
        "(untrained) or timm/NAME=WEIGHTS_FILE",
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="write JSON, CSV, figures and a page here")
    parser.add_argument("--json", action="store_true", help="print the result as JSON, and nothing else")
    parser.add_argument("--quick", action="store_true", help="a first look: fewer images where that is only coarser")
    parser.add_argument(
        "--only",
        metavar="PARTS",
        help="these parts, with commas: accuracy, confidence, robustness, similarity, cost, differences",
    )
    parser.add_argument("--skip", metavar="PARTS", help="all but these parts")
    parser.add_argument("--attack", action="store_true", help="FGSM and PGD, too (needs captum)")
    parser.add_argument("--images", type=positive, metavar="N", help="test images for robustness")
    parser.add_argument("--size", type=positive, metavar="N", help="training size of an experiment's cells")
    parser.add_argument("--root", type=existing, metavar="DIR", help="where the images lie now")
    parser.add_argument(
        "--open-test-set", action="store_true", help="test also what was scored on validation images so far"
    )
    parser.add_argument("--trust", action="store_true", help=TRUST)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of all that is drawn")
    parser.add_argument("--device", default="auto", metavar="NAME", help="auto, cpu, cuda, cuda:1, ...")
    return parser


def _parts(given: argparse.Namespace, parts: tuple[str, ...]) -> tuple[str, ...]:
    if given.only is not None and given.skip is not None:
        raise InputError("vit-vs-cnn compare: take either --only or --skip")
    named = [name.strip() for name in (given.only or given.skip or "").split(",") if name.strip()]
    if unknown := [name for name in named if name not in parts]:
        raise InputError(f"vit-vs-cnn compare: part {unknown[0]!r} is none of {', '.join(parts)}")
    if given.only is None:
        chosen = tuple(part for part in parts if part not in named)
    else:
        chosen = tuple(part for part in parts if part in named)
    if not chosen:
        raise InputError(f"vit-vs-cnn compare: no part is left; there are {', '.join(parts)}")
    return chosen


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """What is being done, on standard error: a line that changes on a terminal, a line for each part elsewhere."""
    from rich.console import Console

    console = Console(stderr=True)
    last = ""

    def tell(text: str) -> None:
        nonlocal last
        part = text.partition(":")[0]
        if console.is_terminal:
            status.update(text)
        elif part != last:
            console.print(f"{part} ...", soft_wrap=True, markup=False, highlight=False)
        last = part

    with console.status("opening") as status:
        yield tell
