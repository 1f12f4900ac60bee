"""The command line: ``train``, ``report``, ``models``, ``figures``."""

import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from vit_vs_cnn.errors import BAD_INPUT, INTERRUPTED, InputError, Interrupted

USAGE = """usage: vit-vs-cnn COMMAND ...   (or: python -m vit_vs_cnn COMMAND ...)

Train a Vision Transformer and a CNN under one protocol and see which serves your images better.

  train [--config FILE] [--setting value ...]   train the contenders of a config and print the table;
                                                without a config, the quickstart on drawn images
        --print_config                          print the config with every default and stop
        --help                                  every setting
  report EXPERIMENT_DIR                         print the table of what is finished, write it as CSV and Markdown
  models                                        list the models by name, with parameters and MACs
  figures FOLDER                                draw every figure of the lesson on attention into a folder
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code: 0, 2 for input that cannot be used, 130 for a run that was asked to stop."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    commands: dict[str, Callable[[list[str]], None]] = {
        "train": _train,
        "report": _report,
        "models": _models,
        "figures": _figures,
        "cell": _cell,
    }
    if not words or words[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    warnings.showwarning = _print_warning
    try:
        if words[0] not in commands:
            raise InputError(f"{words[0]!r} is no command; there are: train, report, models, figures (see --help)")
        commands[words[0]](words[1:])
    except InputError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return BAD_INPUT
    except OSError as error:  # a full disk, a folder that may not be written to
        print(f"error: {error.filename or 'input or output'}: {error.strerror or error}", file=sys.stderr)
        return BAD_INPUT
    except (Interrupted, KeyboardInterrupt) as error:
        print(f"{str(error) or 'stopped'}; the same command goes on from the last checkpoint", file=sys.stderr)
        return INTERRUPTED
    return 0


def _print_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """One line, as for errors: whoever uses the command line has no use for the place in our code."""
    if issubclass(category, UserWarning):
        print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)


def _train(words: list[str]) -> None:
    if "-h" in words or "--help" in words:
        from vit_vs_cnn.experiments.help import settings_help

        print(settings_help(), end="")
        return
    values, wants_print = _config_from(words)
    from vit_vs_cnn.experiments.config import experiment_from_dict

    experiment = experiment_from_dict(values)
    if wants_print:
        print(yaml.safe_dump(experiment.to_dict(), sort_keys=False), end="")
        return
    from rich.console import Console

    from vit_vs_cnn.experiments.runner import run_experiment
    from vit_vs_cnn.reporting.tables import comparison_lines, print_table, write_tables

    console = Console()
    results = run_experiment(experiment, console=console)
    if not results:  # a process that trained beside the first one, which prints
        return
    print_table(results, title=experiment.name, console=console)
    for line in comparison_lines(experiment.folder, results):
        console.print(line, soft_wrap=True)
    write_tables(results, experiment.folder / "report")
    console.print(f"Everything is in {experiment.folder}", soft_wrap=True)


def _config_from(words: list[str]) -> tuple[dict[str, Any], bool]:
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
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"argument --{key}: {text!r} is not a YAML value") from error


def _report(words: list[str]) -> None:
    folder = Path(_only(words, "EXPERIMENT_DIR"))
    from rich.console import Console

    from vit_vs_cnn.experiments.runner import read_results
    from vit_vs_cnn.reporting.tables import comparison_lines, print_table, write_tables

    results, console = read_results(folder), Console()
    print_table(results, title=folder.name, console=console)
    for line in comparison_lines(folder, results):
        console.print(line, soft_wrap=True)
    for path in write_tables(results, folder / "report"):
        console.print(f"wrote {path}", soft_wrap=True)


def _models(words: list[str]) -> None:
    if words:
        raise InputError(f"argument {words[0]!r}: models takes none")
    from vit_vs_cnn.models import create_model, list_models
    from vit_vs_cnn.reporting.tables import in_millions

    from vit_vs_cnn.comparison.cost import count_macs, count_parameters  # isort: skip

    for name in list_models():
        model = create_model(name, num_classes=10, image_size=32)
        parameters, macs = in_millions(count_parameters(model)), in_millions(count_macs(model, (3, 32, 32)))
        print(f"{name:<16} {parameters:>7} parameters  {macs:>7} MACs")
    print("timm/<name>      any model of timm")


def _figures(words: list[str]) -> None:
    folder = Path(_only(words, "FOLDER"))
    from rich.progress import track

    from vit_vs_cnn.reporting.attention_figures import FIGURES, draw_attention_figures

    folder.mkdir(parents=True, exist_ok=True)
    for name in track(FIGURES, "Drawing", transient=True):
        for path in draw_attention_figures(folder, [name]):
            print(f"wrote {path}")


def _cell(words: list[str]) -> None:
    """Run one cell in a process of its own: what ``train`` calls where a run is shared by several devices."""
    folder = Path(_only(words, "CELL_DIR"))
    from rich.console import Console

    from vit_vs_cnn.experiments.cell_run import run_cell
    from vit_vs_cnn.experiments.pool import Pool
    from vit_vs_cnn.experiments.runner import read_cell

    cell = read_cell(folder)
    run_cell(cell, Pool(cell.experiment.data, cell.experiment.protocol.scored_on), console=Console())


def _only(words: list[str], what: str) -> str:
    if len(words) != 1 or words[0].startswith("-"):
        raise InputError(f"expected one argument, {what}, got {' '.join(words) or 'none'}")
    return words[0]
