"""The features of an image are the input of the last linear layer of any network."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vit_vs_cnn.errors import InputError
from vit_vs_cnn.models import create_model
from vit_vs_cnn.models.features import find_classifier, logits_and_features
from vit_vs_cnn.models.input_wrappers import ResizedInput

CLASSES = 7


class OfPlaces(nn.Module):
    """Classifies each of 6 positions of an image and averages the logits."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(3, 5)
        self.head = nn.Linear(5, CLASSES)
        self.unused = nn.Linear(5, CLASSES + 1)

    def forward(self, images):
        return self.head(self.embed(images.flatten(2).mT)).mean(1)


class Silent(nn.Module):
    """Reads the weights of its linear layer and never calls it."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, CLASSES)

    def forward(self, images):
        return F.linear(images.mean((2, 3)), self.head.weight, self.head.bias)


def _made(name):
    torch.manual_seed(3)
    return create_model(name, num_classes=CLASSES, image_size=32).eval()


@pytest.mark.parametrize(
    "name",
    [
        *("vit_nano", "resnet8", "attention/resnet8", "timm/resnet18", "timm/convnext_atto"),
        *("timm/deit_tiny_distilled_patch16_224", "timm/vit_tiny_patch16_224"),
    ],
)
@torch.no_grad()
def test_the_classifier_maps_the_features_to_the_logits(name):
    network = _made(name)
    images, classifier = torch.rand(2, 3, 32, 32), find_classifier(network, CLASSES)
    logits, features = logits_and_features(network, images, classifier)
    torch.testing.assert_close(logits, network(images))
    if "distilled" not in name:  # its logits are the mean of two heads
        torch.testing.assert_close(classifier(features), logits)
    assert not classifier._forward_hooks


def test_features_of_several_places_are_their_mean():
    network, images = OfPlaces(), torch.rand(2, 3, 2, 3)
    classifier = find_classifier(network, CLASSES)
    assert classifier is network.head
    logits, features = logits_and_features(network, images, network.head)
    assert features.shape == (2, 5)
    torch.testing.assert_close(classifier(features), logits)


def test_the_declared_classifier_is_preferred_to_the_last_layer_of_its_size():
    network = nn.Sequential(nn.Linear(3, CLASSES), nn.Linear(CLASSES, CLASSES))
    assert find_classifier(network, CLASSES) is network[1]
    network.get_classifier = lambda: network[0]
    assert find_classifier(network, CLASSES) is network[0]
    assert find_classifier(ResizedInput(network, 3), CLASSES) is network[0]
    network.get_classifier = nn.Identity  # as in timm's models without a head
    assert find_classifier(network, CLASSES) is network[1]


def test_a_missing_classifier_is_none_and_an_uncalled_one_is_an_error():
    assert find_classifier(nn.Conv2d(3, CLASSES, 1), CLASSES) is None
    assert find_classifier(_made("vit_nano"), CLASSES + 1) is None
    with pytest.raises(InputError, match="Silent does not call its last linear layer"):
        logits_and_features(Silent(), torch.rand(2, 3, 4, 5), Silent().head)
