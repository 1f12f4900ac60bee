"""What the table says, and when it declines to say it."""

from pathlib import Path

import pytest
import torch

from tests.regimes.tables import RISING, seeded, validated
from tests.results import changed, make_result
from vit_vs_cnn.regimes import Analysis, analyse, load_answers
from vit_vs_cnn.reporting.tables import comparison_lines, results_csv, results_table, rows_of
from vit_vs_cnn.runs.evaluation import Predictions
from vit_vs_cnn.runs.record import read_result_table
from vit_vs_cnn.runs.result import RunResult

COUNT = 1009


def _result(folder: Path, contender: str, seed: int, share: float, **values) -> RunResult:
    """A run whose network is right on the first ``share`` of the images, and its predictions on disk."""
    run = f"{contender}-n50-s{seed}"
    labels = torch.arange(COUNT) % 3
    wrong = torch.arange(COUNT) >= round((share + 0.003 * seed) * COUNT)
    logits = torch.nn.functional.one_hot((labels + wrong) % 3, 3).float()
    ids = values.pop("sample_ids", [f"test/{i}" for i in range(COUNT)])
    predictions = Predictions(logits, labels, ids)
    (folder / "cells" / run).mkdir(parents=True)
    predictions.save(folder / "cells" / run / "predictions.npz")
    scores = {"scored_images": COUNT, "accuracy": predictions.accuracy}
    cost = {"parameters": 1_234_567, "macs": 12_000_000, "steps": 40}
    given = {"run": run, "contender": contender, "train_size": 50, "seed": seed, "trials": 1}
    return make_result(**scores | cost | given | values)


def _both(folder: Path, seeds: int, gap: float = 0.1, **values) -> list[RunResult]:
    a = [_result(folder, "a", seed, 0.5) for seed in range(seeds)]
    return a + [_result(folder, "b", seed, 0.5 + gap, **values) for seed in range(seeds)]


def _analysis(folder: Path, results: list[RunResult]) -> Analysis:
    return analyse(results, load_answers(folder, results).correct, resamples=500)


def _lines(folder: Path, results: list[RunResult]) -> list[str]:
    return comparison_lines(_analysis(folder, results))


def test_seeds_are_one_row_with_the_interval_of_the_report(tmp_path):
    results = _both(tmp_path, 3)
    analysis = _analysis(tmp_path, results)
    (row, _) = rows_of(results, analysis)
    value, low, high = (100 * getattr(analysis.curves[0].points[0].accuracy, end) for end in ("value", "low", "high"))
    assert value == pytest.approx(100 * sum(r.accuracy for r in results[:3]) / 3)
    assert row[:6] == ("a", "50", f"{value:.1f} %", f"{low:.1f}-{high:.1f}", "1.23M", "12M")


def test_three_seeds_give_a_verdict_with_the_better_one_first(tmp_path):
    results = _both(tmp_path, 3)
    (line,) = _lines(tmp_path, results)
    lead = _analysis(tmp_path, results).pairs[0].at_largest.lead
    interval = f"{100 * lead.low:+.1f} to {100 * lead.high:+.1f}"
    assert line == f"n = 50: b is 9.9 points above a ({interval}; p < 0.0001); shown over 3 paired seeds"
    assert 0.07 < lead.low < 0.099 < lead.high < 0.13


@pytest.mark.parametrize(("seeds", "says"), [(1, "one seed describes"), (2, "2 seeds describe")])
def test_fewer_seeds_describe_and_do_not_judge(tmp_path, seeds, says):
    (line,) = _lines(tmp_path, _both(tmp_path, seeds))
    assert f"no verdict: {says} these" in line


def test_unequal_trials_give_no_verdict(tmp_path):
    (line,) = _lines(tmp_path, _both(tmp_path, 3, trials=12))
    assert "no verdict: their recipes had unequal trials (1, 12)" in line


def test_equal_networks_are_equivalent(tmp_path):
    (line,) = _lines(tmp_path, _both(tmp_path, 3, gap=0.0))
    assert line.endswith("equivalent within 1.0 points over 3 paired seeds")


def test_other_test_images_give_no_verdict(tmp_path):
    others = {"sample_ids": [f"other/{i}" for i in range(COUNT)], "fingerprint": "others"}
    (line,) = _lines(tmp_path, _both(tmp_path, 3, **others))
    assert "no verdict: they were trained or tested on different images" in line


def test_several_pairs_come_with_a_word_on_their_number(tmp_path):
    results = _both(tmp_path, 3) + [_result(tmp_path, "c", seed, 0.9) for seed in range(3)]
    lines = _lines(tmp_path, results)
    assert len(lines) == 4
    assert "p and verdict are corrected over all lines (Holm)" in lines[-1]
    assert all("Holm over 3 comparisons" in line for line in lines[:3])


def test_there_is_a_line_for_each_run_and_a_row_for_each_contender(tmp_path):
    results = validated(_both(tmp_path, 2))
    (tmp_path / "results.csv").write_text(results_csv(results))
    assert read_result_table(tmp_path / "results.csv") == results
    table = results_table(results, _analysis(tmp_path, results), title="t")
    assert [row[0] for row in table.rows if row[0] in ("a", "b")] == ["a", "b"]


def test_runs_that_ended_early_are_called_so_and_judged_by_nobody(tmp_path):
    results = _both(tmp_path, 3)
    results[4] = changed(results[4], steps=37, planned_steps=40)
    analysis = _analysis(tmp_path, results)
    (whole, early) = rows_of(results, analysis)
    assert early[6] == "37 of 40"
    assert "of" not in whole[6]
    warning, line = comparison_lines(analysis)
    assert warning.startswith("warning: 1 of 6 runs ended before their budget (b at n = 50, seed 1")
    assert "no verdict: some of their runs ended before their budget" in line


def _note(folder: Path, results: list[RunResult]) -> str:
    return results_table(results, _analysis(folder, results), title="t").note


def test_the_interval_of_one_seed_is_said_to_cover_images_only(tmp_path):
    told = "The interval is about other images; another run moves more."
    assert told in _note(tmp_path / "one", _both(tmp_path / "one", 1))
    assert told not in _note(tmp_path / "three", _both(tmp_path / "three", 3))


def test_the_footer_names_the_runs_that_still_improved_and_says_where_that_is_not_known(tmp_path):
    results = _both(tmp_path, 3)
    assert "Not known: no validation curve is recorded." in _note(tmp_path, results)
    settled = validated(results)
    assert _note(tmp_path, settled).endswith("No run is shown to improve in its last quarter.")
    rising = [*settled[:3], *validated(results[3:], RISING)]
    assert _note(tmp_path, rising).endswith("Still improving in their last quarter: b at n = 50 (+12.5 points).")


def test_contenders_of_unequal_compute_and_a_multiplier_that_is_none_have_a_line(tmp_path):
    results = _both(tmp_path, 3, macs=48_000_000)
    warning, line = _lines(tmp_path, results)
    assert warning.startswith("warning: Compute differs: b has 4 times the multiply-accumulates of a (48.0M against")
    assert line.endswith("shown over 3 paired seeds")
    larger = [changed(r, train_size=500, run=f"{r.run}-500") for r in results]
    *_, multiplier = comparison_lines(analyse([*results, *larger], resamples=50))
    assert multiplier.startswith(
        "data multiplier: not known whether the budget limits it: no multiplier (no validation"
    )


def test_of_many_pairs_a_terminal_has_the_foremost_and_what_is_decided():
    accuracies = {
        name: {100: 0.5 + gap, 400: 0.6 + gap} for name, gap in zip("abcd", (0, 0.001, 0.1, 0.2), strict=True)
    }
    analysis = analyse(seeded(accuracies), resamples=50)
    told = [line for line in comparison_lines(analysis) if "n = " in line and " above " in line]
    assert len(analysis.pairs) == 6
    (smallest,) = [line for line in told if line.startswith("n = 100:")]
    assert " above c (" in smallest
    assert all("shown over" in line for line in told)
    assert f"{12 - len(told)} more comparisons are in the report" in comparison_lines(analysis)
