"""The two sentences, in all their variants."""

import re

import pytest

from tests.regimes.tables import RISING, SETTLED, law_table, published, seeded, validated
from tests.results import changed
from vit_vs_cnn.regimes import analyse, answer, failures_line, headline
from vit_vs_cnn.regimes.networks import model_name

SIZES = (500, 1000, 2000, 4000)
CNN = (0.5, 0.25, 0.0)
NEVER = {"resnet": CNN, "vit": (0.5, 0.2, 0.0)}
CROSSING = {"resnet": (0.5, 0.15, 0.0), "vit": (0.5 + 0.15 * 7.313, 0.3, 0.0)}  # at 1,500


def answered(laws, *, sizes=SIZES, seeds=5, images=10_000, own_images=False, **values):
    """The answer after what was compared."""
    results = validated(seeded(law_table(sizes, **laws), seeds=seeds, images=images, **values))
    return answer(analyse(results, resamples=500), own_images=own_images).partition(", 400 steps each: ")[2]


def test_ahead_without_a_crossing_tells_the_lead_and_the_multiplier():
    text = answered(NEVER, own_images=True)
    first, second = text.split(". ")
    assert re.fullmatch(r"with your 4,000 images the ResNet is ahead by \d+\.\d points \(\d+\.\d to \d+\.\d\)", first)
    assert re.fullmatch(
        r"No crossing up to 4,000; for what the ResNet does with [\d,]+ images the ViT needs about \d\.\d times as "
        r"many \(\d\.\d to \d\.\d\)\.",
        second,
    )


def test_a_crossing_is_told_with_its_interval():
    text = answered(CROSSING)
    assert text.startswith("with 4,000 images the ViT is ahead by ")
    found = re.search(r"\. The ViT overtakes the ResNet at about (1,500) images \((.+) to (.+)\)\.$", text)
    assert found
    size, low, high = (float(number.replace(",", "")) for number in found.groups())
    assert 1000 < low < size < high < 2000


def test_no_difference_is_said_to_be_not_shown():
    text = answered({"resnet": CNN, "vit": CNN}, spread=0.005)
    assert text.startswith("with 4,000 images no difference is shown: the ")
    assert " is open: it does in " in text


def test_one_seed_describes_networks_and_two_describe_runs():
    assert "which is no verdict: one seed describes these networks only." in answered(NEVER, seeds=1)
    assert "which is no verdict: 2 seeds describe these runs only." in answered(NEVER, seeds=2)
    assert "In these runs the ViT overtakes the ResNet" in answered(CROSSING, seeds=1)


def test_unequal_trials_are_the_reason_for_no_verdict():
    results = seeded(law_table(SIZES, **NEVER), images=10_000)
    results = [changed(r, trials=12 if r.contender == "vit" else 1) for r in results]
    text = answer(analyse(results, resamples=300))
    assert "which is no verdict: their recipes had unequal trials (1, 12)." in text


def test_a_single_size_says_nothing_of_more_images():
    assert answered(NEVER, sizes=(4000,)).endswith(
        "Only one size was run, so nothing is said of what more images would change."
    )


def test_a_multiplier_beyond_the_range_is_more_than():
    far = {"resnet": (-1.0, 0.2, 0.0), "vit": (0.2, 0.1, 0.0)}
    assert answered(far).endswith(
        "for what the ResNet does with 500 images the ViT needs more than 8 times as many, beyond what was measured."
    )


def test_of_several_contenders_the_best_is_set_against_the_next():
    analysis = analyse(published("CNN 4.9M", "ViT 5.0M", "CCT 5.3M"), resamples=300)
    pair = headline(analysis)
    assert pair is not None
    assert (pair.ahead, pair.behind) == ("CNN 4.9M", "CCT 5.3M")
    text = answered({"a": (0.5, 0.3, 0.0), "b": (0.5, 0.2, 0.0), "c": (0.5, 0.1, 0.0)})
    assert "the a is ahead, by " in text and " points over the b, the next of 3 (" in text


def test_the_published_pair_is_answered_without_a_verdict():
    text = answer(analyse(published("CNN 4.9M", "ViT 5.0M"), resamples=500))
    assert "with 50,000 images the CNN 4.9M came out 9.1 points above the ViT 5.0M (8." in text
    assert "No crossing up to 50,000; not known whether the budget limits it: no multiplier (no validation" in text


def test_an_early_lead_that_is_not_shown_is_not_called_a_crossing():
    table = {"a": {100: 0.110, 1000: 0.3, 4000: 0.5}, "b": {100: 0.1, 1000: 0.4, 4000: 0.7}}
    text = answer(analyse(seeded(table, images=500, spread=0.01), resamples=500))
    assert "The b is ahead from about 1" in text
    assert "whether the order is another with fewer is not shown" in text


@pytest.mark.parametrize(
    ("results", "why"),
    [
        (seeded({"vit": {7: 0.5}}), "there is one contender"),
        (seeded({"vit": {7: 0.5}, "resnet": {11: 0.5}}), "no two contenders share a size and a seed"),
    ],
)
def test_where_nothing_can_be_compared_that_is_said(results, why):
    assert answer(analyse(results, resamples=100)).endswith(f"Nothing is compared: {why}.")


NANO = {
    "resnet": {"model": {"name": "resnet8"}, "parameters": 75_290, "macs": 12_239_488},
    "vit": {"model": {"name": "vit_nano", "position": "sincos"}, "parameters": 141_898, "macs": 10_683_008},
}


def described(accuracies=SETTLED, macs=None, **values):
    results = validated(seeded(law_table(SIZES, **NEVER), seeds=5, images=10_000), accuracies)
    results = [changed(r, **NANO[r.contender], **values) for r in results]
    results = [changed(r, macs=(macs or {}).get(r.contender, r.cost.macs)) for r in results]
    return answer(analyse(results, resamples=300))


def test_the_answer_names_what_was_compared():
    told = "A 0.08M ResNet-8 against a 0.14M ViT nano, both from scratch, 400 steps each: with 4,000 images the ResNet"
    assert described().startswith(f"{told} is ahead by ")
    epochs = described(budget="20.0 epochs")
    assert ", 20 epochs each: with" in epochs
    started = described(start_kind="continued", start_name="resnet-n4000-s0")
    assert "both starting from resnet-n4000-s0, 400 steps" in started


def test_networks_of_one_model_are_told_by_their_contender_as_it_is_spelled():
    table = law_table(SIZES, rotary=NEVER["resnet"], none=NEVER["vit"])
    told = answer(analyse(seeded(table, images=10_000, **NANO["vit"]), resamples=100))
    assert told.startswith("rotary (a 0.14M ViT nano) against none (a 0.14M ViT nano), both from scratch, 400 steps")
    assert "with 4,000 images the rotary is ahead" in told


@pytest.mark.parametrize(
    ("macs", "says"),
    [
        (
            {"resnet": 48_955_648, "vit": 11_300_000},
            ") at equal steps, with 4.3 times the training FLOPs, which is no verdict: at equal training",
        ),
        (
            {"resnet": 11_300_000, "vit": 48_955_648},
            ") at equal steps, and the ViT had 4.3 times the training FLOPs.",
        ),
        ({"resnet": 12_500_000, "vit": 10_000_000}, ""),
    ],
    ids=["the larger ahead", "the smaller ahead", "equal"],
)
def test_a_lead_is_said_with_the_compute_that_it_took(macs, says):
    told = described(macs=macs)
    assert says in told if says else "FLOPs" not in told
    assert ("is ahead by" in told) is ("no verdict" not in says)


def test_a_network_that_still_improves_takes_the_multiplier_and_the_budget_that_would_settle_it_is_named():
    told = described(RISING)
    assert "; budget-limited: no multiplier, as the " in told
    assert re.search(r"still gained 12\.5 points \(standard error 0\.\d\) in its last quarter at n = 4,000", told)
    assert told.endswith(
        "twice the steps (--protocol.budget.steps 800) would settle it if its last quarter gives less than 2 points."
    )


def _failures(seeds=3, last=None):
    results = seeded(law_table(SIZES, **NEVER), seeds=seeds, images=10_000)
    if last is not None:
        results[-1] = changed(results[-1], accuracy=last)
    return failures_line(analyse(results, majority=0.1, resamples=50))


def test_a_verdict_tells_which_failure_rates_its_seeds_leave_open():
    told = "None of the runs with 4,000 images failed; 3 seeds of each rule out only failure rates above 63 %."
    assert _failures() == told
    assert _failures(seeds=10) == told.replace("3 seeds", "10 seeds").replace("63", "26")
    assert _failures(seeds=2) is None  # no verdict
    assert _failures(last=0.1) is None  # a run of the largest size failed
    assert failures_line(analyse(published("CNN 4.9M", "ViT 5.0M"), resamples=50)) is None


def test_a_model_is_called_as_papers_call_it():
    told = {"cct_7_3x1": "CCT-7/3x1", "vit_nano": "ViT nano", "resnet18_w32": "ResNet-18 w32", "timm/a_b": "timm/a_b"}
    assert {name: model_name({"name": name}) for name in told} == told


def test_a_contender_that_is_ahead_with_its_runs_is_compared_where_both_are():
    results = seeded({"vit": {500: 0.5, 900: 0.6}, "resnet": {500: 0.7}})
    analysis = analyse(results, resamples=50)
    assert (headline(analysis).ahead, headline(analysis).at_largest.size) == ("resnet", 500)
    assert ": with 500 images" in answer(analysis)
