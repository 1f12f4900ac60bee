"""``train``: run the contenders of a config."""

from pathlib import Path
from typing import Any

import yaml

from vit_vs_cnn.errors import CellsFailed, InputError
from vit_vs_cnn.plain import read_yaml


def run(words: list[str]) -> None:
    """Train what is not finished yet and print the table."""
    if "-h" in words or "--help" in words:
        from vit_vs_cnn.experiments.help import settings_help

        print(settings_help(), end="")
        return
    values, wants_print = config_from(words)
    from vit_vs_cnn.experiments.config import experiment_from_dict

    experiment = experiment_from_dict(values)
    if wants_print:
        print(yaml.safe_dump(experiment.to_dict(), sort_keys=False), end="")
        return
    from rich.console import Console

    from vit_vs_cnn.experiments.planner import planned
    from vit_vs_cnn.experiments.regimes import findings_of
    from vit_vs_cnn.experiments.runner import finished_results, run_experiment
    from vit_vs_cnn.reporting.regime_report import write_report
    from vit_vs_cnn.reporting.tables import comparison_lines, print_table

    console = Console()
    experiment = planned(experiment, fixed=[key for key, _ in _pairs(words)], console=console)
    failed = None
    try:
        results = run_experiment(experiment, console=console)
    except CellsFailed as error:
        failed, results = error, finished_results(experiment.folder)
    if failed is None and not results:  # a process that trained beside the first one, which prints
        return
    if results:
        found = findings_of(experiment.folder)
        print_table(found.results, found.analysis, title=experiment.name, console=console)
        for line in comparison_lines(found.analysis):
            console.print(line, soft_wrap=True)
        write_report(experiment.folder, findings=found)
    if failed is not None:
        raise failed
    console.print(f"The report is {experiment.folder / 'report' / 'index.html'}", soft_wrap=True)
    console.print(f"Everything is in {experiment.folder}", soft_wrap=True)


def config_from(words: list[str]) -> tuple[dict[str, Any], bool]:
    """The config files and overrides of a command line, in their order, as plain values; and whether to print them."""
    from vit_vs_cnn.experiments.config import merge, override, quickstart_path, read_config

    files = [value for key, value in _pairs(words) if key == "config"]
    values: dict[str, Any] = {}
    for file in files or [quickstart_path()]:
        merge(values, read_config(Path(file)))
    wants_print = False
    for key, value in _pairs(words):
        if key == "print_config":
            wants_print = True
        elif key != "config":
            override(values, key, _value(value, key))
    return values, wants_print


def _pairs(words: list[str]) -> list[tuple[str, str]]:
    """``--key value`` and ``--key=value`` as pairs."""
    pairs, rest = [], list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or word == "--":
            raise InputError(f"argument {word!r}: expected --setting value (see --help)")
        key, equals, value = word[2:].partition("=")
        if key == "print_config":
            pairs.append((key, ""))
        elif equals:
            pairs.append((key, value))
        elif rest:
            pairs.append((key, rest.pop(0)))
        else:
            raise InputError(f"argument --{key} needs a value")
    return pairs


def _value(text: str, key: str) -> Any:
    try:
        return read_yaml(text, where=f"argument --{key}: {text[:80]!r}")
    except InputError as error:
        raise InputError(str(error).replace(" is not YAML: ", " is not a YAML value: ")) from error
