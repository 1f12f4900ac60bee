"""Every public function and class has an example in its docstring, and the examples run."""

import doctest
import importlib
import inspect
import shutil

import pytest
import torch

import vit_vs_cnn as vc
from tests.pictures import write_images

#: Public names of subpackages.
NAMES = {
    "attention.functional": ("scaled_dot_product_attention",),
    "attention.windows.sliding": ("local_attention",),
    "attention.convolution.network": ("conv2d_to_attention", "network_to_attention"),
    "data.subsets": ("nested_subsets",),
    "api": ("load_experiment",),
}
PUBLIC = {name: getattr(vc, name) for name in vc.__all__ if inspect.isroutine(getattr(vc, name))}
PUBLIC |= {
    name: getattr(importlib.import_module(f"vit_vs_cnn.{module}"), name)
    for module, names in NAMES.items()
    for name in names
}
#: Public classes that are described by an example; the others are blocks of a config (``Experiment``, ``Budget``, ...).
CLASSES = ("MultiHeadAttention", "VisionTransformer", "ResNet", "LabelledImages", "TrainingData", "Classifier")
PUBLIC |= {name: getattr(vc, name) for name in (*CLASSES, "Augmentation")}


@pytest.fixture(scope="module")
def folder(trained_once, tmp_path_factory):
    """A folder with an experiment of two models, photographs of two other classes, and images of two of its classes."""
    root = tmp_path_factory.mktemp("examples")
    shutil.copytree(trained_once, root / "runs" / "duel")
    classes = ("photos/apple", "photos/pear", "shapes/disc", "shapes/star")
    return write_images(root, (f"{name}/{number}.png" for name in classes for number in range(6)), size=(40, 40))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", PUBLIC)
def test_the_example_of_a_public_name_runs(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    public = inspect.unwrap(PUBLIC[name])
    names = {"torch": torch, "nn": torch.nn, **vars(importlib.import_module(public.__module__))}
    tests = doctest.DocTestFinder(recurse=False).find(public, name, module=False, globs=names)
    assert any(test.examples for test in tests), f"{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in tests:
        runner.run(test)
    assert runner.failures == 0
