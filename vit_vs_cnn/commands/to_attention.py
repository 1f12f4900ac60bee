"""``to-attention`` (or ``compile``): a trained convolutional network as attention."""

from pathlib import Path
from typing import Any

from vit_vs_cnn.commands.arguments import TRUST, Arguments, existing, positive


def run(words: list[str]) -> None:
    """Write the attention network and say how it compares."""
    parser = Arguments(
        "to-attention",
        "Write a trained CNN as a network of multi-head attention that computes the same function (Cordonnier et al. "
        "2020, theorem 1), as a checkpoint that can be compared, inspected and trained further "
        "(contenders.NAME.starts_from).",
    )
    parser.add_argument("checkpoint", type=existing, metavar="CHECKPOINT", help="a checkpoint or a cell's folder")
    parser.add_argument("--output", type=Path, help="the checkpoint to write; default: attention.ckpt beside the other")
    parser.add_argument("--form", choices=("window", "quadratic"), default="window", help="how a head finds its place")
    parser.add_argument("--sharpness", type=float, help="how sharply it looks there; default: as sharply as can be")
    parser.add_argument(
        "--head_dim", type=positive, help="width of a head; fewer than the rank of a kernel only come near it"
    )
    parser.add_argument("--released", action="store_true", help="make positions and content parameters, to train on")
    parser.add_argument("--window_size", type=positive, help="of released windows; default: that of the kernel")
    parser.add_argument("--images", type=positive, help="test images to compare the two on; default: all")
    parser.add_argument("--root", type=Path, help="where the images lie, if no longer where they lay in training")
    parser.add_argument("--trust", action="store_true", help=TRUST)
    if (given := parser.parse(words)) is None:
        return
    import torch

    from vit_vs_cnn.conversion.to_attention import EXACT_IMAGES, compile_network
    from vit_vs_cnn.reporting.style import in_millions
    from vit_vs_cnn.runs.trained import open_network

    trained = open_network(given.checkpoint, trust=given.trust)
    test = trained.pool(given.root).test
    images = test.subset(torch.arange(min(given.images or len(test), len(test))))
    options: dict[str, Any] = {"form": given.form, "released": given.released}
    options |= {k: v for k in ("sharpness", "head_dim", "window_size") if (v := getattr(given, k)) is not None}
    output = given.output or trained.path.with_name("attention.ckpt")
    print(f"Compiling {trained.name}, and comparing the two on {len(images):,} test images ...", flush=True)
    result = compile_network(trained, options, output, images)
    print(f"wrote {result.path}")
    print(f"largest difference of a logit  {result.difference:.1e} in float32 on {result.images:,} images")
    print(f"                               {result.exact_difference:.1e} in float64 on {EXACT_IMAGES:,} of them")
    print(f"same class                     {100 * result.agreement:.2f} % of {result.images:,} images")
    for what, (before, after) in {"parameters": result.parameters, "MACs": result.macs}.items():
        print(f"{what:<30} {in_millions(before)} before, {in_millions(after)} after")
