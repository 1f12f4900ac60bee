"""Records in results/ can be read, and documents contain the output of ``report``."""

import contextlib
import functools
import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from benchmarks import calibration, cues, differences, learned_runs, maps
from tests.printed import find_difference
from vit_vs_cnn.analysis.analysis import Analysis, read_analysis, read_table_analysis
from vit_vs_cnn.analysis.answer import FEW_LABELS_LEADS, write_answer
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.config.identity import hash_settings, run_identity
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.images.near_duplicates import find_near_duplicates
from vit_vs_cnn.reporting.experiment_tables import comparison_table, duplicates_table
from vit_vs_cnn.runs.record import read_result_table
from vit_vs_cnn.runs.result import ScoredOn, longest_results
from vit_vs_cnn.statistics.intervals import Estimate

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
TABLES = sorted(RESULTS.rglob("results.csv"))
CONFIGS = sorted({*RESULTS.rglob("experiment.yaml"), *RESULTS.glob("*/tuning/*.yaml")})
#: Marks around the output of ``report`` in a document.
BLOCK = re.compile(r"<!-- vit-vs-cnn report (\S+) -->\n```text\n(.*?)\n```\n<!-- end -->", re.DOTALL)
#: Documents and the records that they quote.
QUOTES = [
    (path, record)
    for path in (*sorted(RESULTS.rglob("README.md")), ROOT / "README.md", ROOT / "docs/howto/your_images.md")
    for record in re.findall(r"<!-- vit-vs-cnn report (\S+) -->", path.read_text())
]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@functools.lru_cache
def find_analysis(record: Path) -> Analysis:
    """The analysis of a folder with predictions, or of a table of accuracies."""
    return read_table_analysis(record) if record.is_file() else read_analysis(record)[0]


def block_of(record: str) -> str:
    """The output of ``report`` below the table of runs."""
    return str(write_answer(find_analysis(ROOT / record)))


@pytest.mark.parametrize("path", CONFIGS, ids=_name)
def test_recorded_configs_can_be_read(path):
    experiment_from_dict(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize("table", TABLES, ids=_name)
def test_recorded_runs_have_the_names_that_their_configs_give_today(table):
    """So an unpacked record can be continued without repeating a run. Runs without recorded settings are left out."""
    experiment = experiment_from_dict(yaml.safe_load(table.with_name("experiment.yaml").read_text()))
    for result in (result for result in read_result_table(table) if result.recipe):
        known = {name: result.conditions.get(name) for name in ("starts_from", "weights")}
        known["fingerprint"] = result.conditions["data"]["fingerprint"]
        settings = experiment.run_settings(*result.coordinates, budget=result.parsed_budget, **known)
        settings |= {name: result.conditions.get(name) for name in ("teacher", "unlabelled")}
        assert result.run.endswith(f"-{hash_settings(run_identity(settings))}")


def test_every_record_and_four_searches_for_near_duplicates_are_quoted():
    records = {_name(path.parent if path.with_name("predictions.npz").exists() else path) for path in TABLES}
    assert records <= {record for _, record in QUOTES} and len(DUPLICATES_QUOTED) >= 4


@pytest.mark.parametrize(("path", "record"), QUOTES, ids=lambda one: str(one).removeprefix(f"{ROOT}/"))
def test_a_document_contains_what_report_prints(path, record):
    assert find_difference(dict(BLOCK.findall(path.read_text())).get(record, ""), block_of(record)) is None


SEARCHED = {path: path.with_name("README.md") for path in sorted(RESULTS.rglob("near_duplicates.json"))}
DUPLICATES_QUOTED = [
    p for p, page in SEARCHED.items() if page.exists() and "near-duplicate" in page.read_text().lower()
]


@pytest.mark.parametrize("path", DUPLICATES_QUOTED, ids=_name)
def test_a_readme_quotes_the_near_duplicates_of_its_report(path):
    """Either the share of near-duplicates at each size is in a table, or the largest decrease of accuracy is stated."""
    _, results, answers = read_analysis(path.parent)
    found = find_near_duplicates(path.parent, results)
    table = duplicates_table(found, longest_results(results), answers.correct or {})
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    text = path.with_name("README.md").read_text()
    quoted = dict(re.findall(r"^\| ([\d,]+) \|.*\| (\d+\.\d\d) % \|$", text, re.MULTILINE))
    shares = {f"{row['training images']:,}": row["share, %"] for row in rows}
    most = re.search(r"accuracies fall by at most (\d+\.\d+) points", text)
    assert quoted or most
    assert not quoted or quoted == shares
    assert not most or min(float(row["difference, points"]) for row in rows) == -float(most[1])


def test_the_readme_of_the_recorded_comparison_matches_its_json():
    folder = RESULTS / "compare_cifar10"
    found = json.loads((folder / "comparison.json").read_text())
    readme = (folder / "README.md").read_text()
    for name, top1 in found["accuracy"]["top1"].items():
        assert f"{100 * top1['value']:.1f} % ({100 * top1['low']:.1f} to {100 * top1['high']:.1f})" in readme, name
    (conclusion,) = found["conclusions"]
    assert conclusion in " ".join(readme.split())
    different = [one["name"] for one in found["accuracy"]["classes"] if one["p_corrected"] < 0.05]
    assert f"only {' and '.join(different)} differs at p < 0.05" in " ".join(readme.split())


def test_tables_of_map_scores_over_seeds_match_the_records():
    readme = (RESULTS / "inspect" / "README.md").read_text()
    blocks = re.findall(r"<!-- benchmarks.maps (\S+) -->\n(.*?)\n<!-- end -->", readme, re.DOTALL)
    names = ("cifar10", "ladder", "surface")
    assert {place for place, _ in blocks} == {f"results/inspect/{name}/scores.csv" for name in names}
    for place, expected_table in blocks:
        assert expected_table == maps.table_of(RESULTS.parent / place)


def test_the_page_on_maps_has_the_scores_of_the_record():
    scores = maps.read_scores(RESULTS / "inspect" / "cifar10" / "scores.csv")
    methods = [rows for _, rows in scores.groupby(["recipe", "method"])]
    assert {maps.star_text(rows) for rows in methods} == {"", "0, 0, 0 of 3"}
    names = ("deletion_mean", "insertion_mean", "sanity_head", "sanity_all")
    means = [[f"{rows[name].mean():.2f}" for name in names if rows[name].notna().any()] for rows in methods]
    for_a_class = [rows["class_specific"].all() for rows in methods]
    expected = {(*row[:2], *row[2 if one else 3 :]) for one, row in zip(for_a_class, means, strict=True)}
    expected |= {tuple(row[:2]) for row in means}
    rows = re.findall(r"^\| (?:ViT|ResNet),.*$", (ROOT / "docs/concepts/maps.md").read_text(), re.MULTILINE)
    quoted = [row for row in (tuple(re.findall(r"\d\.\d\d", row)) for row in rows) if len(row) > 1]
    assert len(quoted) == 8 and {*quoted} <= expected


def test_the_command_prints_the_answer_of_a_table(run_command):
    path = RESULTS / "cifar10_cpu" / "results.csv"
    printed = run_command("report", path).out
    assert block_of(_name(path)) in printed
    assert "from accuracies alone" in printed
    assert not (path.parent / "report").exists()


HEADER, ROWS = (RESULTS / "cifar10_cpu" / "results.csv").read_text().split("\n", 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the table has no runs"),
        ("model\nvit\n", "line 2: run: has to be given"),
        ("a,b\n1,2\n", "line 2: a: there is no such column"),
        (f"{HEADER}\n{ROWS.replace(',500,0,', ',many,0,', 1)}", "line 2: train_size: expected a whole number, got"),
        (f"{HEADER}\n{ROWS.replace(',500,0,', ',0,0,', 1)}", "line 2: train_size must be at least 1, but is 0"),
        (f"{HEADER}\n{ROWS.replace(chr(10), ',' + chr(10), 1)}", "line 2: more cells than there are columns"),
    ],
    ids=["empty", "missing", "unknown", "text", "zero", "cells"],
)
def test_an_invalid_result_table_is_refused(tmp_path, text, message):
    (tmp_path / "results.csv").write_text(text, encoding="utf-8-sig")
    with pytest.raises(InputError, match=message):
        read_result_table(tmp_path / "results.csv")


def test_augmentation_differences_in_the_readme_match_the_analysis():
    folder = RESULTS / "augmentation_cpu"
    table = comparison_table(find_analysis(folder))
    rows = [dict(zip(table.columns, map(str, row), strict=True)) for row in table.rows]
    for r in rows:
        r["better"], r["worse"] = (r[side].lower().replace("-", "_") for side in ("better", "worse"))
    found = {frozenset((r["better"], r["worse"], r["training images"].replace(",", ""))): r for r in rows}

    def expected_table(n: str, first: str, second: str) -> str:
        row = found[frozenset((first, second, n))]
        ends = [float(row[name]) for name in ("points", "from", "to")]
        if row["better"] != first:
            ends = [-ends[0], -ends[2], -ends[1]]
        return "{:.1f} ({:.1f} to {:.1f})".format(*ends)

    readme, sizes = (folder / "README.md").read_text(), ("1000", "5000", "50000")
    for name, title in (("resnet", "ResNet-8"), ("vit", "ViT nano"), ("cct", "CCT-2/3x2")):
        for n in sizes:
            gains = expected_table(n, name, f"{name}_none"), expected_table(n, f"{name}_strong", name)
            assert f"| {title} | {int(n):,} | {' | '.join(gains)} |" in readme
    for n in sizes:
        leads = (expected_table(n, f"resnet{kind}", f"vit{kind}") for kind in ("_none", "", "_strong"))
        assert f"| n = {int(n):,} | {' | '.join(leads)} |" in readme


PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md", *sorted(RESULTS.rglob("README.md"))]
#: Number of quoted intervals without a machine-readable record: the first training, heads of the networks of 25,600
#: steps, all pairs of the ladder without its plan, shape against texture with patches of 8, and pretrained networks.
UNRECORDED = {"README.md": 1, "README.zh-CN.md": 1, "results/README.md": 7, "results/locality_cpu/README.md": 31}
UNRECORDED |= {"results/ladder/locality_ladder/README.md": 3, "results/regimes_synthetic/README.md": 3}
UNRECORDED |= {"results/speed/README.md": 1, "results/transfer_cpu/README.md": 1}
COMMAND = re.compile(r"```\npython -m benchmarks\.(\w+) ('?results/.*?)\n```\n\n((?:\|[^\n]*\n)+)", re.DOTALL)
COMMANDS = [(page, *command) for page in PAGES for command in COMMAND.findall(page.read_text())]
NUMBER = r"(-?\d+\.\d)"
INTERVAL = re.compile(rf"{NUMBER}(?: %| points| 个百分点)? ?[(\uff08]{NUMBER} (?:to|至) {NUMBER}(?=[;,)\uff09])")


@functools.lru_cache
def known_intervals() -> set[tuple[float, ...]]:
    """Every interval of the records, in percent and with either sign."""
    analyses = [find_analysis(p.parent if p.with_name("predictions.npz").exists() else p) for p in TABLES]
    comparison = json.loads((RESULTS / "compare_cifar10" / "comparison.json").read_text())
    cue_shares = [
        runs[cue]
        for folder in RESULTS.glob("cues/agreement_*")
        for _, runs in cues.cue_shares(folder).groupby(["size", "model"])
        for cue in ("shape", "texture")
    ]
    estimates = [
        *(one.difference for a in analyses for one in (*a.comparisons, *a.equal_cost) if one.difference),
        *(one.change for a in analyses for one in (*a.gains, *a.interactions)),
        *(one.accuracy for a in analyses for one in a.accuracies),
        *(Estimate(**mean) for mean in comparison["corruptions"]["mean"].values()),
        *(Estimate(shares.mean(), shares.min(), shares.max()) for shares in cue_shares),
    ]
    rows = [tuple(100 * number for number in (e.value, e.low, e.high)) for e in estimates]
    rows += [tuple(map(float, found)) for *_, table in COMMANDS for found in INTERVAL.findall(table)]
    both = [*rows, *((-value, -high, -low) for value, low, high in rows)]
    return {tuple(float(f"{number:z.1f}") for number in row) for row in both}


@pytest.mark.parametrize(
    ("page", "module", "words", "table"), COMMANDS, ids=lambda one: _name(one) if isinstance(one, Path) else ""
)
def test_a_table_below_a_command_is_its_output(page, module, words, table):
    commands = {"differences": differences.table_of, "learned_runs": learned_runs.table_of}
    with contextlib.chdir(ROOT):
        printed = commands[module](shlex.split(words.replace("\\\n", " ")))
    assert find_difference(table, printed) is None


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name != "calibration"], ids=_name)
def test_quoted_intervals_are_in_a_record(page):
    """Except in the simulated rates of the calibration."""
    text = re.sub(r"<!-- benchmarks.maps .*?<!-- end -->", "", page.read_text(), flags=re.DOTALL)
    quoted = [tuple(map(float, found)) for found in INTERVAL.findall(" ".join(text.split()))]
    unknown = [interval for interval in quoted if interval not in known_intervals()]
    assert len(unknown) == UNRECORDED.get(_name(page), 0), unknown


CITING_PAGES = [*PAGES[:2], RESULTS / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: A link to a record, and a number with decimals.
RECORD_LINK = re.compile(r"\]\((?:\.\./)*(?:results/)?([\w/]+)/(?:README|conclusions)\.md")
DECIMAL = re.compile(r"(?<![\w.,-])\d{1,3}\.\d{1,2}(?![\w.]|,\d)")


@pytest.mark.parametrize("page", CITING_PAGES, ids=_name)
def test_numbers_beside_a_link_to_a_record_are_on_its_pages(page):
    """Numbers with decimals, in a paragraph, list item or table row that links to a record."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for passage in re.split(r"\n\n|\n(?=[-|] )", text):
        records = [folder for name in RECORD_LINK.findall(passage) if (folder := RESULTS / name).is_dir()]
        pages = " ".join(path.read_text() for record in records for path in record.rglob("*.md"))
        unknown = {*DECIMAL.findall(passage)} - {*re.findall(r"\d+\.\d+", pages)}
        assert not (records and unknown), f"{unknown} in: {passage}"


def test_an_answer_quotes_the_leads_of_the_record_on_few_labels():
    analysis = find_analysis(RESULTS / "few_labels_cpu")
    pairs = [analysis.pair_comparisons(f"resnet{end}", f"vit{end}") for end in ("", "_both")]
    leads = [one.lead.value for pair in pairs for one in pair if one.train_size == 2_000]
    assert tuple(round(100 * lead, 1) for lead in leads) == FEW_LABELS_LEADS


def test_the_numbers_of_experiments_on_the_test_images_of_cifar_are_stated():
    tested = [
        t for t in TABLES if {result.scores.scored_on for result in read_result_table(t)} != {ScoredOn.VALIDATION}
    ]
    sources = [yaml.safe_load(t.with_name("experiment.yaml").read_text())["data"]["source"] for t in tested]
    assert (sources.count("cifar10"), len(TABLES), sources.count("cifar100")) == (22, 37, 2)
    text = " ".join((RESULTS / "README.md").read_text().split())
    assert "At least 22 of the 37 experiments below were tested on the same 10,000 images of CIFAR-10. Two" in text


def test_the_record_of_the_calibration_has_the_rows_that_its_command_prints():
    record = (RESULTS / "calibration" / "README.md").read_text()
    for title, _, worlds in calibration.tables():
        if "several experiments" not in title:  # a table with other rows
            assert not [name for name in worlds if f"\n| {name} | " not in record], title


def test_the_simulated_rates_of_the_page_on_statistics_are_those_of_the_calibration():
    """Power, and failures in 20 % of the runs: percentages without decimals on the page."""
    record = (RESULTS / "calibration" / "README.md").read_text()
    text = (ROOT / "docs/concepts/statistics.md").read_text()

    def recorded(row: str) -> list[str]:
        (cells,) = re.findall(rf"^\| {re.escape(row)} \| (.*) \|$", record, re.MULTILINE)
        return [f"{float(cell.split(' ')[0]):.0f} %" for cell in cells.split(" | ")]

    power = re.findall(r"^\| ([\d,]+) \| (\d+) points \| (\d+ %) \| (\d+ %) to (\d+ %) \|$", text, re.MULTILINE)
    assert len(power) == 6
    for images, points, usual, low, high in power:
        highest, middle, lowest = recorded(f"{images} images, {points} points, 3 seeds")
        assert (usual, low, high) == (middle, lowest, highest)
    failures = re.findall(r"^\| (\d+) \| (\d+ %) \| (\d+ %) \| (\d+ %) \|$", text, re.MULTILINE)
    assert len(failures) == 4
    for points, *rates in failures:
        without, means, unstable = recorded(f"{points} points in 20 %")
        assert rates == [unstable, without, means]
