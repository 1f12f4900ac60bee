"""CKA with known values, features without leftover hooks, and attention distances."""

import itertools
from statistics import fmean

import pytest
import torch
from torch import nn

from tests.comparison.entries import TinyCnn, entry, synthetic_images
from vit_vs_cnn.comparison.compare import compare_entries
from vit_vs_cnn.comparison.similarity import (
    MinibatchCka,
    compare_similarity,
    compute_features,
    gram_matrix,
    layer_names,
    unbiased_hsic,
)
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.models import create_model


def _features(count: int, width: int, seed: int) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _cka(first: torch.Tensor, second: torch.Tensor, batch: int | None = None) -> float:
    meter = MinibatchCka()
    for a, b in zip(first.split(batch or len(first)), second.split(batch or len(first)), strict=True):
        meter.update(gram_matrix(a)[None], gram_matrix(b)[None])
    return float(meter.compute())


def test_the_unbiased_estimate_is_the_sum_over_four_different_images():
    """The definition as a U-statistic, by brute force."""
    k, l = (gram_matrix(_features(6, 3, seed)) for seed in (0, 1))  # noqa: E741
    terms = [float(k[i, j] * (l[i, j] + l[q, r] - 2 * l[i, q])) for i, j, q, r in itertools.permutations(range(6), 4)]
    assert float(unbiased_hsic(k[None], l[None])) == pytest.approx(fmean(terms), rel=1e-10)


def test_too_few_images_are_refused_and_a_network_without_known_layers_is_left_out(tmp_path):
    with pytest.raises(InputError, match="similarity: needs at least 4 test images, and there are 3 "):
        compare_entries([entry(tmp_path, "one", test=synthetic_images(3))])

    class Opaque(nn.Module):
        def forward(self, images):
            return images.mean((2, 3)) @ torch.ones(3, 7)

    opaque = Opaque()
    opaque.weights = nn.ParameterList([torch.zeros(3)])
    networks = {"a": entry(tmp_path), "opaque": entry(tmp_path, network=opaque)}
    assert [*compare_similarity(networks, dict.fromkeys(networks, synthetic_images(20)))[0]] == [("a", "a")]


def test_cka_is_invariant_to_rotation_scale_and_shift():
    features, other = _features(53, 11, 0), _features(53, 7, 1)
    mixed = features[:, :7] + other
    rotation = torch.linalg.qr(_features(11, 11, 2)).Q
    expected = _cka(features, mixed)
    assert 0.1 < expected < 0.9
    assert _cka(3.7 * features @ rotation + 5, mixed) == pytest.approx(expected, abs=1e-9)


def test_one_batch_is_the_full_estimate_and_many_come_close(tmp_path):
    first = _features(1000, 11, 0)
    second = first[:, :5] + 0.7 * _features(1000, 5, 1)
    k, l = gram_matrix(first)[None], gram_matrix(second)[None]  # noqa: E741
    full = float(unbiased_hsic(k, l) / (unbiased_hsic(k, k) * unbiased_hsic(l, l)).sqrt())
    assert _cka(first, second) == pytest.approx(full, abs=1e-12)
    assert _cka(first, second, batch=50) == pytest.approx(full, abs=0.02)
    for count, counted in ((130, 128), (132, 132)):  # a last batch that is too small is left out
        assert compare_similarity({"a": entry(tmp_path)}, {"a": synthetic_images(count)})[1] == counted


def test_layer_names_are_the_blocks_of_transformers_and_cnns():
    blocks = {"vit_nano": ("encoder.blocks.3", 8), "resnet8": ("stages.2.0", 5), "timm/resnet10t": ("layer3.0", 7)}
    for name, (block, count) in (blocks | {"timm/convnext_atto": ("stages.3.blocks.1", 17)}).items():
        names = layer_names(create_model(name, num_classes=7, image_size=32))
        assert block in names and len(names) == count


def test_features_are_outputs_of_the_layers_and_hooks_are_removed():
    network = TinyCnn().train()
    images = torch.randn(5, 3, 8, 12)
    found = compute_features(network, images, layer_names(network))
    torch.testing.assert_close(found["first"], network.eval().first(images))
    torch.testing.assert_close(found["head"], network(images))
    assert list(found) == ["first", "second", "head"]
    assert not any(module._forward_hooks for module in network.modules())


def test_a_network_is_more_like_itself_than_like_another(tmp_path):
    networks = {name: entry(tmp_path, name, seed=seed) for seed, name in enumerate("ab")}
    similarity, _ = compare_similarity(networks, dict.fromkeys(networks, synthetic_images(40)))
    assert set(similarity) == {("a", "a"), ("a", "b"), ("b", "b")}
    assert similarity["a", "a"].to_numpy().diagonal() == pytest.approx(1)
    assert similarity["a", "b"].to_numpy().max() < 0.999
    assert list(similarity["a", "b"].index) == ["first", "second", "head"]


def test_cka_of_a_layer_that_varies_only_by_rounding_is_zero():
    generator, cka = torch.Generator().manual_seed(0), MinibatchCka()
    for _ in range(3):
        constant = torch.full((31, 101), 0.1) + torch.rand(101, generator=generator)
        grams = torch.stack([gram_matrix(constant), gram_matrix(torch.rand(31, 7, generator=generator))])
        cka.update(grams, grams)
    assert cka.compute()[0].tolist() == [0.0, 0.0]
    assert cka.compute()[1, 1].item() == pytest.approx(1.0)
