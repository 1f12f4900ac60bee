"""``models``: what can be trained, by name."""

from vit_vs_cnn.commands.arguments import Arguments


def run(words: list[str]) -> None:
    """List the models with parameters and MACs."""
    if Arguments("models", "List the models by name, with parameters and MACs at 32 x 32.").parse(words) is None:
        return
    from vit_vs_cnn.models import create_model, list_models
    from vit_vs_cnn.models.cost import count_macs, count_parameters
    from vit_vs_cnn.reporting.style import in_millions

    for name in list_models():
        model = create_model(name, num_classes=10, image_size=32)
        parameters, macs = in_millions(count_parameters(model)), in_millions(count_macs(model, (3, 32, 32)))
        print(f"{name:<16} {parameters:>7} parameters  {macs:>7} MACs")
    print("timm/<name>      any model of timm")
