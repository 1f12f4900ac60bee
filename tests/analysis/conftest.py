"""Results that several modules of these tests read."""

from pathlib import Path

import numpy as np
import pytest

from vit_vs_cnn.runs.record import read_result_table
from vit_vs_cnn.runs.result import RunResult

RECORD = Path(__file__).parents[2] / "results" / "regimes_cpu"


@pytest.fixture(scope="session")
def regimes_cpu() -> tuple[list[RunResult], dict[str, np.ndarray]]:
    """Results of two models at five sizes with three seeds, and the correctness of their predictions."""
    with np.load(RECORD / "predictions.npz") as stored:
        correct = dict(zip(stored["runs"].tolist(), stored["classes"] == stored["labels"], strict=True))
    return read_result_table(RECORD / "results.csv"), correct
