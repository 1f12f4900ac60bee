# ruff: noqa: F401
"""Vision Transformer or CNN: a controlled experiment on your images, with the data that you have.

Names are imported when they are first used: ``import vit_vs_cnn`` by itself does not load PyTorch.
"""

from importlib import import_module

TYPE_CHECKING = False  # editors take it for true; importing typing for it would take longer than all the rest
if TYPE_CHECKING:
    from vit_vs_cnn.api import (
        audit,
        compare,
        evaluate,
        export,
        inspect,
        load,
        locality,
        predict,
        report,
        status,
        to_attention,
        train,
        tune,
    )
    from vit_vs_cnn.attention import MultiHeadAttention
    from vit_vs_cnn.config.experiment import Budget, Data, Experiment, ModelConfig, Protocol
    from vit_vs_cnn.data.batches import TrainingData
    from vit_vs_cnn.data.images import LabelledImages
    from vit_vs_cnn.data.options import Augmentation
    from vit_vs_cnn.inspection import attention_rollout
    from vit_vs_cnn.loaded_network import LoadedNetwork
    from vit_vs_cnn.models import ResNet, VisionTransformer, create_model, list_models, register_model
    from vit_vs_cnn.training.classifier import Classifier

__version__ = "0.2.0"
#: Modules of the public names.
_MODULES = {
    "api": (
        *("audit", "compare", "evaluate", "export", "inspect", "load", "locality", "predict", "report", "status"),
        *("to_attention", "train", "tune"),
    ),
    "attention": ("MultiHeadAttention",),
    "config.experiment": ("Budget", "ModelConfig", "Data", "Experiment", "Protocol"),
    "data.batches": ("TrainingData",),
    "data.images": ("LabelledImages",),
    "data.options": ("Augmentation",),
    "inspection": ("attention_rollout",),
    "loaded_network": ("LoadedNetwork",),
    "models": ("ResNet", "VisionTransformer", "create_model", "list_models", "register_model"),
    "training.classifier": ("Classifier",),
}
_MODULE_BY_NAME = {name: module for module, names in _MODULES.items() for name in names}
__all__ = [*sorted(_MODULE_BY_NAME), "__version__"]  # noqa: PLE0604  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULE_BY_NAME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
