"""Small untrained networks with images for an inspection: a ViT on a grid of 3 x 5 patches, and a CNN."""

from pathlib import Path

import torch

from tests.experiments.tiny import tiny_experiment
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.inspection.inspect import InspectedImages, Inspection, inspect_network
from vit_vs_cnn.models import VisionTransformer
from vit_vs_cnn.models.resnet import ResNet
from vit_vs_cnn.networks.trained_network import TrainedNetwork
from vit_vs_cnn.runs.run import Run
from vit_vs_cnn.training.checkpoints import CheckpointInfo

GRID, IMAGE, PATCH, CLASSES, COUNT = (3, 5), (12, 20), 4, ("ant", "<b>bee", "cat"), 4


def shown(count=COUNT, size=IMAGE):
    pixels = torch.randint(0, 256, (count, 3, *size), dtype=torch.uint8, generator=torch.Generator().manual_seed(7))
    labels = torch.arange(count) % 3
    labels[-1] = -1
    names = [f"image {number} </script>" for number in range(count)]
    return InspectedImages(LabelledImages(pixels, labels, CLASSES, names), "made for a test")


def run(network, model, folder):
    experiment = tiny_experiment(folder)
    run_folder = Run(experiment, model, 120, experiment.protocol.budget, 3, "none")
    about = CheckpointInfo({"name": model}, CLASSES, (3, *IMAGE), mean=[0.5] * 3, std=[0.25] * 3)
    return TrainedNetwork(run_folder.name, Path("last.ckpt"), network.eval(), about, origin=run_folder)


def vit(folder, depth=3, heads=2, size=IMAGE, **options):
    torch.manual_seed(5)
    sizes = {"num_classes": 3, "embed_dim": 11 * heads, "depth": depth, "num_heads": heads}
    network = VisionTransformer(size, PATCH, **sizes, pool="class", **options)
    for block in network.encoder.blocks:  # sharper than at the start of training
        block.attention.query_projection.weight.data.mul_(3)
    return run(network, "vit", folder)


def resnet(folder):
    torch.manual_seed(6)
    return run(ResNet(8, width=5, num_classes=3), "resnet", folder)


def looked(one, images, *methods):
    return inspect_network(one, images, methods, grid_size=GRID)


def inspection(images, *networks):
    return Inspection(images, networks)
