"""``export``: a trained network for other programs."""

from pathlib import Path

from vit_vs_cnn.commands.arguments import TRUST, Arguments, existing


def run(words: list[str]) -> None:
    """Write and check the files."""
    parser = Arguments(
        "export",
        "Write a trained network in the formats that others read, and check that each gives its logits. "
        "onnx and torch take pixel values from 0 to 1 and normalise them; safetensors and timm hold the weights alone, "
        "and config.json says the rest.",
    )
    parser.add_argument("checkpoint", type=existing, metavar="CHECKPOINT", help="a checkpoint or a cell's folder")
    parser.add_argument(
        "--format",
        nargs="+",
        metavar="FORMAT",
        default=["safetensors", "onnx"],
        help="safetensors, onnx, torch (torch.export) or timm",
    )
    parser.add_argument("--output", type=Path, help="where the files go; default: export/ in the cell's folder")
    parser.add_argument("--trust", action="store_true", help=TRUST)
    if (given := parser.parse(words)) is None:
        return
    from vit_vs_cnn.conversion.export import export
    from vit_vs_cnn.runs.trained import open_network

    trained = open_network(given.checkpoint, trust=given.trust)
    folder = given.output or trained.path.parents[1] / "export"
    for exported in export(trained, given.format, folder):
        print(f"wrote {exported.path}  (largest difference of a logit {exported.difference:.1e})")
    print(f"wrote {folder / 'config.json'}  (classes, image size, normalisation)")
