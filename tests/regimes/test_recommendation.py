"""What to do, in plain words, in all its variants."""

import re

import pytest

from tests.regimes.tables import RISING, law_table, seeded, validated
from tests.regimes.test_budgets import FOUR_TIMES, grid
from tests.results import changed
from vit_vs_cnn.regimes import analyse
from vit_vs_cnn.regimes.recommendation import recommendation

TABLE = law_table((500, 4000), resnet=(0.5, 0.25, 0.0), vit=(0.5, 0.2, 0.0))
ALIKE = law_table((500, 4000), resnet=(0.5, 0.25, 0.0), vit=(0.5, 0.25, 0.0))


def told(results):
    return recommendation(analyse(results, resamples=50))


def test_a_network_is_named_where_it_is_ahead_by_a_verdict():
    assert told(validated(seeded(TABLE, seeds=5, images=10_000))) == "Train the ResNet."


def test_a_budget_that_was_too_short_is_said_with_it():
    text = told(validated(seeded(TABLE, seeds=5, images=10_000), RISING))
    assert text.startswith("Train the ResNet. But the ResNet and the ViT were still improving when the budget ended")


def test_a_lead_at_equal_steps_alone_is_no_recommendation():
    unknown = grid({("resnet", 400): 0.7, ("vit", 400): 0.6})
    assert told(unknown) == "Train the ResNet if its compute does not matter; at equal compute nothing is decided."
    assert told(FOUR_TIMES) == "Choose by what you pay for: by steps the ResNet is ahead, by compute the ViT."


def test_equals_are_told_apart_by_what_they_cost():
    macs = {"resnet": 48_000_000, "vit": 12_000_000}
    runs = seeded(ALIKE, seeds=10, images=1_000_000, spread=0.0005)
    text = told([changed(r, macs=macs[r.contender]) for r in runs])
    assert text.startswith("Either will do: the ")
    assert text.endswith("For an image the ViT takes 4 times fewer multiply-accumulates.")


def test_what_is_not_shown_is_not_recommended():
    text = told(seeded(ALIKE, seeds=3, images=1009, spread=0.02))
    assert re.match(
        r"No recommendation: there is not enough evidence that the \w+ or the \w+ is better. "
        r"To find out, plan more seeds under another --name \(a gap of ",
        text,
    )


def test_a_large_difference_without_evidence_is_not_called_a_free_choice():
    one, other = seeded({"resnet": {240: 0.917}}, images=60), seeded({"vit": {240: 0.706}}, images=60)
    text = told([*one, *(changed(r, accuracy=a) for r, a in zip(other, (0.826, 0.606, 0.686), strict=True))])
    assert text.startswith("No recommendation: there is not enough evidence that the ResNet or the ViT is better.")
    assert "suits" not in text and "either" not in text.lower()


def test_where_images_leave_it_open_more_of_these_are_advised():
    text = told(seeded(ALIKE, seeds=3, images=37, spread=0.001))
    assert "To find out, score on more images, as it is these and not the seeds" in text


def test_of_three_it_says_which_two_are_level_and_who_is_behind_both():
    others = {"vit": {500: 0.8}, "resnet": {500: 0.8}, "windows": {500: 0.4}}
    text = told(seeded(others, seeds=5, images=10_000, spread=0.02))
    assert text.startswith("No recommendation: there is not enough evidence that the ")
    assert text.endswith("). Both are ahead of the windows.")
    level = {**others, "windows": {500: 0.79}}
    assert "Both are" not in told(seeded(level, seeds=5, images=10_000, spread=0.02))


def test_networks_that_learned_nothing_are_not_for_choosing():
    def of(accuracy):
        runs = seeded({"vit": {500: 0.5}, "resnet": {500: 0.5}}, seeds=4, images=1000, spread=0.002)
        runs[-1] = changed(runs[-1], accuracy=accuracy)
        return recommendation(analyse(runs, majority=0.5, resamples=50))

    told = "No recommendation: with 500 images neither of these networks is shown to be better than always naming"
    assert of(0.501).startswith(told)
    below = seeded({"vit": {500: 0.05}, "resnet": {500: 0.95}}, seeds=4, images=1000, spread=0.001)
    assert recommendation(analyse(below, majority=0.95, resamples=50)).startswith(told)  # who is ahead learned nothing
    assert of(0.7).startswith("No recommendation: there is not enough evidence")


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_seeds_are_asked_for(seeds):
    text = told(seeded(TABLE, seeds=seeds))
    assert text.startswith("No recommendation yet: ")
    assert text.endswith("3 seeds allow a verdict (--protocol.seeds '[0, 1, 2]').")


def test_unfair_runs_and_single_contenders_have_none():
    unequal = [changed(r, trials=12 if r.contender == "vit" else 1) for r in seeded(TABLE)]
    assert told(unequal) == "No recommendation: their recipes had unequal trials (1, 12)."
    assert told(seeded({"vit": {7: 0.5}})) == "No recommendation: nothing is compared."
