"""Permuted blocks of pixels: the same pixels in a fixed order, which a ViT with learned positions can ignore."""

import pytest
import torch
from einops import rearrange

from tests.experiments.tiny import run_quietly, tiny_config, tiny_experiment
from vit_vs_cnn.api import load
from vit_vs_cnn.inspection.inspect import inspect_networks, open_networks, select_images
from vit_vs_cnn.inspection.locality.study import study_locality
from vit_vs_cnn.models.input_wrappers import PermutedInput, unwrap
from vit_vs_cnn.networks.build import build_network


def _build(name, **options):
    torch.manual_seed(5)
    model, shape = {"name": name, "options": options}, (3, 24, 40)
    return build_network(model, num_classes=7, image_shape=shape, location="model").eval()


def _blocks(images, size):
    return rearrange(images, "b c (r p) (k q) -> b (r k) (c p q)", p=size, q=size)


def test_blocks_of_all_images_are_permuted_in_the_same_way():
    network = PermutedInput(torch.nn.Identity(), (24, 40), block_size=8, seed=3)
    images = torch.randn(5, 3, 24, 40)
    order = network.order
    assert sorted(order.tolist()) == list(range(15)) and order.tolist() != list(range(15))
    assert torch.equal(_blocks(network(images), 8), _blocks(images, 8)[:, order])
    assert not torch.equal(order, PermutedInput(torch.nn.Identity(), (24, 40), block_size=8, seed=4).order)


@pytest.mark.parametrize(("block_size", "patch_size"), [(4, 4), (8, 4), (8, 8)])
def test_a_vit_with_permuted_positions_computes_the_same_logits(block_size, patch_size):
    permuted = _build("vit_nano", patch_size=patch_size, permute_blocks=block_size, permutation_seed=2)
    plain = _build("vit_nano", patch_size=patch_size)
    table = unwrap(plain).position.encoding.data.normal_()
    grid = rearrange(torch.arange(table.shape[-2]).double(), "(r k) -> 1 1 r k", r=24 // patch_size)
    pixels = grid.repeat_interleave(patch_size, 2).repeat_interleave(patch_size, 3)
    sources = permuted.permuted(pixels)[0, 0, ::patch_size, ::patch_size].flatten().long()
    unwrap(permuted).position.encoding.data.copy_(table[..., sources, :])
    images = torch.randn(3, 3, 24, 40)
    torch.testing.assert_close(permuted(images), plain(images), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(_build("resnet8", permute_blocks=8)(images), _build("resnet8")(images))


def test_a_loaded_network_permutes_images_and_has_no_maps_or_measures_of_positions(tmp_path, error_line):
    models = tiny_config(tmp_path)["models"]
    for model in models.values():
        model["options"]["permute_blocks"] = 8
    experiment = tiny_experiment(tmp_path, models=models, budget={"steps": 2})
    run_quietly(experiment)
    network = load(experiment.folder, "resnet")
    assert isinstance(network.network, PermutedInput) and network.network.block_size == 8
    networks = open_networks([experiment.folder])
    inspection = inspect_networks(networks, select_images(networks, count=2))
    assert [[maps.method.name for maps in of.methods] for of in inspection.networks] == [["integrated_gradients"]] * 2
    (run,) = experiment.folder.glob("vit-*")
    methods = ["--methods", "rollout", "grad_cam", "--output", tmp_path / "page"]
    for words in (["inspect", experiment.folder, *methods], ["locality", run]):
        assert "permute_blocks moves the blocks" in error_line(*words)
    with pytest.warns(match="vit-n120-s3 is not measured: permute_blocks moves"):
        assert list(study_locality(experiment.folder, count=9, held_out=9)) == [[], []]


@pytest.mark.parametrize("size", ["5", "32", "half", "true"])
def test_blocks_that_do_not_divide_the_images_are_refused(size, error_line):
    words = ["--data.synthetic.train_images", "60", "--protocol.train_sizes", "[60]"]
    assert "permute_blocks" in error_line("train", "--models.vit.options.permute_blocks", size, *words)
