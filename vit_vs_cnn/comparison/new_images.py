"""Labelled images that are not from an experiment, for the evaluation and the comparison of networks."""

import dataclasses
import difflib
import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vit_vs_cnn.data.datasets import read_pairs
from vit_vs_cnn.data.decoding import InputImage, find_input_files, parse_input_images
from vit_vs_cnn.data.listing import SUFFIXES, list_table
from vit_vs_cnn.data.options import TableOptions
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.files import escape_name
from vit_vs_cnn.networks.trained_network import TrainedNetwork

#: Largest number of class names in a message.
MAX_NAMES = 20


def shorten_list(names: Sequence[str]) -> str:
    return ", ".join(names[:MAX_NAMES]) + ", ..." * (len(names) > MAX_NAMES)


def read_labelled_images(
    trained: TrainedNetwork, images: Any, labels: Any = None
) -> tuple[list[InputImage], list[int]]:
    """Images, not decoded yet unless they are in memory, and the numbers of their classes.

    Arguments:
        images: as for ``predict``; without labels, paths of class folders and of tables, or one set of images in a form
            that ``data`` of ``train`` has: a Dataset, a DataLoader, (images, labels), ...
        labels: name or number of the class of each image.

    Raises:
        InputError: no image, a label that is no class, or not one label for each image.
    """
    paths, place = [*images] if isinstance(images, list | tuple) else [images], "labels"
    if labels is not None:
        inputs = parse_input_images(images, channels=trained.image_shape[0])
    elif all(isinstance(path, str | os.PathLike) for path in paths):
        inputs, place = _find_labelled_files(map(Path, paths), trained), ", ".join(map(str, paths))
        labels = [image.class_name for image in inputs]
    elif isinstance(images, np.ndarray | Tensor):
        raise InputError("images in memory need labels: (images, labels)")
    else:
        pixels, labels = read_pairs(images)
        inputs = [InputImage(str(number), torch.from_numpy(image)) for number, image in enumerate(pixels)]
    numbers = _number_classes(labels.tolist() if hasattr(labels, "tolist") else labels, trained, place)
    if len(numbers) != len(inputs):
        raise InputError(f"labels: {len(numbers):,} for {len(inputs):,} images; each image needs one")
    return inputs, numbers


def _find_labelled_files(paths: Iterable[Path], trained: TrainedNetwork) -> list[InputImage]:
    """The images in class folders, and those of tables with the columns of the network's own table."""
    images, options = list[InputImage](), trained.origin.experiment.data.table if trained.origin else TableOptions()
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
        if path.is_dir() or path.suffix.lower() in SUFFIXES:
            images += find_input_files([path], trained.class_names)
            continue
        listing = list_table(path, dataclasses.replace(options, split=None, group=None))
        for name, label in zip(listing.names, listing.labels, strict=True):
            images.append(InputImage(escape_name(path.parent / name), path.parent / name, listing.class_names[label]))
    outside = [image.name for image in images if not image.class_name]
    if 0 < len(outside) < len(images):
        text = f"images outside of class folders are left out: {len(outside):,}, such as {outside[0]}"
        warnings.warn(text, stacklevel=4)
    return [image for image in images if image.class_name]


def _number_classes(labels: Sequence[str | int], trained: TrainedNetwork, place: str) -> list[int]:
    """Numbers of classes from their names or numbers. A number is a name if all names are numbers."""
    names = trained.class_names
    numbers = [int(name) for name in names] if all(map(str.isdecimal, names)) else range(len(names))
    known = {label: index for index, pair in enumerate(zip(names, numbers, strict=True)) for label in pair}
    unknown = [str(label) for label in dict.fromkeys(labels) if label not in known]
    if len(labels) and not unknown:
        return [known[label] for label in labels]
    problem = "no image is in a folder that is named like a class"
    if unknown:
        close = {name: difflib.get_close_matches(name, names, n=1) for name in unknown}
        words = [f"{name} (did you mean {match[0]}?)" if match else name for name, match in close.items()]
        problem = f"no class of {trained.name}: {shorten_list(words)}"
    raise InputError(f"{place}: {problem}; the classes are {shorten_list(names)}")
