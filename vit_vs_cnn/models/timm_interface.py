"""Interface that timm expects of a model, for both architectures, and registration of our models with timm."""

from typing import Any, cast

from torch import nn

from vit_vs_cnn.bounds import as_rows_and_cols
from vit_vs_cnn.models.features import make_head
from vit_vs_cnn.models.presets import PRESETS
from vit_vs_cnn.models.registry import create_model

#: Name of a preset in timm's registry.
TIMM_NAME = "vit_vs_cnn_{}"


class TimmInterface(nn.Module):
    """Base of the networks, with the attributes and methods that timm's functions read and call.

    A subclass has a linear ``head`` and the methods ``forward_features`` and ``forward_head``.
    """

    #: Size, normalization and crop of the training images, by timm's names, once they are known.
    data_config: dict[str, Any] | None = None
    #: Names that timm has for the pool of the network.
    pool_names: tuple[str, ...] = ()
    num_classes: int
    head: Any  # nn.Linear; nn.Identity for 0 classes

    @property
    def num_features(self) -> int:
        """Number of features that the head reads."""
        raise NotImplementedError

    @property
    def pretrained_cfg(self) -> dict[str, Any]:
        """timm's configuration: size, mean and std of the images if known, and the name of the head."""
        cfg = {"crop_pct": 1.0, **(self.data_config or {})}
        return {**cfg, "num_classes": self.num_classes, "classifier": "head"}

    def get_classifier(self) -> nn.Module:
        """Linear head."""
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replace the head by a new, randomly initialized one; with 0 classes the model returns features.

        Raises:
            ValueError: if ``global_pool`` differs from the pool of the model.
        """
        if global_pool is not None and global_pool not in self.pool_names:
            raise ValueError(f"global_pool must be {' or '.join(self.pool_names)} here, but is {global_pool!r}")
        self.num_classes = num_classes
        self.head = make_head(next(self.parameters()), num_classes, self.num_features)

    def no_weight_decay(self) -> set[str]:
        """Names of parameters without weight decay, in addition to biases and norms."""
        return set()


def register_with_timm() -> list[str]:
    """Register every preset with timm: ``timm.create_model("vit_vs_cnn_vit_nano", num_classes=10)``.

    The models take timm's ``num_classes``, ``in_chans`` and ``img_size``, and all our options. A second call changes
    nothing.
    """
    import timm
    from timm.models import register_model

    names = {name: TIMM_NAME.format(name) for name in PRESETS}
    for name, timm_name in names.items():
        if not timm.is_model(timm_name):
            register_model(_entry_point(name, timm_name))
    return list(names.values())


def _entry_point(name: str, timm_name: str) -> Any:
    def build(
        *, pretrained: bool = False, num_classes: int = 10, in_chans: int = 3, img_size: Any = 32, **options: Any
    ) -> nn.Module:
        if pretrained:
            raise ValueError(f"{timm_name} has no pretrained weights")
        options = {
            key: value for key, value in options.items() if not key.startswith("pretrained_") and key != "cache_dir"
        }
        model = create_model(name, num_classes=num_classes or 1, image_size=img_size, in_channels=in_chans, **options)
        cast(Any, model).data_config = {"input_size": (in_chans, *as_rows_and_cols("img_size", img_size))}
        if not num_classes:  # timm returns features for 0 classes
            cast(Any, model).reset_classifier(0)
        return model

    build.__name__ = build.__qualname__ = timm_name
    build.__module__ = __name__
    return build
