"""Trained networks that explain their predictions."""

import io
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.networks.trained_network import TrainedNetwork

if TYPE_CHECKING:
    from vit_vs_cnn.comparison.evaluate import Evaluation
    from vit_vs_cnn.reporting.figures.drawing import Drawing


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Saliency map of one image.

    Arguments:
        image: bytes in the shape of the input.
        map: importance of each place, on the grid of the method.
        class_name: class that the map explains. Class-agnostic methods give the same map for all classes.
    """

    image: np.ndarray
    map: np.ndarray
    method: str
    class_name: str
    probability: float

    def plot(self) -> "Drawing":
        """Draw the image, and the map over it."""
        from vit_vs_cnn.reporting.figures.drawing import Drawing
        from vit_vs_cnn.reporting.style import COLOUR_MAP

        figure = Drawing(figsize=(6.0, 3.3), layout="constrained")
        rows, cols = self.image.shape[:2]
        titles = (f"{self.class_name} {100 * self.probability:.0f} %", self.method)
        for axis, title in zip(figure.subplots(1, 2), titles, strict=True):
            axis.imshow(self.image, cmap="gray", extent=(0, cols, rows, 0))
            axis.set_axis_off()
            axis.set_title(title, fontsize=10)
        figure.axes[1].imshow(self.map, cmap=COLOUR_MAP, alpha=0.6, interpolation="bilinear", extent=(0, cols, rows, 0))
        return figure

    def show(self) -> None:
        """Display it in a notebook, elsewhere in the image viewer."""
        shell = sys.modules.get("IPython")
        if shell is not None and shell.get_ipython() is not None:
            shell.display.display(self)
            return
        from PIL import Image

        Image.open(io.BytesIO(self._repr_png_())).show()

    def __repr__(self) -> str:
        rows, cols = self.map.shape
        return f"{self.method}: map of {rows} x {cols} for {self.class_name} ({100 * self.probability:.1f} %)"

    def _repr_png_(self) -> bytes:
        return self.plot()._repr_png_()


class LoadedNetwork(TrainedNetwork):
    """A trained network that predicts the classes of images and explains its predictions."""

    def evaluate(self, images: Any, labels: Any = None) -> "Evaluation":
        """Measure the accuracy, the recall of each class and the calibration on labelled images.

        Arguments:
            images: as for ``predict``; without labels, the path of class folders or of a table.
            labels: name or number of the class of each image.

        Raises:
            InputError: no image, a label that is no class, or another number of labels.
        """
        from vit_vs_cnn.comparison.evaluate import evaluate_network

        return evaluate_network(self, images, labels)

    def explain(self, image: Any, method: str | None = None, class_name: str | int | None = None) -> Explanation:
        """Compute a saliency map of an image.

        Arguments:
            image: one image, as for ``predict``.
            method: rollout, relevance, gradient_rollout, ... for a network with attention; grad_cam for a CNN;
                integrated_gradients for any. Default: relevance or grad_cam.
            class_name: name or number of the class to explain. Default: the predicted class.

        Raises:
            InputError: not one image, an unknown class, or a method that does not apply to the network.
        """
        from vit_vs_cnn.data.decoding import parse_input_images
        from vit_vs_cnn.inspection.inspect import class_number, images_for, select_methods
        from vit_vs_cnn.inspection.saliency import saliency_maps

        method = method or select_methods(self)[0]
        images = parse_input_images(image, channels=self.image_shape[0])
        if len(images) != 1:
            raise InputError(f"explain takes one image, got {len(images)}")
        decoded = images[0].decode(self.image_shape, self.decoding)[None]
        probabilities = self.predict(decoded).probabilities[0]
        index = int(probabilities.argmax()) if class_name is None else class_number(class_name, self.class_names)
        pixels = images_for(self, decoded)
        saliency = saliency_maps(self.network, pixels, method, classes=pixels.new_full((1,), index).long())[0]
        return Explanation(
            image=decoded[0].permute(1, 2, 0).numpy(),
            map=saliency.detach().cpu().numpy(),
            method=method,
            class_name=self.class_names[index],
            probability=float(probabilities[index]),
        )
