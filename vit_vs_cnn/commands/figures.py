"""``figures``: what the lesson on attention draws."""

from pathlib import Path

from vit_vs_cnn.commands.arguments import Arguments


def run(words: list[str]) -> None:
    """Draw every figure."""
    parser = Arguments("figures", "Draw every figure of the lesson on attention, as PNG and SVG.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where they go; made if it is not there")
    if (given := parser.parse(words)) is None:
        return
    from rich.progress import track

    from vit_vs_cnn.reporting.attention_figures import FIGURES, draw_attention_figures

    given.folder.mkdir(parents=True, exist_ok=True)
    for name in track(FIGURES, "Drawing", transient=True):
        for path in draw_attention_figures(given.folder, [name]):
            print(f"wrote {path}")
