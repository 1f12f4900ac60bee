"""What is told while a command runs."""

import warnings
from types import SimpleNamespace

from vit_vs_cnn.console import one_line_warnings, open_console
from vit_vs_cnn.workers import worker


def test_brackets_and_colons_of_a_message_are_told_as_they_are(capsys):
    open_console().print("failed: no such file: [/data/x.png] in [test] :smile:", soft_wrap=True)
    open_console(quiet=True).print("[/nothing]")
    assert capsys.readouterr().err == "failed: no such file: [/data/x.png] in [test] :smile:\n"


def test_a_warning_is_one_line_told_once_and_those_of_libraries_are_not_told(capsys):
    before = warnings.showwarning
    with one_line_warnings():
        warnings.simplefilter("always")
        for text in ("disk\nis full", "disk\nis full", "other"):
            warnings.warn(text, stacklevel=1)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: disk is full\nwarning: other\n"
    assert warnings.showwarning is before


def test_workers_warn_as_the_command_does(capsys, monkeypatch):
    def take_runs(*_, **__):
        warnings.simplefilter("always")
        warnings.warn("tested twice", stacklevel=1)

    monkeypatch.setattr(worker, "take_runs", take_runs)
    run = SimpleNamespace(experiment=SimpleNamespace(protocol=SimpleNamespace(threads=1)), fingerprint="f")
    monkeypatch.setattr(worker.ExperimentData, "from_experiment", lambda *_, **__: run)
    monkeypatch.setattr(worker.WorkRequest, "unfinished", lambda _: [run])
    request = worker.WorkRequest([], 0)
    assert worker.work(request) is None
    assert capsys.readouterr().err == "warning: tested twice\n"
