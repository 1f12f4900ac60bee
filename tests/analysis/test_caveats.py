"""Unfair or weak comparisons have caveats, and some allow no conclusion."""

import re
from dataclasses import replace

import pytest

from tests.analysis.tables import PLAN, seeded
from tests.results import changed
from vit_vs_cnn.analysis.analysis import analyze
from vit_vs_cnn.analysis.caveats import blocking_caveat, find_caveats
from vit_vs_cnn.analysis.measurements import measure
from vit_vs_cnn.analysis.model_summaries import summarize_models
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.analysis_plan import Deviation
from vit_vs_cnn.runs.result import group_results
from vit_vs_cnn.statistics.caveats import Caveat, CaveatKind, CaveatSeverity

LOG_CAVEAT = {"b": Caveat(CaveatKind.TEST_SET_LOG, "the log of the test images is damaged")}


def both(seeds=3, **changes_of_b):
    """Results of a and b, which differ in some values."""
    common = {"trials": 1, "fingerprint": "f", "budget": "40 steps", "batch_size": 8, "training_images": 40}
    table = {"a": {7: 0.5, 11: 0.5}, "b": {7: 0.4, 11: 0.6}}
    results = seeded(table, seeds=seeds, **common, recipe={"augmentation": {"flip": True}})
    results = [changed(r, steps=4 * r.train_size) for r in results]
    return [changed(r, **changes_of_b) if r.model == "b" else r for r in results]


def caveats(results, *, pairs=(("a", "b"),), plan=None, log_caveats=None, few_classes=(), chance=None):
    models = summarize_models(results)
    options = {"pairs": pairs, "plan": plan, "log_caveats": log_caveats or {}, "few_classes": few_classes}
    return find_caveats(results, measure(results, chance=chance), models, **options)


def blocking(results, log_caveats=None):
    found = group_results(results)
    return blocking_caveat([*found["a", 7], *found["b", 7]], None, log_caveats or {})


def test_fair_comparison_has_no_caveat():
    assert caveats(both()) == []
    assert blocking(both()) is None


@pytest.mark.parametrize(
    ("change", "kind", "text", "forbids"),
    [
        ({"trials": 12}, "UNEQUAL_RECIPE_CARE", "7, 11 images .*(a one trial; b best of 12 trials)", True),
        ({"planned_steps": 50}, "STOPPED_EARLY", "6 of 12 runs stopped before their budget ended (b ", True),
        ({"recipe": {"augmentation": {"flip": False}}}, "DIFFERENT_AUGMENTATION", "Augmentation differs", False),
        ({"macs": 400_012}, "UNEQUAL_COMPUTE", "b uses 4 times the compute of a (0.40M vs 0.10M mult", False),
        ({"scored_images_in_start": 5}, "START_TRAINED_ON_TEST_IMAGES", "trained on test images (b: 5)", False),
        ({"start_history_known": False}, "START_IMAGES_UNKNOWN", "of the weights that b started from are not ", False),
    ],
)
def test_every_unfair_difference_between_models_has_a_caveat(change, kind, text, forbids):
    results = both(**change)
    (caveat,) = caveats(results)
    assert caveat.kind is CaveatKind[kind] and all(part in caveat.text for part in text.split(".*"))
    found = blocking(results)
    assert (found and found.kind) == (caveat.kind if forbids else None)


@pytest.mark.parametrize(
    ("names", "facts"),
    [
        (("deit_tiny_patch16_224.fb_in1k", "convnext_pico.d1_in1k"), "same data (in1k), method not known."),
        (("vit_base.augreg_in21k_ft_in1k", "convnext.fb_in22k_ft_in1k"), "same data (in21k, in1k), method not known."),
        (("vit_base_patch14_dinov2.lvd142m", "convnextv2_tiny.fcmae"), "data not known, different method."),
    ],
)
def test_data_and_method_of_pretraining_are_compared_by_the_names_of_weights(names, facts):
    architectures = {model: {"name": f"timm/{name}"} for model, name in zip("ab", names, strict=True)}
    results = [changed(r, start_history_known=False, architecture=architectures[r.model]) for r in both()]
    (text,) = [one.text for one in caveats(results) if one.kind is CaveatKind.PRETRAINING]
    assert text == f"Pretraining of a and b, by the names of their weights: {facts}"


def test_caveats_of_a_whole_experiment_are_listed_and_some_forbid_conclusions():
    found = {one.kind: one for one in caveats(both(2), few_classes=["b names 1 of 7"], log_caveats=LOG_CAVEAT)}
    assert found[CaveatKind.TEST_SET_LOG].text == "The log of the test images is damaged."
    assert found[CaveatKind.FEW_CLASSES_PREDICTED].text == "b names 1 of 7."
    assert found[CaveatKind.TOO_FEW_SEEDS].text.startswith("There are fewer than 3 seeds: no conclusion.")
    assert blocking(both(), LOG_CAVEAT) == LOG_CAVEAT["b"]
    validation = [changed(r, scored_on="validation") for r in both()]
    assert [one.kind for one in caveats(validation)] == [CaveatKind.VALIDATION_SCORES]
    assert blocking(validation).kind is CaveatKind.VALIDATION_SCORES
    by_hand = [changed(r, trials=None, images_processed=70, training_images=7) for r in both()]
    assert [one.text for one in caveats(by_hand)] == ["Recipes were set by hand."]
    assert blocking(by_hand) is None
    (changed_plan,) = caveats(both(), plan=replace(PLAN, deviations=(Deviation("pair", "a, b", "b, c"),)))
    assert changed_plan.kind is CaveatKind.PLAN_CHANGED


@pytest.mark.parametrize(
    ("ours", "theirs", "facts"),
    [
        ((0.9, 0.5, 0.4, 0.3), (0.8, 0.75, 0.7, 0.6), "+10.0 points|4 recipes|-27.5 points|2.5|depends on the recipe."),
        ((0.5, 0.4, 0.3, 0.2), (0.49, 0.41, 0.31, 0.2), "The order of the models is the same."),
        ((0.5, 0.4, 0.3), (0.9, 0.8, 0.7), None),
        (None, None, None),
    ],
    ids=["reversed", "within the noise", "too few trials", "not recorded"],
)
def test_the_order_with_median_recipes_is_compared_with_that_of_the_best(ours, theirs, facts):
    trials = {"a": ours, "b": theirs}
    search = {"trials": len(ours or "four"), "trial_images": 400}
    results = [changed(r, **search, trial_accuracies=trials[r.model]) for r in both()]
    found = [one for one in caveats(results) if one.kind is CaveatKind.RECIPE_SENSITIVITY]
    assert len(found) == (facts is not None)
    for one in found:
        assert re.search(".*".join(map(re.escape, facts.split("|"))), one.text)
        assert (one.severity is CaveatSeverity.WEAKENS) == ("depends" in one.text)


def test_sizes_with_few_seeds_and_failed_runs_are_named():
    (few,) = caveats([r for r in both() if (r.train_size, r.seed) != (7, 2)])
    assert few.text.startswith("There are fewer than 3 seeds with 7 images: no conclusion.")
    results = both()
    results[1] = changed(results[1], accuracy=0.1)
    (failed,) = caveats(results, chance=0.1)
    assert (failed.kind, failed.severity) == (CaveatKind.UNSTABLE_TRAINING, CaveatSeverity.WEAKENS)
    assert failed.text.startswith("1 of 6 runs of a failed (7 images seed 1): ")


def test_few_epochs_concern_models_from_scratch_with_the_most_images():
    results = [changed(r, images_processed=14, training_images=r.train_size) for r in both()]
    texts = {caveat.kind: caveat.text for caveat in caveats(results)}
    assert texts[CaveatKind.FEW_EPOCHS].startswith("With 11 images training had only 1.3 epochs. ")
    fine_tuned = [changed(r, start_kind="fine-tuned", start_name="in1k") for r in results]
    assert CaveatKind.FEW_EPOCHS not in {caveat.kind for caveat in caveats(fine_tuned)}


def test_many_epochs_without_strong_augmentation_are_mentioned_unless_a_search_chose_them():
    def many_epochs(**values):
        results = [changed(r, images_processed=50 * 7, training_images=7, **values) for r in both()]
        return [one.text for one in caveats(results) if one.kind is CaveatKind.MANY_EPOCHS_WEAK_AUGMENTATION]

    assert "was trained for 50 epochs without RandAugment or TrivialAugment" in many_epochs(trials=None)[0]
    assert many_epochs() == []
    assert many_epochs(trials=None, recipe={"augmentation": {"policy": "trivialaugment"}}) == []
    assert many_epochs(trials=None, start_kind="fine-tuned", start_name="in1k") == []


def test_unequal_compute_concerns_compared_models_with_the_same_start_and_of_probes_predictions_only():
    """A budget of FLOPs makes the compute equal, except of linear probes, which have no budget."""
    results = both(macs=400_012)
    assert caveats(results, pairs=()) == []
    assert caveats([changed(r, budget="1e+12 flops") for r in results]) == []
    assert caveats(both(macs=400_012, start_kind="fine-tuned", start_name="in1k")) == []
    assert caveats(both(macs=124_000)) == []
    probe = {"start_kind": "linear probe", "start_name": "in1k"}
    probes = [changed(r, **probe, macs=400_012 if r.model == "b" else r.cost.macs) for r in both()]
    for results in (probes, [changed(r, budget="1e+12 flops") for r in probes]):
        (found,) = [one for one in caveats(results) if one.kind is CaveatKind.UNEQUAL_COMPUTE]
        assert "4 times the compute" in found.text and found.text.startswith("For a prediction, ")
        assert found.severity is CaveatSeverity.WEAKENS


def test_worst_caveat_is_first_also_where_one_is_added():
    results = [changed(r, trials=None) for r in both(2, recipe={})]
    severities = [one.severity for one in caveats(results)]
    assert severities == sorted(severities, reverse=True) and len({*severities}) == 3
    analysis = analyze(results)
    with pytest.raises(InputError, match="some are scored on test images, others on validation images"):
        analyze(both(scored_on="validation"))
    added = analysis.with_caveat(Caveat(CaveatKind.PREDICTIONS_UNREADABLE, "X.", CaveatSeverity.INVALIDATES))
    assert added.warnings()[0] == "X."
    assert sum(caveat.severity >= CaveatSeverity.BLOCKS for caveat in added.caveats) == 2


def test_equal_steps_at_all_sizes_do_not_separate_images_from_epochs():
    results = [changed(r, steps=400, images_processed=4000, training_images=r.train_size) for r in both()]
    (found,) = caveats(results)
    assert "the same steps (571 epochs with 7 images, 364 with 11)" in found.text
    assert caveats([r for r in results if r.train_size == 11]) == []
    probes = [changed(r, start_kind="linear probe", steps=r.train_size, run=f"probe-{r.run}") for r in results]
    assert caveats(probes) == []
    probes = [changed(r, model=f"probe_{r.model}") for r in probes]
    assert caveats([*results, *probes]) == [found]
