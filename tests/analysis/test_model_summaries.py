"""Models have the names, sizes and starts that readers know."""

import pytest

from tests.results import make_result
from vit_vs_cnn.analysis.model_summaries import display_name, format_model_name, macs_ratio, summarize_models
from vit_vs_cnn.console import format_millions


def test_networks_have_their_common_names_and_keys_of_models_become_readable_ones():
    names = {"cct_7_3x1": "CCT-7/3x1", "vit_nano": "ViT nano", "resnet18_w32": "ResNet-18 w32", "timm/a_b": "timm/a_b"}
    names |= {"attention/resnet8": "ResNet-8 as attention"}
    assert {name: format_model_name({"name": name}) for name in names} == names
    assert format_model_name({"class_path": "mine.Network"}) == "Network"
    names = {"vit": "ViT", "vit_tuned": "ViT-tuned", "resnet_8": "ResNet (8)", "mine": "mine"}
    names |= {"cnn_pretrained": "pretrained CNN", "vit_finetuned": "fine-tuned ViT"}
    assert {key: display_name(key) for key in names} == names


@pytest.mark.parametrize(
    ("values", "start", "budget"),
    [
        ({}, "from scratch", "400 steps"),
        ({"start_kind": "fine-tuned", "start_name": "in1k"}, "fine-tuned from in1k", "400 steps"),
        ({"start_kind": "linear probe", "start_name": "x", "budget": "20.0 epochs"}, "linear probe of x", ""),
        ({"start_kind": "continued", "start_name": "a-n5-s0", "steps": 1300}, "continued from a-n5", "1,300 steps"),
        ({"architecture": {"class_path": "mine.Network"}, "budget": "2.4e+09 flops"}, None, "2.4e+09 training FLOPs"),
    ],
)
def test_starts_and_budgets_are_described_in_words(values, start, budget):
    (found,) = summarize_models([make_result(**{"architecture": {"name": "vit_nano"}} | values)])
    assert (found.start, found.budget) == (start, budget)


def test_title_has_the_key_where_the_network_has_another_name():
    runs = [make_result(model=key, architecture={"name": "vit_nano"}) for key in ("vit", "rotary")]
    titles = {one.key: one.title for one in summarize_models(runs)}
    assert titles == {"vit": "ViT nano (0.01M parameters)", "rotary": "rotary (0.01M parameters)"}


def test_summary_is_of_the_largest_size_and_compute_is_compared_where_it_is_known():
    (found,) = summarize_models([make_result(train_size=size, parameters=size) for size in (7, 11, 9)])
    assert found.parameters == 11
    models = summarize_models([make_result(model=key, macs=macs) for key, macs in (("a", 5), ("b", 20), ("c", 0))])
    largest, smallest, ratio = macs_ratio(models)
    assert (largest.key, smallest.key, ratio) == ("b", "a", 4.0)
    assert macs_ratio(models[2:]) is None
    printed = [format_millions(count) for count in (75_290, 12_239_488, 1_300_000_000, None)]
    assert printed == ["0.08M", "12.2M", "1.30G", "-"]


def test_the_variants_that_runs_chose_are_counted():
    variants = [{"finetune": "head"}, {"finetune": {"last": 2}, "optimizer": {"lr": 1e-4}}, {"optimizer": {"lr": 0.5}}]
    results = [
        make_result(seed=seed, start_kind="fine-tuned", finetune=text, variant=variant, recipe={"variants": variants})
        for seed, (variant, text) in enumerate([(0, "head"), (1, "last 2"), (0, "head"), (2, "full")])
    ]
    (found,) = summarize_models(results)
    assert found.variants == (
        "linear probe (2 runs), last 2 layers, learning rate 0.0001 (1 run), all layers, learning rate 0.5 (1 run)"
    )
