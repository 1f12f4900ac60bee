"""The answer in words: heading, table, recommendation, more images, and more training."""

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.analysis.tables import PLAN, budget_grid, law_table, seeded, with_predictions
from tests.results import changed
from vit_vs_cnn.analysis.analysis import analyze
from vit_vs_cnn.analysis.answer import describe_comparison, format_margin, write_answer
from vit_vs_cnn.api import load_experiment
from vit_vs_cnn.commands import COMMANDS
from vit_vs_cnn.experiments.analysis_plan import AnalysisPlan
from vit_vs_cnn.runs.record import Answers

FOUR_TIMES = {("resnet", 100): 0.5, ("resnet", 400): 0.7, ("vit", 100): 0.4, ("vit", 400): 0.6}
SIZES = (500, 1000, 2000, 4000)
BETTER = law_table(SIZES, resnet=(0.5, 0.25, 0.0), vit=(0.5, 0.2, 0.0))
MODELS = {"resnet": {"architecture": {"name": "resnet8"}, "parameters": 75_290, "source": "cifar10"}}
MODELS["vit"] = {"architecture": {"name": "vit_nano"}, "parameters": 137_802, "source": "cifar10"}


def described(results):
    return [changed(r, **MODELS[r.model]) for r in results]


def answer(results, **options):
    return write_answer(analyze(described(results), **options))


def conclusion(gap, *, names=None, seeds=3, **options):
    results = seeded({"a": {7: 0.6}, "b": {7: 0.6 - gap}}, seeds=seeds, images=100_000, **options)
    return describe_comparison(analyze(results).comparisons[0], names)


def has(text: str, *facts: str) -> bool:
    """True if a text contains these facts in this order."""
    return re.search(".*".join(map(re.escape, facts)), text, re.DOTALL) is not None


def test_answer_has_a_heading_a_table_and_four_sentences():
    found = answer(seeded(BETTER, seeds=5, images=10_000))
    assert has(found.heading, "ResNet-8", "0.08M", "ViT nano", "0.14M", "CIFAR-10", "400 steps", "5 seeds")
    assert found.columns == ("training images", "ResNet", "ViT", "ResNet - ViT, points (95 % CI)", "")
    assert [row[0] for row in found.rows] == ["500", "1,000", "2,000", "4,000"]
    assert all(row[-1] == "significant" for row in found.rows)
    assert "train the ResNet" in found.recommendation
    assert has(found.more_images, "no crossover", "500 and 4,000", "8,000")
    assert "--name longer-800 --protocol.budget.steps 800" in found.more_training
    lines = str(found).splitlines()
    assert lines[0] == found.heading and max(map(len, lines)) <= 118
    labels = [line.partition(":")[0] for line in lines[1:] if line[:1].isalpha()]
    assert labels == ["Recommendation", "More images", "More training", "Few labels"]


def test_rows_have_the_accuracies_and_the_difference_of_the_comparison():
    results = described(seeded({"vit": {7: 0.5, 11: 0.61}, "resnet": {7: 0.7, 11: 0.6}}, seeds=3, spread=0.01))
    analysis = analyze([r for r in results if (r.model, r.train_size) != ("vit", 7)])
    (first, second), (comparison,) = write_answer(analysis).rows, analysis.comparisons
    assert (first[1], first[3:]) == ("-", ("", "not compared")) or (first[2], first[3:]) == ("-", ("", "not compared"))
    points = [point for point in analysis.accuracies if point.train_size == 11]
    assert {*second[1:3]} == {f"{100 * point.accuracy.value:.1f} %" for point in points}
    lead = comparison.lead
    assert second[3] == f"{100 * lead.value:+.1f} ({100 * lead.low:.1f} to {100 * lead.high:.1f})"
    assert second[4] == "not enough evidence"


def test_single_model_has_its_interval_and_no_recommendation():
    found = answer(seeded({"vit": {7: 0.5}}))
    assert found.columns == ("training images", "ViT", "95 % CI", "")
    assert found.recommendation.startswith("none")
    assert "--protocol.train_sizes '[1, 7]'" in found.more_images


def test_the_heading_counts_all_models_and_calls_user_data_your_images():
    table = {"vit": {7: 0.5}, "resnet": {7: 0.7}, "mine": {7: 0.3, 11: 0.4}}
    found = write_answer(analyze(seeded(table, source="folder", start_kind="unknown")))
    assert has(found.heading, "resnet", "vit", "your images", "2 of 3 models") and "mine" not in found.heading
    assert [row[0] for row in found.rows] == ["7"]  # the shown models have no runs with 11 images


def test_second_analysis_has_a_99_percent_interval():
    names = ("vit", "resnet")
    plan = replace(PLAN, models=names, train_sizes=(7,), size=7, pair=names, added_seeds=((3, 4),))
    found = answer(seeded({"vit": {7: 0.5}, "resnet": {7: 0.7}}, seeds=5), plan=plan)
    assert found.rows[0][3].endswith(", 99 % CI)")
    assert any(has(text, "second analysis", "1 %", "99 %") for text in found.warnings)


MACS = {"resnet": 400, "vit": 100}
TUNED = [changed(r, trials=12 if r.model == "vit" else 1) for r in seeded(BETTER)]
EQUAL = seeded({"resnet": {7: 0.6}, "vit": {7: 0.6}}, seeds=10, images=10**6, spread=0.0005)
ONLY_LONG = {("resnet", 400): 0.7, ("vit", 400): 0.6}


@pytest.mark.parametrize(
    ("results", "facts"),
    [
        (budget_grid(ONLY_LONG, macs=MACS), ("train the ResNet", "equal compute", "not shown to be better")),
        (budget_grid(FOUR_TIMES, macs=MACS), ("train the ResNet", "equal compute", "the ViT is better")),
        (budget_grid(FOUR_TIMES | {("resnet", 100): 0.6}, macs=MACS), ("equal compute", "not shown to be better")),
        (EQUAL, ("either", "less than 1.0 points")),
        ([changed(r, macs=48 if r.model == "resnet" else 12) for r in EQUAL], ("ViT", "4 times less compute")),
        (seeded(BETTER, seeds=2), ("no conclusion", "2 seeds", "at least 3", "--protocol.seeds '[0, 1, 2]'")),
        (TUNED, ("no conclusion", "unequal care", "resnet one trial", "vit best of 12 trials")),
    ],
    ids=["no short run", "worse", "equal", "equivalent", "cheaper", "two seeds", "unequal care"],
)
def test_recommendation_follows_from_the_comparison(results, facts):
    assert has(answer(results).recommendation, *facts)


@pytest.mark.parametrize(("counts", "remedy"), [((500, 500), "more training"), ((950, 50), "rare classes")])
def test_models_that_learned_nothing_have_no_recommendation(counts, remedy):
    share = max(counts) / 1000
    classes = Answers(np.array(counts, dtype=np.int64), {})
    found = answer(seeded({"resnet": {7: share}, "vit": {7: share}}, images=1000), answers=classes)
    assert has(found.recommendation, "none", "most frequent class", remedy)


@pytest.mark.parametrize(("counts", "is_stated"), [((500, 500), False), ((790, 210), False), ((950, 50), True)])
def test_the_balanced_accuracy_is_in_the_answer_if_a_class_has_four_times_the_images_of_another(counts, is_stated):
    """With class weights in the loss, the answer does not advise them."""
    results = seeded({"resnet": {7: 0.95}, "vit": {7: 0.95}}, images=1000)
    balanced = {r.run: 0.6 if r.model == "vit" else 0.55 for r in results}
    classes = Answers(np.array(counts, dtype=np.int64), {}, None, balanced)
    stated = "Balanced accuracy (mean of the accuracies of all classes) with 7 images:"
    found = answer([changed(r, recipe={**r.recipe, "class_weights": "balanced"}) for r in results], answers=classes)
    assert any(has(text, stated, "ResNet 55.0 %", "ViT 60.0 %") for text in found.further) == is_stated
    assert ("class_weights" in found.recommendation) is False
    assert ("class_weights" in answer(results, answers=classes).recommendation) == is_stated


@pytest.mark.parametrize(
    ("images", "accuracies", "facts"),
    [
        (10**6, (0.60, 0.62, 0.63, 0.61, 0.60, 0.60), ("To detect 1.3 points", "seeds")),
        (1000, (0.85, 0.85, 0.85, 0.80, 0.82, 0.84), ("1,000 test images", "80 %", "To detect 3.0 points")),
        (60, (0.99, 0.75, 0.93, 0.3, 0.95, 0.92), ("3 seeds and 60 test images", "even the largest")),
        (10**6, (0.602, 0.605, 0.608, 0.6, 0.6, 0.6), ("80 %", "measured difference is smaller")),
    ],
)
def test_missing_evidence_is_named(images, accuracies, facts):
    results = seeded({"resnet": {7: 0.5}, "vit": {7: 0.5}}, images=images)
    results = [changed(r, accuracy=accuracy) for r, accuracy in zip(results, accuracies, strict=True)]
    assert has(answer(results).recommendation, "not enough evidence", *facts)


def test_crossover_is_between_measured_sizes():
    results = seeded({"resnet": {500: 0.5, 1000: 0.55, 4000: 0.6}, "vit": {500: 0.4, 1000: 0.55, 4000: 0.7}})
    assert has(answer(results).more_images, "ViT overtakes the ResNet", "500 and 4,000")
    unclear = seeded({"resnet": {500: 0.5, 4000: 0.6}, "vit": {500: 0.5, 4000: 0.6}}, spread=0.02)
    assert has(answer(unclear).more_images, "not enough evidence", "500 and 4,000")
    equal = seeded({"resnet": {500: 0.5, 4000: 0.6}, "vit": {500: 0.5, 4000: 0.6}}, images=10**6, spread=0, seeds=9)
    assert has(answer(equal).more_images, "no crossover", "500 and 4,000")
    twice = seeded({"resnet": {500: 0.5, 1000: 0.5, 4000: 0.6}, "vit": {500: 0.4, 1000: 0.6, 4000: 0.5}})
    facts = ("ViT overtakes the ResNet", "500 and 1,000", "ResNet overtakes the ViT", "1,000 and 4,000")
    assert has(answer(twice).more_images, *facts)
    unfinished = [r for r in twice if r.model == "vit" or r.train_size == 1000]
    assert has(answer(unfinished).more_images, "1,000 images only")


def test_forecasts_of_models_with_different_largest_sizes_are_separate():
    more = law_table((*SIZES, 8000), vit=(0.5, 0.2, 0.0), resnet=(0.5, 0.25, 0.0))
    unfinished = [r for r in seeded(more) if (r.model, r.train_size) != ("vit", 8000)]
    assert has(answer(unfinished).more_images, "8,000 images: ViT ", "16,000 images: ResNet ")


@pytest.mark.parametrize(("epochs", "twice"), [("0.2", "0.4"), ("1.5", "3"), ("2e+06", "4000000")])
def test_suggested_longer_budget_is_twice_the_epochs(epochs, twice):
    results = [changed(r, budget=f"{epochs} epochs") for r in seeded(BETTER)]
    assert f"--name longer-{twice} --protocol.budget.epochs {twice})" in answer(results).more_training


@pytest.mark.parametrize(("late", "is_changed"), [(0.6, False), (0.75, True)])
def test_more_training_has_gains_and_the_change_of_the_difference(late, is_changed):
    text = answer(budget_grid(FOUR_TIMES | {("vit", 400): late})).more_training
    assert has(text, "4 times", "100 steps to 400 steps", "ResNet gained 20.0 points")
    assert f"ViT gained {100 * (late - 0.4):.1f} points" in text
    assert ("difference changed by -15" in text or "difference changed by +15" in text) == is_changed
    results = budget_grid(FOUR_TIMES | {("vit", 400): late})  # a terminal shows the options in one line
    assert " (--name longer-1600 --protocol.budget.steps '[100, 400, 1600]')." in str(answer(results))
    larger = [changed(r, train_size=2018, run=f"{r.run}-n2018") for r in results if r.model == "vit"]
    assert answer([*results, *larger]).more_training == text  # the ResNet is not finished with 2,018 images


@pytest.mark.parametrize(
    ("short", "facts"),
    [(0.68, ("also", "+8.0 (")), (0.6, ("not significant", "+0.0 (")), (0.5, ("reversed", "-10.0 ("))],
)
def test_difference_at_equal_compute_is_in_the_row(short, facts):
    found = answer(budget_grid(FOUR_TIMES | {("resnet", 100): short}, macs=MACS))
    assert found.rows[0][-1].startswith("significant, " + " at equal compute: ".join(facts))


def test_too_few_seeds_are_stated_once():
    found = answer(seeded(BETTER, seeds=2))
    assert found.alerts == ()
    assert str(found).count("2 seeds were run") == 1 and "2 seeds were run" in found.recommendation
    assert found.warnings == ()
    partly = answer([r for r in seeded(BETTER, seeds=3) if (r.train_size, r.seed) != (500, 2)])
    assert has(" ".join(partly.warnings), "fewer than 3 seeds with 500 images")
    assert "seeds" not in partly.recommendation


def test_planned_seeds_that_are_missing_are_finished_by_the_same_command():
    plan = replace(PLAN, models=("vit", "resnet"), train_sizes=(7,), size=7, pair=("vit", "resnet"))
    found = answer(seeded(BETTER, seeds=1), plan=plan)
    facts = ("no conclusion: 1 of the 3 planned seeds", "same command again", "other test images only")
    assert has(found.recommendation, *facts)
    assert found.alerts == () and "--protocol.seeds" not in str(found)


@pytest.mark.parametrize(("seeds", "opening"), [(3, "not enough evidence"), (1, "train longer first. ")])
def test_more_training_is_recommended_before_more_seeds_if_there_were_few_epochs(seeds, opening):
    few = {"training_images": 1009, "images_processed": 656, "budget": "41 steps", "steps": 41}
    hardly = seeded({"vit": {1009: 0.40}, "resnet": {1009: 0.42}}, seeds=seeds, spread=0.02, **few)
    found = answer(hardly)
    assert found.recommendation.startswith(opening)
    for fact in ("rain longer first", "training had only 0.65 epochs", "--name longer-630"):
        assert fact in found.recommendation
    assert "seeds in total" not in str(found) and str(found).count("0.65 epochs") == 1
    assert "longer first" not in str(answer([changed(r, images_processed=6560) for r in hardly]))
    decided = answer(seeded({"vit": {1009: 0.40}, "resnet": {1009: 0.52}}, seeds=3, **few))
    assert has(" ".join(decided.warnings), "only 0.65 epochs") and "longer first" not in decided.recommendation


def test_hardly_trained_models_have_no_forecast_but_the_reason():
    table = {name: {size: 0.5 + 0.01 * n for n, size in enumerate((50, 101, 211, 409))} for name in ("vit", "resnet")}
    results = seeded(table, training_images=409, images_processed=300)
    found = answer(results)
    assert found.more_images.count("No forecast for the ") == 1 and "Forecast for" not in found.more_images
    assert found.more_images.endswith(": training had only 0.73 epochs with 409 images.")
    trained = [changed(r, images_processed=3000) for r in results]
    assert "Forecast for 818 images" in answer(trained).more_images
    trained, correct = with_predictions(trained)
    chance = Answers(np.array([537, 472]), {}, correct)
    assert has(write_answer(analyze(trained, chance)).more_images, "with 409 images", "not clearly better than always")


def test_worst_caveats_are_warnings_and_obstacles_to_all_conclusions_come_first():
    results = seeded(BETTER, seeds=2)
    results = [changed(r, recipe={"augmentation": {"flip": False}}) if r.model == "vit" else r for r in results]
    found = answer(results)
    (warning,) = found.warnings
    assert has(warning, "Augmentation differs", "ResNet", "ViT", "'flip': False")
    assert "Warning:        Augmentation differs" in str(found)
    unequal = [changed(r, recipe_source="fallback" if r.model == "vit" else "recommended") for r in seeded(BETTER)]
    text = str(answer(unequal)).replace("\n", " ")
    sizes = ", ".join(f"{size:,}" for size in SIZES)
    assert has(text, f"With {sizes} images", "unequal care", "vit generic fallback", "no conclusion", "Recommendation")
    assert answer(seeded(BETTER)).alerts == ()


@pytest.mark.parametrize(
    ("models", "source", "title"),
    [
        (["vit"], "cifar10", "ViT on CIFAR-10"),
        (["vit", "resnet"], "cifar10", "ResNet or ViT on CIFAR-10?"),
        (["vit", "resnet", "vit_tuned"], "folder", "ResNet, ViT or ViT-tuned on your images?"),
        (["vit_pretrained"], "folder", "Pretrained ViT on your images"),
        (["my_model"], "folder", "my_model on your images"),
        ([*"abcd"], None, "Which of 4 models?"),
    ],
)
def test_title_asks_which_model(models, source, title):
    assert write_answer(analyze(seeded({model: {7: 0.5} for model in models}, source=source))).title == title


def test_primary_comparison_and_number_of_others_are_in_the_answer_if_the_table_does_not_show_them():
    gaps = zip("abcd", (0, 0.001, 0.1, 0.2), strict=True)
    plan = AnalysisPlan((0, 1, 2), tuple("abcd"), (100, 400), 400, ("a", "c"), 1.0)
    found = write_answer(analyze(seeded({name: {100: 0.5 + gap, 400: 0.6 + gap} for name, gap in gaps}), plan=plan))
    primary, others = found.further
    assert has(primary, "400 images", "c is 10.", "primary comparison", "significantly better")
    assert "9 more comparisons" in others
    assert str(found).index(others) < str(found).index("Recommendation:")
    assert write_answer(analyze(seeded({"a": {50: 0.5, 90: 0.6}, "b": {50: 0.6, 90: 0.7}}))).further == ()


def test_comparison_is_a_sentence_with_its_interval_test_and_conclusion():
    assert has(conclusion(0.1), "a is 10.", "b (95 % CI", "p ", "primary comparison", "significantly better")
    assert conclusion(0.1, names={"a": "ViT"}).startswith("ViT is 10.")
    assert has(conclusion(-0.035, spread=0.05), "not enough evidence", "minimum detectable difference")
    assert has(conclusion(0.0, seeds=10, spread=0.0002), "equivalent within 1.0 points")
    assert has(conclusion(0.1, seeds=1), "no conclusion", "1 seed", "at least 3")
    same = [changed(r, accuracy=0.5) for r in seeded({"a": {7: 0.5}, "b": {7: 0.5}})]
    assert has(describe_comparison(analyze(same).comparisons[0]), "equally accurate", "95 % CI")


def test_adjusted_p_values_are_marked():
    results = seeded({name: {7: accuracy} for name, accuracy in zip("abc", (0.6, 0.5, 0.4), strict=True)})
    comparison, *_ = analyze(results).comparisons
    assert has(describe_comparison(comparison), "p < 0.0001", "adjusted for 3 comparisons", "significantly better")
    few, *_ = analyze([r for r in results if r.seed < 2]).comparisons
    assert "adjusted" not in describe_comparison(few)  # without a conclusion the p-value is unadjusted


def test_margin_is_printed_with_all_digits():
    margins = {0.01: "1.0 points", 0.0025: "0.25 points", 0.0004: "0.04 points"}
    assert {margin: format_margin(margin) for margin in margins} == margins


PAIRS = (("vit_finetuned", "cnn_finetuned"), ("vit", "resnet"), ("cnn_finetuned", "resnet"))


@pytest.mark.parametrize(
    ("vit", "images", "facts"),
    [
        (0.8, 10_000, ("fine-tuned ViT", "14.1 points lower", "(significant)")),
        (0.93, 100, ("fine-tuned ViT", "1.1 points lower", "(not significant)")),
        (0.941, 10**7, ("fine-tuned ViT", "equally good", "less than 1.0 points")),
    ],
)
def test_best_of_all_starts_is_recommended_and_whether_its_counterpart_differs_is_stated(vit, images, facts):
    start = {"start_kind": "fine-tuned", "architecture": {"name": "timm/convnext_pico"}}
    tuned = seeded({"cnn_finetuned": {500: 0.941}, "vit_finetuned": {500: vit}}, images=images, spread=0.0001, **start)
    tuned[3:] = [changed(r, architecture={"name": "timm/vit_tiny"}) for r in tuned[3:]]
    scratch = seeded({"resnet": {500: 0.61}, "vit": {500: 0.5}}, images=images, start_kind="from scratch")
    names = ("cnn_finetuned", "resnet", "vit", "vit_finetuned")
    plan = AnalysisPlan((0, 1, 2), names, (500,), 500, PAIRS[0], 1.0, pairs=PAIRS)
    found = write_answer(analyze([*tuned, *scratch], plan=plan))
    from_scratch = ("from scratch", "ResNet", "61.0 %", "significantly lower")
    assert has(found.recommendation, "fine-tune timm/convnext_pico", "94.1 %", *facts, *from_scratch)
    assert ("With 3 seeds and 100 test images" in found.recommendation) == (vit == 0.93)
    assert found.columns[1:5] == ("fine-tuned CNN", "fine-tuned ViT", "ResNet", "first - second, points (95 % CI)")
    assert found.rows[0][1] == "94.1 %" and found.rows[0][3] == "61.0 %"


def test_a_recommended_model_is_named_by_its_teacher_or_in_the_config_if_another_model_has_its_network_and_start():
    def recommendation(**values):
        table = {"resnet_tuned": {500: 0.8}, "resnet": {500: 0.7}, "vit": {500: 0.6}}
        results = [changed(r, **MODELS[r.model.partition("_")[0]]) for r in seeded(table, start_kind="from scratch")]
        results[:3] = [changed(r, **values) for r in results[:3]]
        probes = seeded({"vit_probe": {500: 0.5}}, start_kind="linear probe", start_name="a.pt")
        return write_answer(analyze([*results, *probes])).recommendation

    assert recommendation().startswith("train ResNet-tuned (80.0 %)")
    assert recommendation(teacher="resnet").startswith("train ResNet-8 from scratch, taught by resnet (80.0 %)")


def test_a_resnet_far_ahead_with_few_photographs_proposes_the_recorded_remedy_with_options_that_can_be_read():
    def proposal(accuracies, sizes=(2_000,), **values):
        table = {model: dict.fromkeys(sizes, value) for model, value in accuracies.items()}
        results = [changed(r, **values) for r in described(seeded(table, images=10_000))]
        return write_answer(analyze(results)).few_labels

    text = proposal({"resnet": 0.7, "vit": 0.5})
    assert has(text, "reduced the lead of a ResNet over a ViT", "To try it with the ViT, add to your command: ")
    printed = str(answer(seeded({"resnet": {2_000: 0.7}, "vit": {2_000: 0.5}}, images=10_000)))
    assert text in " ".join(printed.split())
    options = " ".join(re.findall(r"--data.unlabelled \w+|--name .*", text))
    _, _, overrides = COMMANDS["train"].read(options.split())
    experiment = load_experiment("quickstart", overrides)
    vit = experiment.models["vit"]
    assert (vit.pretrain.steps, vit.distill.teacher, experiment.data.unlabelled) == (3200, "resnet", "rest")
    assert experiment.name == "few_labels"
    assert "--data.unlabelled FOLDER" in proposal({"resnet": 0.7, "vit": 0.5}, source="folder")
    assert proposal({"resnet": 0.7, "vit": 0.63}) == ""
    assert proposal({"resnet": 0.5, "vit": 0.7}) == ""
    assert proposal({"resnet": 0.7, "vit": 0.5}, sizes=(2_000, 50_000)) == ""
    assert proposal({"resnet": 0.7, "vit": 0.5}, source="synthetic") == ""
    assert proposal({"resnet": 0.7, "vit": 0.5}, start_kind="fine-tuned", start_name="in1k") == ""


def test_missing_weights_come_first_with_the_command_that_fetches_them():
    plan = replace(PLAN, missing_weights=(("vit_pretrained", "timm/deit"), ("cnn_pretrained", "timm/convnext")))
    results = seeded({"a": {7: 0.5, 11: 0.5}, "b": {7: 0.6, 11: 0.7}})
    first, missing, _, *commands, option = write_answer(analyze(results, plan=plan)).missing_weights
    assert "pretrained" in first
    assert has(missing, "timm/deit", "timm/convnext")
    assert commands == [f"hf download {name} model.safetensors" for name in ("timm/deit", "timm/convnext")]
    assert "=FILE --models.cnn_pretrained timm/" in option


def test_linear_probes_have_no_steps_and_unequal_compute_of_predictions_only():
    probes = seeded({"cnn": {7: 0.8}, "vit": {7: 0.6}}, start_kind="linear probe", start_name="in1k")
    probes = [changed(r, macs=100 if r.model == "vit" else 10) for r in probes]
    found = write_answer(analyze([*probes, *seeded({"other": {7: 0.5}}, start_kind="from scratch")]))
    assert found.heading.endswith("linear probe of in1k, 3 seeds")
    assert has(found.more_training, "no training steps", "Other models", "--name longer")
    assert ["For a prediction" in text for text in found.warnings if "compute" in text] == [True]
    assert found.rows[0][-1] == "significant"
    results = [*probes, *seeded({"other": {7: 0.5}})]
    several = [changed(r, budget=f"{n} steps", steps=n, run=f"{r.run}-{n}") for n in (10, 40) for r in results]
    text = write_answer(analyze(several)).more_training
    assert has(text, "no training steps", "Other models", "see the report")
