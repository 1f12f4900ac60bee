"""What is told while a command runs."""

import warnings
from datetime import UTC, datetime

from vit_vs_cnn.told import console_for_news, warnings_in_lines
from vit_vs_cnn.workers import work
from vit_vs_cnn.workers.resumed import Turns


def test_brackets_and_colons_of_a_message_are_told_as_they_are(capsys):
    console_for_news().print("failed: no such file: [/data/x.png] in [test] :smile:", soft_wrap=True)
    console_for_news(quiet=True).print("[/nothing]")
    assert capsys.readouterr().err == "failed: no such file: [/data/x.png] in [test] :smile:\n"


def test_a_warning_is_one_line_told_once_and_those_of_libraries_are_not_told(capsys):
    before = warnings.showwarning
    with warnings_in_lines():
        warnings.simplefilter("always")
        for text in ("disk\nis full", "disk\nis full", "other"):
            warnings.warn(text, stacklevel=1)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: disk is full\nwarning: other\n"
    assert warnings.showwarning is before


def test_workers_warn_as_the_command_does(capsys, monkeypatch):
    def take_cells(*_, **__):
        warnings.simplefilter("always")
        warnings.warn("tested twice", stacklevel=1)

    monkeypatch.setattr(work, "take_cells", take_cells)
    monkeypatch.setattr(work, "_pool_of", lambda _: None)
    monkeypatch.setattr(work.Order, "left", lambda _: [None])
    assert work.work(work.Order([], Turns(datetime.now(UTC), retries=0), threads=1)).kind == "through"
    assert capsys.readouterr().err == "warning: tested twice\n"
