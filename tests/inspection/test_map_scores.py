"""Scores distinguish maps that find the object, and methods that depend on the network and its weights."""

import math
from itertools import pairwise

import numpy as np
import pandas
import pytest
import timm
import torch
from scipy.stats import binomtest, spearmanr, ttest_1samp
from torch import nn

from tests.inspection.models import vit
from vit_vs_cnn.data.images import LabelledImages
from vit_vs_cnn.data.synthetic.source import render_objects
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.inspection import SaliencyMethod, map_scores
from vit_vs_cnn.inspection.deletion import FILLS
from vit_vs_cnn.inspection.map_scores import SCORE_ERROR_RATE, adjust_scores, has_star, mask_agreement, score_methods
from vit_vs_cnn.inspection.randomized_weights import (
    is_constant_map,
    parameter_groups,
    randomization_stages,
    rank_correlation,
    with_shuffled_weights,
)
from vit_vs_cnn.inspection.saliency import image_noise, saliency_maps
from vit_vs_cnn.models import ResNet, VisionTransformer
from vit_vs_cnn.statistics.significance import holm

COUNT, SIZE, SIDE = 47, (12, 20), 4


class Template(nn.Module):
    """Class 1 if the noise contains a striped square. The template is a weight, so randomizing destroys it."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Conv2d(1, 1, SIDE, bias=False)
        self.head = nn.Linear(1, 2)
        ring = torch.ones(1, 1, SIDE, SIDE)
        ring[:, :, :, ::2] = -1.0
        self.trunk.weight.data = ring
        self.head.weight.data = torch.tensor([[-20.0], [20.0]])
        self.head.bias.data = torch.tensor([17.0, -17.0])

    def forward(self, images):
        return self.head(self.trunk(images).amax(dim=(2, 3)) / SIDE**2)


def _images():
    generator = torch.Generator().manual_seed(0)
    images = 255 * torch.randint(0, 2, (COUNT, 1, *SIZE), dtype=torch.uint8, generator=generator)
    masks = torch.zeros(COUNT, *SIZE, dtype=torch.bool)
    for image in range(COUNT):
        row, col = (SIDE * int(torch.randint(0, size // SIDE, (), generator=generator)) for size in SIZE)
        stripes = torch.tensor([0, 255, 0, 255], dtype=torch.uint8).expand(SIDE, -1)
        images[image, 0, row : row + SIDE, col : col + SIDE] = stripes
        masks[image, row : row + SIDE, col : col + SIDE] = True
    return LabelledImages(images, torch.ones(COUNT, dtype=torch.long), ("no", "yes"), ["x"] * COUNT, masks)


def _scale(images):
    return images.float() / 127.5 - 1


def _responses(asked):
    """Response of the network's template: depends on the network."""
    answers = asked.network.trunk(asked.images).detach()
    return nn.functional.conv_transpose2d(answers.relu() ** 4, torch.ones(1, 1, SIDE, SIDE)).squeeze(1)


KNOWS = SaliencyMethod("knows", "the network's own answers", "any", True, _responses)
#: Does not depend on the network.
EDGES = SaliencyMethod("edges", "contrast", "any", False, lambda asked: asked.images.diff(dim=3).abs()[:, 0])


@pytest.fixture(scope="module")
def table():
    return score_methods(Template(), _images(), [KNOWS, EDGES], normalize=_scale, grid_size=(3, 5))


@pytest.fixture(scope="module")
def scores(table):
    return {row["method"]: row for row in table.to_dict("records")}


#: Names of all measures, with and without masks.
DELETION = [f"{kind}_{fill}" for kind in ("deletion", "insertion") for fill in FILLS]
MEASURES = [*DELETION, "pointing", "mass", "rank"]


def measures_of(table) -> list[str]:
    return [column.removesuffix("_p") for column in table if column.endswith("_p")]


def test_a_map_of_the_object_is_better_than_random_and_center_by_every_measure(table, scores):
    assert list(scores) == ["knows", "edges", "random", "centre"]
    assert measures_of(table) == MEASURES
    knows = scores["knows"]
    for name in MEASURES:
        assert knows[f"{name}_p_holm"] < SCORE_ERROR_RATE, name
        assert knows[f"{name}_low"] <= knows[name] <= knows[f"{name}_high"]
    assert knows["images"] == COUNT
    assert knows["mask_area"] == pytest.approx(16 / 240)
    assert knows["pointing_p"] < 1e-6


def test_a_star_needs_deletion_insertion_and_a_changed_map_after_the_head_is_shuffled():
    row = {f"{name}_p_holm": 0.01 for name in MEASURES}
    row |= {"sanity_all": 0.9, "sanity_fc": -0.2, "sanity_fc_sd": 0.0, "sanity_fc_max": 0.9}
    assert all(has_star(row, name) for name in MEASURES)
    for change in ({"insertion_mean_p_holm": 0.2}, {"sanity_fc": -0.6}, {"sanity_fc": math.nan}):
        assert not has_star(row | change, "deletion_mean")


def test_a_random_map_scores_as_chance_and_baselines_have_no_adjusted_p_values(table, scores):
    random = scores["random"]
    for kind in ("pointing", "mass", "rank"):
        assert abs(random[kind] - random["mask_area"]) < 0.08
    for name in ("deletion_mean", "insertion_blur"):  # one more random map, compared with the mean of the others
        assert random[f"{name}_low"] <= 0.0 <= random[f"{name}_high"]
        assert random[name] != 0
    assert random["pointing_p"] > 0.01
    assert table[[f"{name}_p_holm" for name in MEASURES]][2:].isna().all(axis=None)


def test_p_values_are_adjusted_for_all_tests_of_the_table(table):
    p_values = table[[f"{name}_p" for name in MEASURES]][:2].to_numpy().ravel().tolist()
    adjusted = [f"{name}_p_holm" for name in MEASURES]
    assert table[adjusted][:2].to_numpy().ravel().tolist() == holm(p_values)
    twice = adjust_scores(pandas.concat([table, table.drop(columns="pointing_p")], ignore_index=True))
    known = [value for value in twice[adjusted].to_numpy().ravel() if not math.isnan(value)]
    fewer = table[[f"{name}_p" for name in MEASURES if name != "pointing"]][:2].to_numpy().ravel().tolist()
    assert sorted(known) == sorted(holm([*p_values, *fewer]))


def test_a_map_is_tested_against_chance_and_against_the_center(scores):
    images = _images()
    pixels = _scale(images.images)
    ties, maps = image_noise(pixels, "ties")[:, 0], (saliency_maps(Template(), pixels, m) for m in (KNOWS, "centre"))
    own, centre = (mask_agreement(each, images.masks, ties).pointing.double().numpy() for each in maps)
    by_chance = binomtest(int(own.sum()), COUNT, 16 / 240, alternative="greater").pvalue
    over_centre = ttest_1samp(own - centre, 0, alternative="greater").pvalue
    assert scores["knows"]["pointing_p"] == pytest.approx(max(by_chance, over_centre), rel=1e-6)


def test_randomized_weights_change_maps_only_of_methods_that_use_the_weights(scores):
    knows, edges = scores["knows"], scores["edges"]
    assert knows["sanity_all_max"] < 0.5 and edges["sanity_all_max"] == 1.0
    assert [knows[f"sanity_head{part}"] for part in ("", "_sd", "_max")] == [1.0, 0.0, 1.0]
    assert knows["sanity_all_sd"] > 0.0


def test_the_sanity_score_of_a_map_that_becomes_constant_is_undefined():
    trained = Template().trunk.weight.detach()

    def broken(asked):
        own = torch.equal(asked.network.trunk.weight, trained)
        return _responses(asked) if own else torch.full((len(asked.images), *SIZE), 0.7)

    flat = SaliencyMethod("flat", "nothing", "any", True, lambda asked: torch.zeros(len(asked.images), 3, 5))
    methods = [SaliencyMethod("broken", "falls flat", "any", True, broken), flat]
    table = score_methods(Template(), _images(), methods, normalize=_scale, grid_size=(3, 5))
    fallen, flat, *_ = table.to_dict("records")
    assert fallen["sanity_head"] == 1.0 and math.isnan(fallen["sanity_all"])
    assert flat["constant"] == 1.0 and math.isnan(flat["sanity_all"])


def test_empty_masks_are_left_out_and_without_masks_deletion_and_insertion_remain():
    images = _images()
    images.masks[:5] = False
    table = score_methods(Template(), images, [KNOWS], normalize=_scale, grid_size=(3, 5))
    assert measures_of(table) == MEASURES
    assert table["mask_area"][0] == pytest.approx(16 / 240)
    bare = LabelledImages(images.images, images.labels, images.class_names, images.sample_ids)
    table = score_methods(Template(), bare, [KNOWS], normalize=_scale, grid_size=(3, 5))
    assert measures_of(table) == DELETION
    assert table["mask_area"].isna().all()


def test_rollout_is_marked_class_agnostic_and_relevance_class_specific(monkeypatch):
    monkeypatch.setattr(map_scores, "BATCH_SIZE", 3)
    torch.manual_seed(0)
    network = VisionTransformer(12, 4, embed_dim=22, depth=2, num_heads=2).train()
    images = render_objects(5, image_size=12).images
    table = score_methods(network, images, ["rollout", "relevance"], normalize=_scale)
    assert network.training
    rollout, relevance, *_ = table.to_dict("records")
    assert not rollout["class_specific"] and relevance["class_specific"]
    assert rollout["sanity_head"] == 1.0 > relevance["sanity_head"]


def test_unknown_and_unavailable_methods_are_refused():
    unknown = 'no method "rolout"; allowed: raw_attention, rollout'
    for method, message in (("rolout", unknown), ("rollout", "Template has no attention weights")):
        with pytest.raises(InputError, match=message):
            score_methods(Template(), _images(), [method], normalize=_scale)


MASK_SIZE = (7, 11)


def _noise(count, seed):
    return torch.randn(count, *MASK_SIZE, generator=torch.Generator().manual_seed(seed))


def test_pointing_mass_and_rank_agree_with_loops_in_numpy():
    maps, masks, ties = _noise(5, 0), _noise(5, 1) > 0.7, _noise(5, 2)
    result = mask_agreement(maps, masks, ties)
    for image in range(5):
        values, mask = maps[image].numpy().ravel(), masks[image].numpy().ravel()
        positive = np.maximum(values, 0)
        assert result.pointing[image] == mask[np.argmax(values)]
        assert result.mass[image] == pytest.approx(positive[mask].sum() / positive.sum(), rel=1e-5)
        assert result.rank[image] == pytest.approx(mask[np.argsort(-values)[: mask.sum()]].mean())
        assert result.area[image] == pytest.approx(mask.mean())


def test_a_constant_map_scores_as_chance():
    masks = torch.zeros(2000, *MASK_SIZE, dtype=torch.bool)
    masks[:, :2, :3] = True  # the argmax without random ties
    result = mask_agreement(torch.zeros(2000, *MASK_SIZE), masks, _noise(2000, 3))
    area = 6 / 77
    assert result.pointing.mean() == pytest.approx(area, abs=0.03)
    assert result.rank.mean() == pytest.approx(area, abs=0.03)
    torch.testing.assert_close(result.mass, torch.full((2000,), area))


def test_parts_are_ordered_from_the_head_to_the_input():
    parts = ["head", "norm", "encoder.blocks.2", "encoder.blocks.1", "encoder.blocks.0", "position", "patch_embedding"]
    assert list(parameter_groups(vit(pool="class"))) == [*parts, "tokens and positions"]
    names = list(parameter_groups(ResNet(depth=8, width=5)))
    assert names == ["head", "stages.2.0", "stages.1.0", "stages.0.0", "stem.1", "stem.0"]
    theirs = list(parameter_groups(timm.create_model("vit_tiny_patch16_224", depth=2)))
    assert theirs == ["head", "norm", "blocks.1", "blocks.0", "patch_embed", "tokens and positions"]


@pytest.mark.parametrize("count", [1, 2, 5, 50])
def test_stages_grow_from_the_head_to_all_weights(count):
    model = vit()
    stages = randomization_stages(model, count)
    sets = [set(names) for names in stages.values()]
    assert len(sets) == min(count, 7)
    assert all(one < other for one, other in pairwise(sets))
    assert list(stages)[-1] == "all"
    assert sets[-1] == {name for name, _ in model.named_parameters()}
    if count > 1:
        assert sets[0] == {"head.weight", "head.bias"}


def test_weights_are_shuffled_in_a_copy_only():
    model = vit()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    names = ["head.weight", "encoder.blocks.0.mlp.expand.weight"]
    copy, again, other = (with_shuffled_weights(model, names, seed) for seed in (0, 0, 1))
    for name, parameter in copy.named_parameters():
        assert torch.equal(before[name], model.get_parameter(name))
        assert torch.equal(parameter, again.get_parameter(name))
        assert torch.equal(parameter, before[name]) == (name not in names)
        assert torch.equal(parameter.flatten().sort().values, before[name].flatten().sort().values)
    assert not torch.equal(copy.get_parameter(names[0]), other.get_parameter(names[0]))


def test_correlation_is_spearmans_with_ties_and_undefined_for_a_constant_map():
    first = torch.randint(0, 9, (5, 7, 3), generator=torch.Generator().manual_seed(0)).float()
    second = torch.randn(5, 7, 3, generator=torch.Generator().manual_seed(1))
    expected = [spearmanr(a.flatten(), b.flatten()).statistic for a, b in zip(first, second, strict=True)]
    np.testing.assert_allclose(rank_correlation(first, second), expected, atol=1e-12)
    assert (rank_correlation(first, first) == 1).all()
    nearly = 3.0 + 1e-7 * second  # constant but for rounding
    for constant in (torch.ones(5, 7, 3), torch.zeros(5, 7, 3), nearly):
        assert is_constant_map(constant).all()
        assert rank_correlation(first, constant).isnan().all()
        assert rank_correlation(constant, constant).isnan().all()
    assert not is_constant_map(1e-9 * second).any()
