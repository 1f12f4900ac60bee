"""Trained networks that explain their predictions."""

import io
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vit_vs_cnn.errors import InputError, one_line
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


#: Prefix of repositories of the Hugging Face Hub.
HUB_PREFIX = "hf-hub:"


class LoadedNetwork(TrainedNetwork):
    """A trained network that predicts the classes of images and explains its predictions."""

    @classmethod
    def from_pretrained(cls, place: str | os.PathLike[str], *, trust: bool = False) -> "LoadedNetwork":
        """Open what ``save_pretrained`` or ``push_to_hub`` wrote.

        Arguments:
            place: a folder, or a repository of the Hugging Face Hub: ``USER/NAME`` or ``USER/NAME@REVISION``.
            trust: import a user-defined model class that the file names.

        Raises:
            InputError: a folder that cannot be opened, or a repository that cannot be downloaded.
        """
        name = os.fspath(place).removeprefix(HUB_PREFIX)
        if not os.path.exists(name):
            from huggingface_hub import snapshot_download

            repository, _, revision = name.partition("@")
            files = ["config.json", "model.safetensors"]
            try:
                name = snapshot_download(repository, revision=revision or None, allow_patterns=files)
            except (OSError, ValueError) as error:
                raise InputError(f"{place}: no such folder, and not downloaded: {one_line(error)}") from error
        return cls.open(name, trust=trust)

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write weights, config.json and a model card, as timm's models have them. An existing README.md is kept.

        Raises:
            InputError: no run of this package trained the network, or the folder cannot be written.
        """
        from vit_vs_cnn.conversion.export import save_pretrained

        save_pretrained(self, Path(folder))

    def push_to_hub(self, repository: str, *, private: bool = False, token: str | None = None) -> str:
        """Upload what ``save_pretrained`` writes, and return its address. An existing model card is kept.

        Arguments:
            repository: ``USER/NAME``; it is created if it does not exist.
            token: access token. Default: that of ``hf auth login``.

        Raises:
            InputError: as ``save_pretrained``. Errors of huggingface_hub are not caught.
        """
        from huggingface_hub import HfApi

        api = HfApi(token=token, library_name="vit_vs_cnn")
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            address = api.create_repo(repository, private=private, exist_ok=True)
            kept = ["README.md"] if api.file_exists(repository, "README.md") else None
            api.upload_folder(repo_id=repository, folder_path=folder, ignore_patterns=kept)
        return str(address)

    def evaluate(self, images: Any, labels: Any = None) -> "Evaluation":
        """Measure the accuracy, the recall of each class and the calibration on labelled images.

        Arguments:
            images: as for ``predict``; without labels, the path of class folders or of a table, or one set of labelled
                images, such as a Dataset, as for ``data`` of ``train``.
            labels: name or number of the class of each image.

        Raises:
            InputError: no image, a label that is no class, or another number of labels.
        """
        from vit_vs_cnn.comparison.evaluate import evaluate_network

        return evaluate_network(self, images, labels)

    def explain(
        self, images: Any, method: str | None = None, class_name: str | int | None = None
    ) -> Explanation | list[Explanation]:
        """Compute saliency maps of images.

        Arguments:
            images: one image or several, as for ``predict``.
            method: rollout, relevance, gradient_rollout, ... for a network with attention; grad_cam for a CNN;
                integrated_gradients for any. Default: relevance or grad_cam.
            class_name: name or number of the class to explain. Default: the predicted class of each image.

        Returns:
            an explanation; for several images a list with one for each.

        Raises:
            InputError: no image, one that cannot be read, an unknown class, or a method that does not apply to the
                network.
        """
        from vit_vs_cnn.data.decoding import parse_input_images
        from vit_vs_cnn.inspection.inspect import class_number, select_methods
        from vit_vs_cnn.inspection.saliency import saliency_maps

        method = method or select_methods(self)[0]
        found = list[Explanation]()
        for decoded in self.decode(parse_input_images(images, channels=self.image_shape[0])):
            pixels, probabilities = decoded.cpu(), self.predict(decoded).probabilities
            best = torch.from_numpy(probabilities.argmax(1))
            if class_name is not None:
                best = torch.full_like(best, class_number(class_name, self.class_names))
            maps = saliency_maps(self.network, self.normalize(decoded), method, classes=best.to(decoded.device))
            found += [
                Explanation(
                    image=pixels[index].permute(1, 2, 0).numpy(),
                    map=saliency.detach().cpu().numpy(),
                    method=method,
                    class_name=self.class_names[number],
                    probability=float(probabilities[index, number]),
                )
                for index, (number, saliency) in enumerate(zip(best.tolist(), maps, strict=True))
            ]
        return found[0] if len(found) == 1 else found
