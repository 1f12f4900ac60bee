import csv
import itertools
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from tests.analysis.tables import PLAN, seeded
from tests.browser import DESK, PHONE, assert_readable, open_browser, render_page
from tests.experiments.tiny import tiny_config
from tests.results import changed, make_result
from vit_vs_cnn.analysis.analysis import analyze
from vit_vs_cnn.analysis.answer import write_answer
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.images.near_duplicates import NearDuplicates
from vit_vs_cnn.networks.evaluation import Predictions
from vit_vs_cnn.reporting.experiment_page import write_experiment_page, write_table_page
from vit_vs_cnn.reporting.experiment_tables import duplicate_pairs_table, duplicates_table
from vit_vs_cnn.reporting.findings import add_leak_caveat, answer_page, read_findings
from vit_vs_cnn.runs.record import MAJORITY
from vit_vs_cnn.runs.result import read_result
from vit_vs_cnn.runs.test_set_log import TestSetLog

SIZES, SEEDS, IMAGES = (50, 110, 230, 470), (0, 1, 2), 307
CURVES = {"vit": (0.9, 0.20), "resnet": (0.8, 0.25), "a<b>": (0.95, 0.15), **dict.fromkeys("cdef", (0.9, 0.2))}

#: Values shared by all runs.
RUN = {
    **{"parameters": 1234, "macs": 56789, "steps": 23, "planned_steps": 23, "images_processed": 1880},
    **{"train_seconds": 1.5, "trials": 1, "budget": "23 steps", "batch_size": 14, "recipe": {"augmentation": {}}},
    **{"architecture": {"name": "vit_nano"}, "source": "synthetic", "fingerprint": "f00-ba4", "scored_images": IMAGES},
    **{"validation_images": 11, "validation_curve": [(5, 0.1), (10, 0.3), (15, 0.3), (20, 0.3), (23, 0.3)]},
    **{"test_evaluations": 1, "versions": {"python": "3.11", "torch": "2.9"}},
    **{"hardware": {"cpu": "a & b", "threads": 1, "gpus": [], "system": "Linux"}},
}


def _plain(model: str) -> str:
    return model.replace("<", "").replace(">", "")


def _made_up(folder: Path, *, models=("vit", "resnet"), sizes=SIZES, seeds=SEEDS, scored_on="test") -> Path:
    """The folder of an experiment with accuracies that follow power laws, without training."""
    values = tiny_config(folder.parent, name=folder.name, train_sizes=[*sizes], seeds=[*seeds], scored_on=scored_on)
    values["models"] = {_plain(name): values["models"]["vit"] for name in models}
    folder.mkdir(parents=True)
    (folder / "experiment.yaml").write_text(yaml.safe_dump(experiment_from_dict(values).to_dict()))
    labels, names = torch.arange(IMAGES) % 5, []
    log = TestSetLog(folder.parent, "ba4")
    for n, seed, model in itertools.product(sizes, seeds, models):
        scale, exponent = CURVES[model]
        hard = np.random.default_rng(7).permutation(IMAGES) + np.random.default_rng(seed).normal(0, 9, IMAGES)
        correct = hard > scale * IMAGES * (n / 20) ** -exponent
        predicted = torch.where(torch.from_numpy(correct), labels, (labels + 1) % 5)
        logits = torch.nn.functional.one_hot(predicted, 5).float()
        names.append(f"{_plain(model)}-n{n}-s{seed}-0123456789")
        run_folder = folder / names[-1]
        run_folder.mkdir(parents=True)
        predictions = Predictions.from_logits(logits, labels, [f"test-{i}" for i in range(IMAGES)])
        predictions.save(run_folder / "predictions.npz")
        accuracy = float(correct.mean())
        entry = log.record(weights=run_folder.name, accuracy=accuracy, label=run_folder.name, run=None)
        result = make_result(
            **RUN,
            **{"run": run_folder.name, "model": model, "train_size": n, "training_images": n - 11},
            **{"seed": seed, "subset": f"{n}-{seed}", "weights": run_folder.name, "log_entry": entry},
            **{"accuracy": accuracy, "scored_on": scored_on},
        )
        (run_folder / "result.json").write_text(result.to_json())
    (folder / "runs.json").write_text(json.dumps({key: {"steps": 2} for key in names}))
    return folder


def _rewrite(folder: Path, **values) -> None:
    """Change values of all results in a folder."""
    for path in folder.rglob("result.json"):
        path.write_text(changed(read_result(path), **values).to_json())


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def _html(folder: Path) -> str:
    """The page of a report that is written now."""
    write_experiment_page(read_findings(folder))
    return (folder / "report" / "index.html").read_text()


@pytest.fixture(scope="module")
def reported(tmp_path_factory) -> Path:
    folder = _made_up(tmp_path_factory.mktemp("made") / "up")
    write_experiment_page(read_findings(folder))
    return folder


@pytest.mark.parametrize(("seeds", "has_dots"), [(1, False), (2, True)])
@pytest.mark.parametrize("names", ["ab", "abcdef"])
def test_the_caption_of_the_figure_names_dots_only_if_there_are_several_seeds(seeds, has_dots, names):
    page = answer_page(analyze(seeded({name: {50: 0.5, 101: 0.6} for name in names}, seeds=seeds)))
    assert ("Small dots are single seeds" in page.to_fragment()) == has_dots


def test_missing_weights_are_stated_once(tmp_path):
    results, table = seeded({"a": {7: 0.5}, "b": {7: 0.6}}), tmp_path / "results.csv"
    analysis = analyze(results, plan=replace(PLAN, missing_weights=(("vit_pretrained", "timm/deit"),)))
    table.write_text("")
    write_table_page(table, results, analysis, tmp_path / "report")
    html = (tmp_path / "report" / "index.html").read_text()
    assert html.count("hf download timm/deit model.safetensors") == 1


@pytest.mark.usefixtures("real_figures")
def test_a_rewritten_report_has_the_same_bytes(reported):
    before = _bytes(reported / "report")
    shutil.rmtree(reported / "report")
    written = write_experiment_page(read_findings(reported))
    assert sorted(str(path.relative_to(reported / "report")) for path in written) == sorted(before)
    assert _bytes(reported / "report") == before


def test_the_page_opens_with_the_answer_and_has_every_part(reported):
    html = (reported / "report" / "index.html").read_text()
    opening, details = html.split("<h2>Details</h2>")
    answer = write_answer(read_findings(reported).analysis)
    places = [opening.index(f">{answer.title}</h1>"), opening.index('<div class="lead"><p>Train the ResNet.</p>')]
    places += [opening.index(text) for text in (answer.heading, answer.rows[0][-1], "<img", answer.more_images)]
    assert places == sorted(places)
    assert answer.title == "ResNet or ViT on synthetic images?"
    assert opening.count("<img") == 1 and "<h2" not in opening
    assert answer.more_training.partition(" (")[0] in opening
    headings = "Further limits|Accuracies and differences|Forecast|Runs|Protocol and recipes|How it was measured|Files"
    assert all(f">{heading}</h2>" in details for heading in headings.split("|"))
    assert not any(f">{empty}</h2>" in html for empty in ("More training", "Equal compute", "Near-duplicates"))
    assert "24 evaluations of 24 networks, each once" in html
    assert html.count("<img") == 2


def test_a_page_without_a_test_set_log_has_no_conclusion(tmp_path):
    folder = _made_up(tmp_path / "up", sizes=(50, 110))
    (log,) = (tmp_path / "test-sets").glob("*.jsonl")
    log.unlink()
    html = _html(folder)
    why = "the log of this test set is missing or was changed, so the number of evaluations is unknown"
    assert f"<p>No conclusion: {why}.</p>" in html
    assert html.count(f"T{why[1:]}.") == 2  # among the warnings, and above the runs
    comparisons = json.loads((folder / "report" / "analysis.json").read_text())["comparisons"]
    assert {one["conclusion"] for one in comparisons} == {"no conclusion"}


def test_files_named_on_the_page_exist_and_tables_contain_plain_numbers(reported):
    html = (reported / "report" / "index.html").read_text()
    links = [link for link in re.findall(r'href="([^"#]+)"', html) if not link.startswith("data:")]
    assert len(links) > 10
    assert all((reported / "report" / link).is_file() for link in links)
    chance, *rows = csv.DictReader((reported / "report" / "tables" / "accuracies.csv").read_text().splitlines())
    assert (chance["model"], chance["accuracy, %"]) == (MAJORITY, "20.2")
    places = [(str(n), model) for n in SIZES for model in ("ResNet", "ViT")]
    assert [(row["training images"], row["model"]) for row in rows] == places
    assert all(float(row["from"]) <= float(row["accuracy, %"]) <= float(row["to"]) for row in rows)


def test_failed_and_missing_runs_and_unusable_files_are_listed(tmp_path):
    folder = _made_up(tmp_path / "up", sizes=(50, 110))
    _rewrite(folder, data_details={"skipped": {"counts": {"damaged": 1234, "empty file": 5}}})
    failed, missing = folder / "vit-n50-s0-0123456789", folder / "vit-n50-s1-0123456789"
    (failed / "result.json").unlink()
    about = {"run": "vit-n50-s0", "kind": "training diverged", "message": "the loss <is> no number", "step": 3}
    (failed / "failed.json").write_text(json.dumps(about | {"time": "2026-01-01T00:00:00+00:00"}))
    shutil.rmtree(missing)
    html = _html(folder)
    assert html.count("damaged: 1,234, empty file: 5") == 1
    assert "Of 12 runs 1 failed and 1 is not finished" in html
    assert "training diverged" not in html and "<td>failed</td>" in html


@pytest.mark.parametrize(
    "kind",
    [
        {"models": ("vit", "resnet", "a<b>"), "sizes": (50, 110)},
        pytest.param({"models": ("vit",), "sizes": (110,), "seeds": (0,)}, marks=pytest.mark.slow),
        pytest.param({"scored_on": "validation", "sizes": (50, 110)}, marks=pytest.mark.slow),
    ],
    ids=["three models", "one run", "validation"],
)
def test_a_report_is_written_for_every_kind_of_grid(kind, tmp_path):
    folder = _made_up(tmp_path / "up", **kind)
    assert all(path.stat().st_size for path in write_experiment_page(read_findings(folder)))
    html = (folder / "report" / "index.html").read_text()
    assert '<div class="lead"><p>' in html and "<b>" not in html


def test_missing_predictions_are_a_warning_without_an_error_text_on_the_page(tmp_path):
    folder = _made_up(tmp_path / "up", sizes=(50, 110))
    next(folder.rglob("predictions.npz")).unlink()
    with pytest.warns(UserWarning, match=r"predictions\.npz.*; intervals are wider"):
        html = _html(folder)
    assert "Some predictions cannot be read, so intervals are wider." in html
    assert "predictions.npz" not in html
    assert "Classes and example images are not shown" in html
    assert ">Classes and examples</h2>" not in html


def test_the_command_prints_the_table_and_the_missing_runs_and_writes_the_report(trained_once, tmp_path, run_command):
    shutil.copytree(trained_once.parent, tmp_path / "runs")
    folder = tmp_path / "runs" / trained_once.name
    next(folder.glob("*/result.json")).unlink()
    printed = run_command("report", folder).out
    assert "training images" in printed
    assert "\nnote: Of 4 runs 1 is not finished. The report contains the others." in printed
    assert f"The report is {folder / 'report' / 'index.html'}" in printed.replace("\n", "")
    assert "All images are synthetic" in (folder / "report" / "index.html").read_text()


def test_hardware_is_shown_as_far_as_it_is_recorded(tmp_path):
    folder = _made_up(tmp_path / "some", sizes=(50,), seeds=(0,))
    known = {
        "not recorded": {},
        "7 threads": {"threads": 7, "other": [{}]},
        "Minix": {"gpus": ["H9"], "system": "Minix"},
    }
    for text, hardware in known.items():
        _rewrite(folder, hardware=hardware)
        assert f"<dd>{text}</dd>" in _html(folder)


def test_more_than_a_tenth_of_near_duplicates_invalidates_the_conclusions():
    analysis = analyze([make_result()])
    for count, is_reliable in ((0, True), (1, True), (10, True), (11, False), (100, False)):
        duplicates = NearDuplicates("f", 100, {"a": [], "b": [*range(count)]}, 5, [])
        warnings = add_leak_caveat(analysis, duplicates).warnings()
        assert (f"cannot be relied on: {count} of 100 test images" in " ".join(warnings)) != is_reliable


def test_near_duplicate_pairs_are_in_a_table_that_marks_different_labels():
    pairs = [("test/00003", "train/00017", 0.912, "apple", "apple"), ("test/00005", "train/00002", 0.7, "oak", "maple")]
    sheet = duplicate_pairs_table(NearDuplicates("f", 5, {"a": [3]}, 5, pairs))
    assert [row[-1] for row in sheet.rows] == ["same", "differ"]
    assert "2 pairs" in sheet.title and "the labels of 1 differ" in sheet.title
    assert sheet.to_csv().splitlines()[1] == "test/00003,train/00017,0.912,apple,apple,same"


HITS, ALL_HITS = np.array([1, 1, 1, 0, 0], bool), np.ones(5, bool)


@pytest.mark.parametrize(
    ("by_subset", "correct", "row"),
    [
        # 1 of 3 and 3 of 4 are right among the others; 2 and 1 are left out.
        ({"a": [0, 1], "b": [4]}, {"a": HITS, "b": HITS}, ["1.5", "30.00", "60.00", "54.17", "-5.83"]),
        ({"a": [0, 1, 2, 3, 4]}, {"a": ALL_HITS}, ["5.0", "100.00", "-", "-", "-"]),
        ({"a": [0, 1, 2, 3, 4], "b": [4]}, {"a": ALL_HITS, "b": HITS}, ["3.0", "60.00", "60.00", "75.00", "+15.00"]),
    ],
    ids=["some of each run", "nothing is left", "nothing is left of one run"],
)
def test_accuracy_without_duplicates_leaves_out_those_of_the_runs_own_subset(by_subset, correct, row):
    results = [
        make_result(train_size=7, scored_images=5, run=subset, subset=subset, accuracy=hits.mean().item())
        for subset, hits in correct.items()
    ]
    assert duplicates_table(NearDuplicates("f", 5, by_subset, 5, []), results, correct).rows == [[7, "ViT", *row]]


def test_a_browser_renders_the_report_on_a_desktop_and_a_phone(reported, tmp_path):
    page = reported / "report" / "index.html"
    with open_browser(tmp_path / "profile") as browser:
        for width in (DESK, PHONE):
            rendered = render_page(browser, page, width=width, dark=width == PHONE)
            assert_readable(rendered)
            assert len(rendered.figures) == 2


def test_a_report_is_written_for_a_config_without_data_settings_or_with_one_of_an_older_version(tmp_path):
    folder = _made_up(tmp_path / "up", sizes=(50, 110))
    values = yaml.safe_load((folder / "experiment.yaml").read_text())
    values["data"] |= {"before": 1}
    for text in (yaml.safe_dump(values), "protocol: {budget: {steps: 2}}"):
        (folder / "experiment.yaml").write_text(text)
        assert write_experiment_page(read_findings(folder))
    (folder / "experiment.yaml").write_text("data: photos")
    with pytest.raises(InputError, match="data: expected a mapping, got 'photos'"):
        write_experiment_page(read_findings(folder))
