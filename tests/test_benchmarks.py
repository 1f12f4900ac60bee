"""The GPU's benchmark stops when it is told to, goes on where it was, tells what failed; ratios; the table."""

import json
import shutil
import signal
import subprocess
import sys
import tarfile
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import cues, gpu, gpu_pieces, guard, maps, reruns
from benchmarks.__main__ import table
from benchmarks.analysis import Case, draw_experiment
from benchmarks.timing import Row
from tests.results import changed, make_result
from vit_vs_cnn.data.synthetic.source import render_objects
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.runs.grid import finished_cells
from vit_vs_cnn.runs.record import PackedPredictions, table_text


def call(out: Path, *given: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.gpu", "--tiny", "--parts", "seconds", "--out", str(out)]
    command += map(str, given)
    return subprocess.Popen(
        command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def begun(told: str) -> list[str]:
    return [line.split(" s  ")[1] for line in told.splitlines() if " s  " in line and line.split()[-1] in gpu.PIECES]


@pytest.mark.slow
def test_it_stops_when_told_goes_on_and_never_repeats_what_is_finished(tmp_path):
    _, *others = (piece for piece in gpu.PIECES if piece.startswith("seconds."))
    with call(tmp_path / "a") as stopped:
        assert stopped.stdout is not None
        for line in stopped.stdout:
            if line.strip().endswith(others[0]):
                stopped.send_signal(signal.SIGTERM)
                break
        told = stopped.stdout.read()
    assert stopped.returncode == 0
    assert f"to be resumed with --resume {tmp_path / 'a' / 'gpu.tar.gz'}: {', '.join(others)}\n" in told

    resumed = call(tmp_path / "b", "--resume", tmp_path / "a" / "gpu.tar.gz")
    told, _ = resumed.communicate()
    assert (resumed.returncode, begun(told)) == (0, others), told
    rows = json.loads((tmp_path / "b" / "gpu.json").read_text())["rows"]
    assert not [row for row in rows if row["value"] is None]
    assert [row for row in rows if "test accuracy" in row["name"]]

    again = call(tmp_path / "c", "--resume", tmp_path / "b" / "gpu.tar.gz")
    told, _ = again.communicate()
    assert (again.returncode, begun(told)) == (0, [])
    assert "all is finished" in told
    assert json.loads((tmp_path / "c" / "gpu.json").read_text())["rows"] == rows


def test_the_archive_is_cut_and_holds_checkpoints_of_unfinished_cells_alone(tmp_path):
    cells = {name: tmp_path / "a" / "runs" / "duel" / "duel" / "cells" / name for name in ("finished", "begun")}
    for folder in cells.values():
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "checkpoints" / "last.ckpt").write_bytes(bytes(torch.randint(256, (50_000,)).tolist()))
    (cells["finished"] / "result.json").write_text("{}")
    gpu.keep(tmp_path / "a", "duel", [Row("made", 2.0)], is_finished=False)
    gpu.pack(tmp_path / "a", 20_000)
    archive = tmp_path / "a" / "gpu.tar.gz"
    assert sorted(path.name for path in tmp_path.glob("a/gpu.*")) == [
        archive.name,
        *(f"{archive.name}.{i}" for i in (1, 2)),
    ]
    gpu.unpack(archive, tmp_path / "b")
    assert gpu.found(tmp_path / "b", "duel") == gpu.found(tmp_path / "a", "duel")
    assert [path.parents[1].name for path in tmp_path.glob("b/**/last.ckpt")] == ["begun"]
    for broken in (archive.with_name(f"{archive.name}.1"), archive):
        broken.unlink()
        with pytest.raises(InputError, match="of an earlier call"):
            gpu.unpack(archive, tmp_path / "c")
    gpu.pack(tmp_path / "a", 10**6)
    assert [path.name for path in tmp_path.glob("a/gpu.*")] == [archive.name]


def test_an_archive_cannot_write_outside_of_its_folder(tmp_path):
    with tarfile.open(tmp_path / "gpu.tar.gz", "w:gz") as archive:
        (tmp_path / "evil").write_text("")
        archive.add(tmp_path / "evil", "../../evil")
    with pytest.raises(InputError):
        gpu.unpack(tmp_path / "gpu.tar.gz", tmp_path / "inner" / "out")


def test_a_way_that_fails_is_a_row_and_the_others_are_timed(monkeypatch):
    class Way:
        device = torch.device("cpu")

        def __init__(self, message: str = "") -> None:
            self.message = message

        def ask(self) -> None:
            if self.message:
                raise RuntimeError(self.message)

    rows: list[Row] = []
    ways = {"graphs": Way("operation not\npermitted"), "eager": Way()}
    times = gpu_pieces._timed(ways, Namespace(tiny=True), rows)  # type: ignore[arg-type]
    assert [*times] == ["eager"]
    assert [" ".join(row.text.split()) for row in rows] == [
        "graphs not measured: RuntimeError: operation not permitted"
    ]


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H200", 989),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA A100-SXM4-40GB", 312),
        ("NVIDIA GeForce RTX 4090", 165),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", None),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H200 NVL", None),
    ],
)
def test_the_peak_is_of_the_very_device_or_measured(monkeypatch, name, peak):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: name)
    monkeypatch.setattr(gpu_pieces, "_measured_peak", lambda _: (1.0, "measured"))
    args = Namespace(peak_tflops=None, device="cuda", tiny=True)
    assert gpu_pieces._peak(args) == ((1.0, "measured") if peak is None else (peak, "data sheet"))
    assert gpu_pieces._peak(Namespace(peak_tflops=7.0)) == (7.0, "as given")


def test_seconds_leave_interrupted_runs_out_where_there_are_others(tmp_path):
    for seed, (seconds, accuracy) in enumerate([(10.0, 0.92), (14.0, 0.94), (99.0, 0.96)]):
        cell = tmp_path / str(seed)
        cell.mkdir()
        (cell / "result.json").write_text(make_result(accuracy=accuracy, train_seconds=seconds).to_json())
    (tmp_path / "2" / "was_interrupted").touch()
    accuracy, seconds, _ = gpu_pieces._rows_of("short", tmp_path.glob("*/result.json"), (93, 15))
    assert (accuracy.value, accuracy.goal, accuracy.at_most) == (pytest.approx(94), 93, False)
    assert (seconds.value, seconds.low, seconds.high) == pytest.approx((12, 12 - 8**0.5, 12 + 8**0.5))
    assert (seconds.goal, seconds.at_most, seconds.note) == (15, True, "")
    for seed in range(2):
        (tmp_path / str(seed) / "was_interrupted").touch()
    assert "interrupted runs" in gpu_pieces._rows_of("short", tmp_path.glob("*/result.json"), None)[1].note


def test_a_ratio_in_bf16_is_not_measured_without_units_for_it(monkeypatch):
    def fail(_: Path) -> dict:
        raise AssertionError

    monkeypatch.setattr(guard, "bf16_units", list)
    row = guard.Ratio("a ratio", fail, "slow", "fast", needs_bf16=True).measure()
    assert row.value is None
    assert row.text.endswith("not measured: no bf16 units")


def test_a_ratio_above_one_says_that_the_second_way_is_faster(monkeypatch):
    monkeypatch.setattr(guard, "in_turns", lambda *_, **__: {"slow": np.full(3, 6.0), "fast": np.full(3, 2.0)})
    assert guard.Ratio("a ratio", lambda _: {}, "slow", "fast").measure().value == 3


def test_the_table_of_speed_says_what_missed_its_goal():
    rows = [asdict(Row("quick", 2.0, goal=1.5)), asdict(Row("slow", 9.0, unit="s", goal=6, at_most=True))]
    part = {"command": "python -m benchmarks.start", "commit": "abc", "load": "0.1", "rows": rows}
    quick, slow = table({"a machine": {"start": part}}).splitlines()[-2:]
    assert "| quick | 2 x |  | at least 1.5 |" in quick
    assert "| slow | 9 s |  | at most 6, **missed** |" in slow


def test_reruns_are_paired_by_place_and_seed_and_their_spread_is_that_of_one(tmp_path):
    """Differences of two runs have twice the variance of one."""
    drawn = np.random.default_rng(0).normal(scale=0.02 * 2**0.5, size=4001)
    sd, low, high = reruns.spread(drawn.tolist())
    assert low < sd < high and sd == pytest.approx(0.02, rel=0.05)
    assert reruns.spread([0.02, -0.02])[0] == pytest.approx(0.02 / 2**0.5)
    case = Case(2, (110, 230), 2, 101, {})
    one, two = (draw_experiment(case, tmp_path / name, "duel") for name in ("a", "b"))
    found = reruns.pairs_of(one, two)
    assert {(name, n) for name, n, _ in found} == {(name, n) for name in ("vit", "resnet") for n in (110, 230)}
    assert all(pairs == [(0.0, 0.0)] * 2 for pairs in found.values())
    table = tmp_path / "results.csv"
    results = finished_cells(one).values()
    table.write_text(table_text([changed(result, accuracy=result.accuracy + 0.01).to_row() for result in results]))
    of_table = reruns.pairs_of(table, two)
    assert of_table.keys() == found.keys()
    for difference, share in [pair for pairs in of_table.values() for pair in pairs]:
        assert difference == pytest.approx(0.01) and np.isnan(share)
    with pytest.raises(InputError, match="one place"):
        reruns.pairs_of(one, one)


def test_answers_are_counted_by_the_cue_that_they_name(tmp_path):
    """Predictions of the record, those of the ViT replaced by the textures."""
    recorded = Path(__file__).parents[1] / "results" / "cues" / "agreement_0.8"
    shutil.copytree(recorded, tmp_path / "run")
    drawn = render_objects(2000, split="test", shape_agreement=0.8, texture_agreement=0.0)
    path = tmp_path / "run" / "predictions.npz"
    packed = PackedPredictions.load(path)
    packed.classes[[run.startswith("vit-") for run in packed.runs]] = drawn.textures.numpy()
    packed.save(path)
    resnet, vit = cues.answered(tmp_path / "run")
    assert (vit.contender, {*vit.shape}, {*vit.texture}) == ("vit", {0.0}, {1.0})
    assert all(shape > texture > 0 for shape, texture in zip(resnet.shape, resnet.texture, strict=True))
    assert resnet.images == int((drawn.shapes != drawn.textures).sum()) < 2000
    with pytest.raises(InputError, match="not of drawn images of the task shape"):
        cues.answered(recorded.parents[1] / "reach" / "distance_0.6")


def test_scores_over_seeds_are_the_mean_with_the_least_and_the_greatest_and_the_stars_of_each(tmp_path):
    table = tmp_path / "scores.csv"
    columns = [*maps.SHOWN, "deletion_mean_p_holm", "insertion_mean_p_holm", *maps.STAYS]
    rows = [
        "vit-s-n7-s0,rollout,False,0.1,0.2,0.3,0.4,0.04,0.2,1.0,0.5",
        "vit-s-n7-s0,random,False,0.0,0.0,0.0,0.0,,,1.0,1.0",
        "vit-s-n7-s11,rollout,False,0.4,0.2,0.3,0.4,0.04,0.01,1.0,",
        "outside,relevance,True,0.7,0.2,0.3,0.4,0.06,0.01,0.6,0.0",
    ]
    table.write_text("\n".join([",".join(["network", "method", "class_specific", *columns]), *rows]))
    rollout, random, relevance = maps.over_seeds(table)
    assert (rollout.recipe, rollout.stars, rollout.measures) == ("vit-s-n7", (1, 2), 2)
    assert rollout.values["sanity_all"] == (0.5,)
    assert (random.stars, relevance.recipe, relevance.stars) == ((), "outside", (1,))
    told = maps.table_of([rollout, random, relevance]).splitlines()[2:]
    assert told[0].startswith("| vit-s-n7 | rollout | 0.25 (0.10 to 0.40) | 0.20 (0.20 to 0.20) |")
    assert told[0].endswith("| 1, 2 of 2 | class-agnostic | 0.50 (0.50 to 0.50) |")
    assert told[1].endswith("| 0.00 (0.00 to 0.00) | - | - | - |")
    assert told[2].endswith("| 1 of 2 | 0.60 (0.60 to 0.60) | 0.00 (0.00 to 0.00) |")
    with pytest.raises(InputError, match="no column 'deletion_mean'"):
        maps.over_seeds(_written(tmp_path / "other.csv", "network,method\nvit,rollout\n"))
    with pytest.raises(InputError, match="cannot be read"):
        maps.over_seeds(tmp_path / "none.csv")


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
