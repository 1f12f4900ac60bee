"""What every source of images offers."""

from typing import Any, Protocol, runtime_checkable

from vit_vs_cnn.data.images import LabelledImages


@runtime_checkable
class Source(Protocol):
    """Where images come from. Nothing is read before one of the methods is called.

    Only evaluation calls ``test``; training code is handed ``train`` and ``validation`` alone.
    """

    def train(self) -> LabelledImages:
        """The images that may be trained on (and from which validation images are held out)."""
        ...

    def validation(self) -> LabelledImages | None:
        """Validation images that the user set apart, or None where they are held out of ``train``."""
        ...

    def test(self) -> LabelledImages:
        """The images that only evaluation may see."""
        ...

    def provenance(self) -> dict[str, Any]:
        """Which source, and what a reader of the results should know of it, as plain values."""
        ...
