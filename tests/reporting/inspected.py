"""Small untrained networks with images, as ``inspect`` looks at them: a ViT on a grid of 3 x 5 patches, and a CNN."""

from pathlib import Path

import torch

from tests.experiments.tiny import tiny_experiment
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.inspection.look import MethodMaps, NetworkMaps, look_into
from vit_vs_cnn.inspection.runs import InspectedRun, ShownImages
from vit_vs_cnn.models import VisionTransformer
from vit_vs_cnn.models.resnet import ResNet
from vit_vs_cnn.runs.cell import Cell
from vit_vs_cnn.runs.trained import TrainedNetwork
from vit_vs_cnn.training.checkpoints import About

GRID, IMAGE, PATCH, CLASSES, COUNT = (3, 5), (12, 20), 4, ("ant", "<b>bee", "cat"), 4


def shown(count=COUNT, size=IMAGE):
    generator = torch.Generator().manual_seed(7)
    pixels = torch.randint(0, 256, (count, 3, *size), dtype=torch.uint8, generator=generator)
    labels = torch.arange(count) % 3
    labels[-1] = -1
    names = [f"image {number} </script>" for number in range(count)]
    return ShownImages(LabelledImages(pixels, labels, CLASSES, names), "drawn for a test")


def run(network, contender, folder):
    experiment = tiny_experiment(folder)
    cell = Cell(experiment, contender, 120, experiment.protocol.budget, 3, "none")
    about = About({"name": contender}, CLASSES, (3, *IMAGE), mean=[0.5] * 3, std=[0.25] * 3)
    trained = TrainedNetwork(cell.name, Path("last.ckpt"), network.eval(), about, step=1, origin=cell)
    return InspectedRun(**vars(trained), states=[trained])


def vit(folder, depth=3, heads=2, size=IMAGE, **options):
    torch.manual_seed(5)
    network = VisionTransformer(
        size, PATCH, num_classes=3, embed_dim=11 * heads, depth=depth, num_heads=heads, pool="class", **options
    )
    for block in network.encoder.blocks:  # sharper than at the start of training
        block.attention.query_projection.weight.data.mul_(3)
    return run(network, "vit", folder)


def resnet(folder):
    torch.manual_seed(6)
    return run(ResNet(8, width=5, num_classes=3), "resnet", folder)


def looked(one, images, *methods):
    return look_into(one, images, methods, grid_size=GRID, labels_too=True)


def with_plain_map(one, images):
    """A CNN with a made-up map in the place of Grad-CAM, which needs another library."""
    found = looked(one, images)
    maps = torch.rand(len(images.data), 2, 3, generator=torch.Generator().manual_seed(8))
    half = torch.full((len(images.data),), 0.5)
    made = MethodMaps("grad_cam", "made up", True, maps, 0.8 * half, half)
    return NetworkMaps(one, found.probabilities, found.classes, [made], None)
