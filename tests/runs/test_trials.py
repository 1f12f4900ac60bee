"""The table of trials is read as it was written, and damaged tables are reported in one line."""

import pytest

from tests.refused import refused
from vit_vs_cnn.runs.trials import Trial, rank_trials, read_trials, write_trials


def trial(number=0, accuracy=0.5, **changes):
    values = {"model": "vit", "train_size": 500, "trial": number, "state": "complete", "budget": "4 steps", "steps": 4}
    values |= {"flops": 1e9, "validation_accuracy": accuracy, "validation_loss": 1.5, "seeds": (0, 1)}
    values |= {"values": {"optimizer": {"name": "sgd", "lr": 0.1}, "schedule.warmup": 0.2}, "runs": ("a", "b")}
    return Trial(**(values | changes))


def test_trials_are_read_as_written_and_the_best_comes_first(tmp_path):
    trials = [trial(), trial(1, None, state="diverged", validation_loss=None, values={})]
    write_trials(tmp_path / "tuning.csv", trials)
    assert read_trials(tmp_path / "tuning.csv") == trials
    trials = [trial(0, 0.4), trial(1, None, state="diverged"), trial(2, 0.6), trial(3, 0.6, validation_loss=1.0)]
    assert [one.trial for one in rank_trials(trials)] == [3, 2, 0, 1]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("model,", "contestant,", "line 2: model: has to be given"),
        ("1000000000.0", "many", "line 2: flops: expected a number, got many"),
        ('"[0, 1]"', "{}", "line 2: seeds: "),
    ],
)
def test_a_damaged_table_gives_a_one_line_error(tmp_path, old, new, message):
    path = tmp_path / "tuning.csv"
    write_trials(path, [trial()])
    path.write_text(path.read_text().replace(old, new))
    with refused(message):
        read_trials(path)
