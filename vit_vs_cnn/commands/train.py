"""``train``: run the contenders of a config."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from vit_vs_cnn.errors import CellsFailed, InputError
from vit_vs_cnn.plain import read_yaml

if TYPE_CHECKING:
    import vit_vs_cnn.regimes


def run(words: list[str]) -> None:
    """Train what is not finished yet and print the table."""
    if "-h" in words or "--help" in words:
        from vit_vs_cnn.config.help import settings_help

        print(settings_help(), end="")
        return
    values, overrides, wants_print = config_from(words)
    from vit_vs_cnn import api

    if wants_print:
        print(yaml.safe_dump(api.experiment_of(values, overrides).to_dict(), sort_keys=False), end="")
        return
    try:
        found = api.train(values, overrides)
    except CellsFailed as error:
        if error.found is not None:
            print_findings(error.found)
        raise
    if found is None:  # a process that trained beside the first one, which prints
        return
    print_findings(found)
    if found.page is not None:
        print(f"The report is {found.page}")
    print(f"Everything is in {found.folder}")


def print_findings(found: "vit_vs_cnn.regimes.Findings") -> None:
    """The table and what may be said of it."""
    from rich.console import Console

    from vit_vs_cnn.reporting.tables import comparison_lines, print_table

    console = Console()
    print_table(found.results, found.analysis, title=found.folder.resolve().name, console=console)
    for line in comparison_lines(found.analysis):
        console.print(line, soft_wrap=True)


def config_from(words: list[str]) -> tuple[dict[str, Any], dict[str, Any], bool]:
    """The config files of a command line laid over each other, its other settings, and whether to print them all."""
    from vit_vs_cnn.config.experiment import merge, quickstart_path, read_config

    pairs = _pairs(words)
    values: dict[str, Any] = {}
    for file in [value for key, value in pairs if key == "config"] or [quickstart_path()]:
        merge(values, read_config(Path(file)))
    overrides: dict[str, Any] = {}
    for key, value in pairs:
        if key not in ("config", "print_config"):
            overrides.pop(key, None)  # what is named last is laid over the rest
            overrides[key] = _value(value, key)
    return values, overrides, ("print_config", "") in pairs


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
