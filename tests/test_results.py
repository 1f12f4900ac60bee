"""What stands under results/ still reads, and its figures are those that the recorded cells give."""

import functools
import json
import re
from pathlib import Path

import pytest
import yaml

from benchmarks import maps
from vit_vs_cnn.cli import main
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.regimes import Analysis, answer
from vit_vs_cnn.regimes.convergence import FITTED
from vit_vs_cnn.regimes.findings import findings_of, recorded_analysis
from vit_vs_cnn.reporting.regime_tables import differences_table, duplicates_table
from vit_vs_cnn.reporting.tables import comparison_lines
from vit_vs_cnn.runs.record import read_result_table

RESULTS = Path(__file__).parents[1] / "results"
TABLES = sorted(RESULTS.rglob("results.csv"))
#: Tables of runs whose predictions are recorded, and one whose predictions are not.
COMPARED = [path for path in TABLES if path.with_name("predictions.npz").exists()]
COMPARED += [RESULTS / "transfer_cpu" / "results.csv"]
CONFIGS = sorted({*RESULTS.rglob("experiment.yaml"), *RESULTS.glob("*/tuning/*.yaml")})
TEXTS = sorted([*RESULTS.rglob("README.md"), *(RESULTS.parent / n for n in ("README.md", "docs/howto/your_images.md"))])
#: A README holds what ``report results.csv`` says between these lines.
BLOCK = re.compile(r"<!-- vit-vs-cnn report (\S+) -->\n(.*?)\n<!-- end -->", re.DOTALL)


def _name(path: Path) -> str:
    return str(path.relative_to(RESULTS))


def analysis_of(table: Path, resamples: int) -> Analysis:
    """Of the cells, where these are recorded; else of the accuracies."""
    return _of_cells(table.parent) if _has_cells(table) else _of_accuracies(table, resamples)


def _readme_of(recorded: Path) -> Path:
    """That beside a record, or the one of a few records around it."""
    own = recorded.with_name("README.md")
    return own if own.exists() else recorded.parents[1] / "README.md"


def _is_shared(recorded: Path) -> bool:
    """Whether its README is that of several records, each of which has what ``report`` prints there."""
    return not recorded.with_name("README.md").exists()


def _has_cells(recorded: Path) -> bool:
    return recorded.with_name("predictions.npz").exists()


@functools.lru_cache
def _of_cells(folder: Path) -> Analysis:
    return findings_of(folder).analysis


@functools.lru_cache
def _of_accuracies(table: Path, resamples: int) -> Analysis:
    return recorded_analysis(table, resamples=resamples)


def answer_of(path: Path) -> str:
    """The printed answer of a record."""
    own = yaml.safe_load((path.parent / "experiment.yaml").read_text())["data"]["source"] == "folder"
    return answer(analysis_of(path.parent / "results.csv", 200), own_images=own)


def block_of(analysis: Analysis) -> str:
    """Accuracies and differences as ``report`` prints them, as Markdown."""
    lines = ["| contender | n | accuracy | 95 % |", "| --- | --- | --- | --- |"]
    for size in analysis.sizes:
        found = [(c.contender, p.accuracy) for c in analysis.curves for p in c.points if p.size == size]
        for contender, a in sorted(found):
            interval = f"{100 * a.low:.1f} to {100 * a.high:.1f}"
            lines.append(f"| {contender} | {size:,} | {100 * a.value:.1f} % | {interval} |")
    told = comparison_lines(analysis)
    shown = told if len(analysis.contenders) == 2 else []
    return "\n".join([*lines, *([""] if shown else []), *(f"- {line}" for line in shown)])


@pytest.mark.parametrize("path", CONFIGS, ids=_name)
def test_every_recorded_config_is_one_of_todays(path):
    experiment_from_dict(yaml.safe_load(path.read_text()), recorded=True)


@pytest.mark.parametrize("path", TABLES, ids=_name)
def test_a_readme_says_what_report_says_of_the_recorded_accuracies(path):
    blocks = dict(BLOCK.findall(_readme_of(path).read_text()))
    told = path.parent if _has_cells(path) else path
    assert blocks[f"results/{_name(told)}"].strip() == block_of(analysis_of(path, 50))


@pytest.mark.parametrize("path", COMPARED, ids=_name)
def test_a_readme_quotes_todays_answer_and_the_differences_of_its_report(path):
    readme = _readme_of(path).read_text()
    assert " ".join(re.findall(r"^> (.+)$", readme, re.MULTILINE)) in ("", answer_of(path))
    if _is_shared(path):
        assert f"<!-- vit-vs-cnn report results/{path.parent.relative_to(RESULTS)} -->" in readme
        return
    pairs = analysis_of(path, 50).pairs
    for comparison in pairs[0].comparisons if len(pairs) == 1 else ():
        ends = comparison.difference.value, comparison.difference.low, comparison.difference.high
        row = next(line for line in readme.splitlines() if line.startswith(f"| {comparison.size:,} |"))
        (cell,) = re.findall(r"(-?[\d.]+) \((-?[\d.]+) to (-?[\d.]+)\)", row)
        assert sorted(abs(float(x)) for x in cell) == pytest.approx(sorted(abs(100 * x) for x in ends), abs=0.051), row


@pytest.mark.parametrize("path", COMPARED, ids=_name)
def test_a_readme_says_at_which_sizes_a_difference_stays_shown_when_all_are_counted(path):
    pair, *others = analysis_of(path, 50).pairs or [None]
    if pair is None or others or _is_shared(path):
        return  # its README says who is ahead by the verdicts, or has the lines of the report
    corrected = [c.adjusted_p_value for c in pair.comparisons]
    shown = [f"{c.size:,}" for c, p in zip(pair.comparisons, corrected, strict=True) if p is not None and p < 0.05]
    told = ", ".join(shown) or "none"
    sentence = f"Holm over the {len(corrected)} sizes: p < .05 at n = {told}."
    assert sentence in " ".join(_readme_of(path).read_text().split())


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/README.md")), ids=_name)
def test_every_difference_that_a_readme_lists_is_one_that_report_prints(path):
    listed = re.findall(r"^- (n = [\d,]+: .+)$", path.read_text(), re.MULTILINE)
    tables = [table for table in TABLES if path.parent in table.parents]
    printed = [line for t in tables for line in comparison_lines(analysis_of(t, 50), most_pairs=1000)]
    assert {*listed} <= {*printed}


@pytest.mark.parametrize("path", [p for p in COMPARED if p.with_name("duplicates.json").exists()], ids=_name)
def test_a_readme_has_the_near_duplicates_of_its_report(path):
    found = findings_of(path.parent)
    table = duplicates_table(found.duplicates, found.longest, found.correct)
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    readme = _readme_of(path).read_text()
    for n, share in re.findall(r"^\| ([\d,]+) \|.*\| (0\.\d\d) % \|$", readme, re.MULTILINE):
        assert {row["share, %"] for row in rows if row["n"] == n} == {share}
    if most := re.search(r"accuracies fall by at most (\.\d+) points", readme):
        assert min(float(row["difference, points"]) for row in rows) == -float(most[1])


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(RESULTS.parent)))
def test_no_text_says_how_many_times_the_data_one_needs_where_no_analysis_does(path):
    """No recorded grid has one, but for linear probes: its budget ended too early, or nothing tells whether it did."""
    text = " ".join(path.read_text().split())
    assert not re.search(r"\d times the data|\d times as many \(|multiplier grows from", text)
    if path.with_name("results.csv") in COMPARED:
        found = analysis_of(path.with_name("results.csv"), 50)
        probes = {c.contender for c in found.convergence if c.reason == FITTED}  # which no budget limits
        pairs = [pair for pair in found.pairs if not {pair.ahead, pair.behind} <= probes]
        assert {m.value for pair in pairs for m in pair.multipliers} == {None}


@pytest.mark.parametrize("page", ["README.md", "docs/howto/your_images.md"])
def test_a_page_quotes_todays_answer(page):
    quoted = " ".join(re.findall(r"^> (.+)$", (RESULTS.parent / page).read_text(), re.MULTILINE))
    assert quoted == answer(analysis_of(RESULTS / "regimes_surface_cpu" / "results.csv", 200))


def test_the_recorded_comparison_has_the_figures_of_its_json_and_the_sign_of_its_pair():
    folder = RESULTS / "compare_cifar10"
    found = json.loads((folder / "comparison.json").read_text())
    readme = (folder / "README.md").read_text()
    first, second = (100 * group["top1"]["value"] for group in found["accuracy"]["groups"])
    assert f"ResNet-8 {second:.1f} %, ViT {first:.1f} %" in readme
    (said,) = found["conclusions"]
    assert said in " ".join(readme.split())
    surely = [one["name"] for one in found["accuracy"]["classes"] if one["p_corrected"] < 0.05]
    assert f"only {' and '.join(surely)} differ at p < .05" in " ".join(readme.split())


def test_the_maps_over_seeds_are_those_of_the_recorded_scores():
    readme = (RESULTS / "inspect" / "README.md").read_text()
    blocks = re.findall(r"<!-- benchmarks.maps (\S+) -->\n(.*?)\n<!-- end -->", readme, re.DOTALL)
    assert {place for place, _ in blocks} == {f"results/inspect/{name}/scores.csv" for name in ("ladder", "surface")}
    for place, told in blocks:
        assert told == maps.table_of(maps.over_seeds(RESULTS.parent / place))


def _printed(folder: str) -> list[str]:
    return comparison_lines(analysis_of(RESULTS / folder / "results.csv", 50))


def test_the_command_prints_what_the_block_holds(capsys):
    path = RESULTS / "cifar10_cpu" / "results.csv"
    assert main(["report", str(path)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for line in comparison_lines(analysis_of(path, 50)):
        assert line in printed
    assert "from accuracies alone" in printed
    assert not (path.parent / "report").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "there are no runs in it"),
        ("contender\nvit\n", "line 2: start: start_kind: it is missing"),
        ("a,b\n1,2\n", "line 2: a: there is no such column"),
    ],
)
def test_a_table_that_is_none_is_refused_in_one_line(tmp_path, text, says):
    path = tmp_path / "results.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        read_result_table(path)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (",500,0,", ",many,0,", 'line 2: train_size: expected a whole number, got "many"'),
        (",500,0,", ",0,0,", "line 2: train_size 0 must be at least 1"),
        ("\n", ",\n", "line 2: more cells than there are columns"),
    ],
)
def test_a_row_that_is_none_is_named_with_its_line(tmp_path, old, new, says):
    header, rows = (RESULTS / "cifar10_cpu" / "results.csv").read_text().split("\n", 1)
    (tmp_path / "results.csv").write_text(f"{header}\n{rows.replace(old, new, 1)}", encoding="utf-8-sig")
    with pytest.raises(InputError, match=says):
        read_result_table(tmp_path / "results.csv")


def test_differences_of_augmentations_are_those_of_the_report():
    folder = RESULTS / "augmentation_cpu"
    table = differences_table(findings_of(folder).analysis)
    rows = [dict(zip(table.columns, map(str, row), strict=True)) for row in table.rows]
    found = {frozenset((r["higher"].lower(), r["lower"].lower(), r["n"].replace(",", ""))): r for r in rows}

    def told(n: str, first: str, second: str) -> str:
        row = found[frozenset((first, second, n))]
        ends = [float(row[name]) for name in ("points", "from", "to")]
        if row["higher"].lower() != first:
            ends = [-ends[0], -ends[2], -ends[1]]
        return "{:.1f} ({:.1f} to {:.1f})".format(*ends)

    readme, sizes = (folder / "README.md").read_text(), ("1000", "5000", "50000")
    for name, title in (("resnet", "ResNet-8"), ("vit", "ViT nano"), ("cct", "CCT-2/3x2")):
        for n in sizes:
            gains = told(n, name, f"{name}_none"), told(n, f"{name}_strong", name)
            assert f"| {title} | {int(n):,} | {' | '.join(gains)} |" in readme
    for n in sizes:
        leads = (told(n, f"resnet{kind}", f"vit{kind}") for kind in ("_none", "", "_strong"))
        assert f"| n = {int(n):,} | {' | '.join(leads)} |" in readme
