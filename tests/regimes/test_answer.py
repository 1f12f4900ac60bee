"""The two sentences, in all their variants."""

import re

import pytest

from tests.regimes.tables import law_table, published, seeded
from vit_vs_cnn.regimes import analyse, answer, headline

SIZES = (500, 1000, 2000, 4000)
CNN = (0.5, 0.25, 0.0)
NEVER = {"resnet": CNN, "vit": (0.5, 0.2, 0.0)}
CROSSING = {"resnet": (0.5, 0.15, 0.0), "vit": (0.5 + 0.15 * 7.313, 0.3, 0.0)}  # at 1,500


def answered(laws, *, sizes=SIZES, seeds=5, images=10_000, own_images=False, names=None, **changes):
    results = seeded(law_table(sizes, **laws), seeds=seeds, images=images, **changes)
    return answer(analyse(results, resamples=500), own_images=own_images, names=names)


def test_ahead_without_a_crossing_tells_the_lead_and_the_multiplier():
    text = answered(NEVER, own_images=True)
    first, second = text.split(". ")
    assert re.fullmatch(r"With your 4,000 images the ResNet is ahead by \d+\.\d points \(\d+\.\d to \d+\.\d\)", first)
    assert re.fullmatch(
        r"No crossing up to 4,000; the ViT needs about \d\.\d times the data \(\d\.\d to \d\.\d\): "
        r"its 4,000 images do what about [\d,]+ do for the ResNet\.",
        second,
    )


def test_a_crossing_is_told_with_its_interval():
    text = answered(CROSSING)
    assert text.startswith("With 4,000 images the ViT is ahead by ")
    found = re.search(r"\. The ViT overtakes the ResNet at about (1,500) images \((.+) to (.+)\)\.$", text)
    assert found
    size, low, high = (float(number.replace(",", "")) for number in found.groups())
    assert 1000 < low < size < high < 2000


def test_no_difference_is_said_to_be_not_shown():
    text = answered({"resnet": CNN, "vit": CNN}, spread=0.005)
    assert "With 4,000 images no difference is shown: the " in text
    assert " is open: it does in " in text


def test_one_seed_describes_networks_and_two_describe_runs():
    assert "which is no verdict: one seed describes these networks only." in answered(NEVER, seeds=1)
    assert "which is no verdict: 2 seeds describe these runs only." in answered(NEVER, seeds=2)
    assert "In these runs the ViT overtakes the ResNet" in answered(CROSSING, seeds=1)


def test_unequal_trials_are_the_reason_for_no_verdict():
    results = seeded(law_table(SIZES, **NEVER), images=10_000)
    results = [r | {"trials": 12 if r["contender"] == "vit" else 1} for r in results]
    text = answer(analyse(results, resamples=300))
    assert "which is no verdict: their recipes had unequal trials (1, 12)." in text


def test_a_single_size_says_nothing_of_more_images():
    assert answered(NEVER, sizes=(4000,)).endswith(
        "Only one size was run, so nothing is said of what more images would change."
    )


def test_a_multiplier_beyond_the_range_is_more_than():
    far = {"resnet": (-1.0, 0.2, 0.0), "vit": (0.2, 0.1, 0.0)}
    assert answered(far).endswith("the ViT needs more than 8 times the data, beyond what was measured.")


def test_of_several_contenders_the_best_is_set_against_the_next():
    analysis = analyse(published("CNN 4.9M", "ViT 5.0M", "CCT 5.3M"), resamples=300)
    pair = headline(analysis)
    assert pair is not None
    assert (pair.ahead, pair.behind) == ("CNN 4.9M", "CCT 5.3M")
    text = answered({"a": (0.5, 0.3, 0.0), "b": (0.5, 0.2, 0.0), "c": (0.5, 0.1, 0.0)})
    assert "the a is ahead, by " in text and " points over the b, the next of 3 (" in text


def test_the_published_pair_is_answered_without_a_verdict():
    text = answer(analyse(published("CNN 4.9M", "ViT 5.0M"), resamples=500))
    assert text.startswith("With 50,000 images the CNN 4.9M came out 9.1 points above the ViT 5.0M (8.")
    assert "No crossing up to 50,000; the ViT 5.0M needs about 5.8 times the data (" in text


def test_an_early_lead_that_is_not_shown_is_not_called_a_crossing():
    table = {"a": {100: 0.110, 1000: 0.3, 4000: 0.5}, "b": {100: 0.1, 1000: 0.4, 4000: 0.7}}
    text = answer(analyse(seeded(table, images=500, spread=0.01), resamples=500))
    assert "The b is ahead from about 1" in text
    assert "whether the order is another with fewer is not shown" in text


def test_contenders_are_called_what_the_reader_calls_them():
    assert "the plain one is ahead" in answered(NEVER, names={"resnet": "plain one"})


@pytest.mark.parametrize(
    ("results", "why"),
    [
        (seeded({"vit": {7: 0.5}}), "there is one contender"),
        (seeded({"vit": {7: 0.5}, "resnet": {11: 0.5}}), "no two contenders share a size and a seed"),
    ],
)
def test_where_nothing_can_be_compared_that_is_said(results, why):
    assert answer(analyse(results, resamples=100)).endswith(f"Nothing is compared: {why}.")
