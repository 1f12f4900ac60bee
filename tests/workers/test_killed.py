"""Killed anywhere and run again, an experiment ends in the report of an undisturbed run."""

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml

from tests import children
from tests.experiments.tiny import tiny_config
from vit_vs_cnn.runs.experiment_folder import read_finished_results

#: Tables with measured times, and texts of the lines of the page that contain some.
TIMED, TIMED_LINES = {"results.csv", "models.csv"}, (b"In equal training time", b"<td>from scratch</td>")


def _train(config: Path) -> None:
    from vit_vs_cnn.cli import main

    torch.set_num_threads(1)
    raise SystemExit(main(["train", "--config", str(config)]))


def _changes(folder: Path) -> Iterator[int]:
    """Number of changes of the files in a folder, by polling."""
    last, count = _stamps(folder), 0
    while True:
        now = _stamps(folder)
        count += len(set(now.items()) ^ set(last.items()))
        last = now
        yield count


def _stamps(folder: Path) -> dict[Path, int]:
    stamps = {}
    for path in folder.rglob("*"):
        try:
            stamps[path] = path.stat().st_mtime_ns
        except FileNotFoundError:  # deleted in between
            continue
    return stamps


def _config(folder: Path) -> Path:
    values = tiny_config(folder / "runs", train_sizes=[60, 120], seeds=[3, 4], budget={"steps": 20})
    values["data"]["synthetic"] |= {"image_size": 16}
    values["models"]["resnet"]["options"]["width"] = 2
    folder.mkdir()
    (folder / "tiny.yaml").write_text(yaml.safe_dump(values))
    return folder / "tiny.yaml"


def _untimed(path: Path) -> list[bytes]:
    return [line for line in path.read_bytes().splitlines() if not any(text in line for text in TIMED_LINES)]


@pytest.mark.slow
def test_an_experiment_killed_at_random_times_gives_the_same_report(tmp_path):
    uninterrupted, killed = _config(tmp_path / "calm"), _config(tmp_path / "killed")
    assert children.exit_code(children.start(_train, uninterrupted)) == 0
    chance, finished, deaths = random.Random(7), {}, 0
    while len(finished) < 5:
        child, strike = children.start(_train, killed), chance.randrange(5, 150)
        for changes in _changes(killed.parent):
            if changes >= strike or not child.is_alive():
                break
            time.sleep(0.005)
        child.kill()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        deaths += 1
        now = {path: path.stat().st_mtime_ns for path in killed.parent.glob("runs/tiny/*/result.json")}
        assert finished.items() <= now.items()  # finished runs are not repeated
        finished = now
    assert deaths >= 4
    assert children.exit_code(children.start(_train, killed)) == 0

    folders = [config.parent / "runs" / "tiny" for config in (uninterrupted, killed)]
    first, second = ({p.relative_to(f): _untimed(p) for p in f.glob("report/**/*.*")} for f in folders)
    assert first.keys() == second.keys()
    assert [str(name) for name in first if first[name] != second[name] and name.name not in TIMED] == []
    ours, theirs = (
        {
            r.run: (r.weights, r.accuracy, r.scores.loss, r.scores.test_evaluations)
            for r in read_finished_results(f).values()
        }
        for f in folders
    )
    assert ours == theirs
    assert len(next(folders[1].parent.glob("test-sets/*.jsonl")).read_text().splitlines()) == 8
