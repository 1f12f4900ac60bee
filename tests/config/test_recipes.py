"""A model that is given by its name alone trains with the recommended recipe of its model."""

from dataclasses import replace

import pytest
import yaml

from vit_vs_cnn.config import recipes
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.config.recipes import find_recipe, recipe_search, recipe_source, recommended_recipes
from vit_vs_cnn.config.schema import RecipeSource
from vit_vs_cnn.config.search_space import DEFAULT_SPACE, sample_recipe
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.models.presets import PRESETS


def experiment(model, *, batch_size=128, **changes):
    protocol = {"budget": {"steps": 7}, "batch_size": batch_size}
    return experiment_from_dict({"name": "x", "protocol": protocol, "models": {"a": model}, **changes})


def read(model, **changes):
    return experiment(model, **changes).models["a"]


@pytest.mark.parametrize("entry", recommended_recipes(), ids=lambda entry: entry.name)
def test_every_recipe_can_be_used_and_names_its_source(entry):
    start = {"weights": {"file": "weights.safetensors"}} if entry.start == "pretrained" else {}
    model = read({"name": entry.models[0].replace("*", "x"), **start}, batch_size=entry.batch_size)
    assert (model.recipe.name, model.optimizer.lr) == (entry.name, entry.settings["optimizer"]["lr"])
    assert model.options.items() >= entry.settings.get("options", {}).items()
    assert entry.source
    assert recipe_source(model) is (RecipeSource.FALLBACK if entry.is_fallback else RecipeSource.RECOMMENDED)


def test_names_of_recipes_are_unique_and_every_preset_has_one_and_unknown_ones_are_refused():
    names = [entry.name for entry in recommended_recipes()]
    assert len(set(names)) == len(names)
    assert not [name for name in PRESETS if find_recipe({"name": name}, is_pretrained=False).is_fallback]
    with pytest.raises(InputError, match=r"models.a.recipe: expected default or none, got 'best'"):
        read({"name": "resnet8", "recipe": "best"})


@pytest.mark.parametrize(
    ("model", "recipe"),
    [
        ({"name": "timm/resnet10t"}, "timm resnet"),
        ({"name": "timm/vit_tiny_patch16_224"}, "timm vit"),
        ({"name": "timm/xcit_nano_12_p16_224"}, "generic attention or mixer"),
        ({"name": "timm/maxvit_nano_rw_256"}, "generic attention or mixer"),
        ({"class_path": "mine.SmallTransformer"}, "generic attention or mixer"),
        ({"class_path": "vit_vs_cnn.models.ResNet"}, "generic"),
        ({"name": "timm/dla34"}, "generic"),
        ({"name": "attention/resnet8"}, "generic attention or mixer"),
    ],
)
def test_a_family_is_found_by_the_name_of_the_model(model, recipe):
    assert find_recipe(model, is_pretrained=False).name == recipe


def test_the_learning_rate_follows_the_batch_size():
    """In proportion for SGD, with the square root for Muon, as for all adaptive optimizers."""
    for model, exponent in (({"name": "timm/resnet18", "weights": {"hub": True}}, 1.0), ({"name": "vit_small"}, 0.5)):
        small, large = (read(model, batch_size=size).optimizer for size in (128, 512))
        assert large.lr / small.lr == pytest.approx(4**exponent, rel=0.02)


def test_single_settings_override_the_recommended_ones_and_make_the_recipe_one_by_hand():
    model = read({"name": "vit_nano", "optimizer": {"lr": 0.123}})
    recommended = find_recipe({"name": "vit_nano"}, is_pretrained=False).settings
    assert (model.optimizer.name, model.optimizer.lr) == (recommended["optimizer"]["name"], 0.123)
    assert model.schedule.warmup == recommended["schedule"]["warmup"]
    assert recipe_source(model) is RecipeSource.GIVEN


@pytest.mark.parametrize("more", [{"optimizer": {"name": "lion"}}, {"optimizer": {"name": "muon"}}, {"recipe": "none"}])
def test_a_model_that_names_its_optimizer_or_no_recipe_has_plain_defaults(more):
    model = read({"name": "resnet8", **more})
    assert (model.optimizer.lr, model.schedule.warmup) == (1e-3, 0.05)
    assert "zero_init_residual" not in model.options
    assert recipe_source(model) is RecipeSource.GIVEN


def test_the_written_config_gives_the_same_experiment_and_source():
    before = experiment({"name": "vit_nano"})
    text = yaml.safe_dump(before.to_dict())
    after = experiment_from_dict(yaml.safe_load(text))
    assert after == before
    assert recipe_source(after.models["a"]) is RecipeSource.RECOMMENDED
    changed = yaml.safe_load(text)
    changed["models"]["a"]["optimizer"]["lr"] = 0.5
    assert recipe_source(experiment_from_dict(changed).models["a"]) is RecipeSource.GIVEN


def test_a_shared_augmentation_replaces_the_recommended_one(monkeypatch):
    entry = find_recipe({"name": "vit_nano"}, is_pretrained=False)
    stronger = replace(entry, settings={**entry.settings, "augmentation": {"policy": "trivialaugment"}})
    monkeypatch.setattr(recipes, "recommended_recipes", lambda: (stronger,))
    assert read({"name": "vit_nano"}).augmentation.policy == "trivialaugment"
    assert read({"name": "vit_nano"}, data={"augmentation": {"flip": False}}).augmentation is None


def test_a_linear_probe_has_no_recipe():
    probe = {"name": "timm/resnet10t", "weights": {"hub": True}, "finetune": "head"}
    assert recipe_source(read(probe)) is None
    assert recipe_search(read(probe)) is None


ADAMW = {"name": "adamw", "lr": {"low": 1e-3, "high": 1e-1, "log": True}}
OPTIMIZERS = [ADAMW, {"name": "sgd", "lr": {"low": 1.0, "high": 3.0}}]
SPACE = {"optimizer": OPTIMIZERS, "model.depth": {"low": 2, "high": 5}, "label_smoothing": [0.0, 0.1]}


def sampled(space=SPACE, trials=64, seed=0):
    return [sample_recipe(space, trial, seed=seed) for trial in range(trials)]


def test_sampled_values_cover_the_search_space():
    found = sampled()
    for name, low, high in (("adamw", 1e-3, 1e-1), ("sgd", 1.0, 3.0)):
        assert all(low <= r["optimizer"]["lr"] <= high for r in found if r["optimizer"]["name"] == name)
    assert {r["optimizer"]["name"] for r in found} == {"adamw", "sgd"}
    assert {recipe["lr"] for recipe in sampled({"lr": {"low": 1.2346, "high": 1.2349}})} == {1.2346}
    assert {r["model.depth"] for r in found} == {2, 3, 4, 5}
    assert {r["label_smoothing"] for r in found} == {0.0, 0.1}
    assert sample_recipe({"label_smoothing": [0.1]}, 3, seed=0) == {"label_smoothing": 0.1}
    assert sample_recipe({}, 3, seed=0) == {}


def test_a_trial_is_a_function_of_its_number_and_the_seed():
    assert sampled() == sampled()
    assert sampled(trials=5) == sampled(trials=9)[:5]
    assert sampled(seed=1) != sampled()
    assert sampled(dict(reversed(SPACE.items()))) == sampled()


def test_a_log_range_is_sampled_log_uniformly_and_every_optimizer_of_the_built_in_space_four_times():
    rates = [r["lr"] for r in sampled({"lr": {"low": 1e-4, "high": 1.0, "log": True}}, trials=64)]
    assert [sum(low <= rate < 10 * low for rate in rates) for low in (1e-4, 1e-3, 1e-2, 1e-1)] == [16] * 4
    names = [r["optimizer"]["name"] for r in sampled(DEFAULT_SPACE, trials=17)[1:]]
    assert min(names.count(name) for name in ("adamw", "muon", "sgd")) >= 4
