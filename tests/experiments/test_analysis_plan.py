"""The analysis plan: settings fixed in advance, analyzed seeds, and changes of the plan."""

import dataclasses
import json

import pytest

from tests.experiments.tiny import tiny_experiment
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.experiments.analysis_plan import (
    FILE_NAME,
    AnalysisPlan,
    Deviation,
    _with_changes,
    make_analysis_plan,
    read_plan,
    register_plan,
)
from vit_vs_cnn.statistics.caveats import Caveat, CaveatKind

PLAN = AnalysisPlan((0, 1, 2), ("a", "b", "c"), (7, 11), 11, ("a", "b"), 1.0, "5 steps")


def _plan(tmp_path, **protocol):
    values = {"train_sizes": [60, "all"], "seeds": [3, 8], "budget": {"steps": 2}} | protocol
    return make_analysis_plan(tiny_experiment(tmp_path, protocol=values), {60: 60, "all": 120})


def _rules(plan, *seeds, caveat=None):
    analysed, rules = plan.find_analysis(seeds, is_primary=True, caveat=caveat)
    return analysed, rules.error_rate, rules.caveat and rules.caveat.kind


def test_the_first_two_models_with_all_images_are_the_primary_comparison_unless_the_config_names_others(tmp_path):
    plan = _plan(tmp_path)
    assert (plan.size, plan.pair, plan.seeds, plan.equivalence_margin) == (120, ("vit", "resnet"), (3, 8), 1.0)
    plan = _plan(tmp_path, pairs=[["resnet", "vit"]], equivalence_margin=2)
    assert (plan.size, plan.pair, plan.equivalence_margin) == (120, ("resnet", "vit"), 2.0)


def test_the_first_analysis_is_of_the_planned_seeds_at_5_percent_once_none_is_missing():
    assert _rules(PLAN, 0, 1, 2) == ((0, 1, 2), 0.05, None)
    assert _rules(PLAN, 0, 1, 2, 9) == ((0, 1, 2), 0.05, None), "seed 9 was not planned"
    plan = dataclasses.replace(PLAN, seeds=(0, 1, 2, 3, 4))
    for finished in ((0,), (0, 1), (0, 1, 2, 3)):
        assert _rules(plan, *finished) == (finished, 0.05, CaveatKind.UNFINISHED)
    assert _rules(dataclasses.replace(PLAN, seeds=(0, 1)), 0) == ((0,), 0.05, None), "two seeds are too few in any case"


def _with_seeds(plan, count):
    return _with_changes(plan, dataclasses.replace(PLAN, seeds=tuple(range(count))))


def test_added_seeds_make_a_second_analysis_at_1_percent_once_all_are_finished_and_later_ones_none():
    plan = _with_seeds(PLAN, 5)
    assert plan.seeds == (0, 1, 2) and plan.added_seeds == ((3, 4),) and not plan.deviations
    assert _rules(plan, 0, 1, 2, 3) == ((0, 1, 2), 0.05, None)
    assert _rules(plan, 0, 1, 2, 3, 4) == ((0, 1, 2, 3, 4), 0.01, None)
    assert "2 seeds were added after the first analysis" in plan.deviation_texts[0]
    once = _with_seeds(PLAN, 4)
    assert _with_seeds(once, 4) == once  # nothing was added
    plan = _with_seeds(once, 5)
    assert plan.added_seeds == ((3,), (4,)) and plan.analysed_seeds == (0, 1, 2, 3)
    assert _rules(plan, 0, 1, 2, 3, 4) == ((0, 1, 2, 3), 0.01, None)
    first, second = plan.deviation_texts
    assert first.startswith("1 seed was added after the first analysis.")
    assert second == "Exploratory: 1 seed was added after the second analysis and not analysed (4)."


@pytest.mark.parametrize("grid", [None, "{"])
def test_a_plan_without_listed_runs_is_replaced(tmp_path, grid):
    """Another process writes the plan, then the list of runs. A power cut may damage the list."""
    register_plan(PLAN, tmp_path)
    if grid is not None:
        (tmp_path / "runs.json").write_text(grid)
    other = dataclasses.replace(PLAN, seeds=(4, 5, 6))
    assert register_plan(other, tmp_path) == other == read_plan(tmp_path)


def test_the_order_of_models_and_pairs_does_not_matter_and_planned_comparisons_are_counted():
    plan = dataclasses.replace(PLAN, pairs=(("a", "b"), ("a", "c")))
    assert _with_changes(plan, dataclasses.replace(plan, pair=("b", "a"), pairs=(("c", "a"), ("b", "a")))) == plan
    assert PLAN.secondary_count == 5
    assert dataclasses.replace(PLAN, pairs=(("b", "a"),)).secondary_count == 1


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"seeds": (0, 1)}, "seeds"),
        ({"size": 7}, "size"),
        ({"pair": ("a", "c")}, "pair"),
        ({"equivalence_margin": 2.0}, "equivalence_margin"),
        ({"budget": "9 steps"}, "budget"),
        ({"pairs": (("a", "b"),)}, "pairs"),
    ],
)
def test_a_changed_plan_is_reported_and_the_first_one_stays(change, kind):
    plan = _with_changes(PLAN, dataclasses.replace(PLAN, **change))
    assert [one.kind for one in plan.deviations] == [kind]
    assert (plan.seeds, plan.size, plan.pair, plan.equivalence_margin) == ((0, 1, 2), 11, ("a", "b"), 1.0)
    (text,) = plan.deviation_texts
    assert text.endswith("no conclusions." if kind == "budget" else "follow the first plan.")


def test_another_budget_and_unplanned_seeds_allow_no_conclusion_and_other_obstacles_come_before_missing_seeds():
    plan = dataclasses.replace(PLAN, deviations=(Deviation("budget", "5 steps", "9 steps"),))
    assert _rules(plan, 0, 1, 2)[2] is CaveatKind.UNPLANNED_BUDGET
    assert _rules(PLAN, 7, 5, 9) == ((5, 7, 9), 0.05, CaveatKind.UNPLANNED_SEEDS)
    plan, tuning = dataclasses.replace(PLAN, seeds=(0, 1, 2, 3)), Caveat(CaveatKind.UNEQUAL_RECIPE_CARE, "unequal")
    assert _rules(plan, 0, 1, 2, caveat=tuning)[2] is CaveatKind.UNEQUAL_RECIPE_CARE


def test_a_plan_is_read_as_it_was_written_and_a_damaged_one_is_refused(tmp_path):
    plan = dataclasses.replace(PLAN, added_seeds=((3, 4),), pairs=(("a", "b"),))
    (tmp_path / FILE_NAME).write_text(json.dumps(dataclasses.asdict(plan)))
    assert read_plan(tmp_path) == plan
    for text in ("[]", "{", '{"seeds": []}', '{"seeds": "abc"}', "null"):
        (tmp_path / FILE_NAME).write_text(text)
        with pytest.raises(InputError, match=r"analysis_plan\.json is not the analysis plan of an experiment"):
            read_plan(tmp_path)


PAIRS = (("vit_finetuned", "cnn_finetuned"), ("vit_probe", "cnn_probe"), ("vit_probe", "vit"))


def test_linear_probes_are_compared_at_1_percent_before_the_primary_comparison():
    plan = AnalysisPlan((0, 1, 2), tuple({*PAIRS[0], *PAIRS[1]}), (7, 11), 11, PAIRS[0], 1.0, "", PAIRS, PAIRS[1])
    places = (("cnn_probe", "vit_probe", 11), ("vit_probe", "cnn_probe", 7), (*PAIRS[0], 11))
    assert [plan.is_second(*place) for place in places] == [True, False, False]
    assert plan.find_analysis((0, 1, 2), is_primary=False, is_second=True, caveat=None)[1].error_rate == 0.01
    assert plan.secondary_count == 2  # both pairs at size 7; vit is no model of this plan


def test_the_first_pair_of_models_that_were_added_later_is_compared_at_1_percent_and_others_deviate():
    first = AnalysisPlan((0, 1, 2), PAIRS[1], (7, 11), 11, PAIRS[1], 1.0, "", PAIRS[1:2])
    more = dataclasses.replace(first, models=(*PAIRS[0], *PAIRS[1]), pair=PAIRS[0], pairs=PAIRS[:2])
    changed = _with_changes(_with_changes(first, more), more)
    assert (changed.pair, changed.second_pair, changed.pairs) == (PAIRS[1], PAIRS[0], PAIRS[:2])
    assert not changed.deviations
    scratch = dataclasses.replace(first, models=(*PAIRS[1], "vit"), pairs=PAIRS[1:])
    assert (_with_changes(first, scratch).second_pair, _with_changes(first, scratch).deviations) == (None, ())
    known = dataclasses.replace(first, models=(*PAIRS[0], *PAIRS[1]))
    assert [one.kind for one in _with_changes(known, more).deviations] == ["pair", "pairs"]
