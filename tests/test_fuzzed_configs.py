"""Random configs either run or give one line and exit code 2, never a traceback."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.fuzzed_configs import BASE, random_config
from vit_vs_cnn import cli
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, Interrupted
from vit_vs_cnn.experiments import runner, tuning


@pytest.fixture
def stops_before_training(monkeypatch, tmp_path):
    """``train`` stops before its first run."""
    for module in (runner, tuning):
        monkeypatch.setattr(module, "execute", Mock(side_effect=Interrupted("it would run")))
    monkeypatch.chdir(tmp_path)


def test_the_config_before_fuzzing_is_valid():
    assert experiment_from_dict(BASE).models.keys() == {"vit", "resnet"}


@pytest.mark.filterwarnings("ignore")  # of Lightning and timm
@pytest.mark.parametrize("numbers", [range(24), pytest.param(range(24, 250), marks=pytest.mark.slow)], ids=str)
def test_a_random_config_gives_a_one_line_error_or_would_run(numbers, stops_before_training, capsys):
    codes, bad = set(), []
    for number in numbers:
        Path("random.yaml").write_text(random_config(number), encoding="utf-8", errors="surrogatepass")
        code = cli.main(["train", "--config", "random.yaml"])
        printed = capsys.readouterr().err.splitlines()
        lines = [line for line in printed if not line.startswith("warning: ") and not line.endswith("...")]
        is_one_line = len(lines) == 1 and lines[0].startswith("error: ")
        bad += [] if code == EXIT_INTERRUPTED or is_one_line else [f"{number}: {code} {lines}"]
        codes.add(code)
    assert not bad, "\n".join(bad)
    assert codes == {EXIT_BAD_INPUT, EXIT_INTERRUPTED}
