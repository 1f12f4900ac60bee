"""No config ends in a traceback, whatever is in it: one line and exit code 2, or it would run."""

from pathlib import Path

import pytest

from tests.fuzzed_configs import BASE, drawn_config
from vit_vs_cnn import cli
from vit_vs_cnn.config.experiment import experiment_from_dict
from vit_vs_cnn.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, Interrupted
from vit_vs_cnn.experiments import runner, tuning


@pytest.fixture
def stops_before_training(monkeypatch, tmp_path):
    """``train`` goes as far as its first cell."""

    def stop(*_, **__):
        raise Interrupted("it would run")

    for module in (runner, tuning):
        monkeypatch.setattr(module, "execute", stop)
    monkeypatch.chdir(tmp_path)


def test_the_config_that_is_changed_is_one_that_runs():
    assert experiment_from_dict(BASE).contenders.keys() == {"vit", "resnet"}


@pytest.mark.filterwarnings("ignore")  # of Lightning and timm, about settings that one would not choose
@pytest.mark.parametrize("numbers", [range(24), pytest.param(range(24, 250), marks=pytest.mark.slow)], ids=str)
def test_a_drawn_config_ends_in_one_line_or_would_run(numbers, stops_before_training, capsys):
    endings = {}
    for number in numbers:
        Path("drawn.yaml").write_text(drawn_config(number), encoding="utf-8", errors="surrogatepass")
        code = cli.main(["train", "--config", "drawn.yaml"])
        said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("warning: ")]
        endings[number] = (code, said)
    bad = {
        number: (code, said)
        for number, (code, said) in endings.items()
        if not (
            code == EXIT_INTERRUPTED or (code == EXIT_BAD_INPUT and len(said) == 1 and said[0].startswith("error: "))
        )
    }
    assert not bad, "\n".join(f"{number}: {code} {said}" for number, (code, said) in bad.items())
    assert {code for code, _ in endings.values()} == {EXIT_BAD_INPUT, EXIT_INTERRUPTED}
