"""Made-up results of runs, without training."""

from typing import Any

from vit_vs_cnn.runs.result import RunResult

#: One value for each required field, by its name.
REQUIRED: dict[str, Any] = {
    **{"model": "vit", "train_size": 101, "seed": 0, "accuracy": 0.5, "scored_on": "test", "scored_images": 1009},
    **{"weights": "0", "start_kind": "from scratch", "subset": "s", "training_images": 89, "validation_images": 12},
    **{"parameters": 10_007, "macs": 100_003, "steps": 400, "images_processed": 51_200, "passes": 3},
    **{"train_seconds": 7.0, "devices": 1, "precision": "32-true"},
    **{"began": "2026-01-01T00:00:00+00:00", "ended": "2026-01-01T00:00:09+00:00"},
}


def make_result(**values: Any) -> RunResult:
    """A result with values given by the names of fields, also of fields of its parts."""
    row = REQUIRED | values
    row.setdefault("run", f"{row['model']}-n{row['train_size']}-s{row['seed']}")
    return RunResult.from_row(row, "made")


def changed(result: RunResult, **values: Any) -> RunResult:
    """A copy with other values of some fields. None removes a value."""
    return RunResult.from_row(result.to_row() | values, "changed")
