"""The command line: runs a command, prints its result, and turns errors into one line and an exit code."""

import dataclasses
import difflib
import gc
import io
import json
import os
import platform
import re
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from vit_vs_cnn import __version__
from vit_vs_cnn.console import format_millions, one_line_warnings, open_console
from vit_vs_cnn.errors import (
    EXIT_BAD_INPUT,
    EXIT_INTERRUPTED,
    EXIT_RUNS_FAILED,
    InputError,
    Interrupted,
    RunsFailed,
    one_line,
)
from vit_vs_cnn.files import CommandResult
from vit_vs_cnn.mappings import group_by
from vit_vs_cnn.process import keep_freed_memory, record_interrupt

if TYPE_CHECKING:
    from vit_vs_cnn.commands import Command

#: Commands that can be resumed after a stop. ``run`` is internal: ``train`` starts it for one run on several devices.
TRAINING_COMMANDS = ("train", "tune", "run")
#: New objects after which the collector looks for cycles. Imported libraries create half a million objects.
GARBAGE_THRESHOLD = 100_000
#: Parts of the messages of PyTorch and NumPy about exhausted memory.
OUT_OF_MEMORY_TEXTS = ("not enough memory", "can't allocate memory", "Unable to allocate", "out of memory")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and print an error as one line, after the traceback if it is a bug.

    Returns:
        exit code: 0; 1 if runs or the program failed; 2 for unusable input; 130 if the user stopped it.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # names in other scripts are printed on any terminal
    gc.set_threshold(GARBAGE_THRESHOLD)
    if words and words[0] in TRAINING_COMMANDS:
        keep_freed_memory()
    interrupted = threading.Event()
    try:
        with record_interrupt(interrupted), one_line_warnings():
            call, print_result = read_words(words)
            try:
                result = call()
            except RunsFailed as error:
                if error.findings is not None:
                    print_result(error.findings)
                raise
            if result is not None:  # None in the other processes of a training on several devices
                print_result(result)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:
        is_replaced = interrupted.is_set() and not isinstance(error, Interrupted)
        code, lines = describe_error(KeyboardInterrupt() if is_replaced else error, words)
        print("\n".join(lines), file=sys.stderr)
        return code
    return 0


def read_words(words: list[str]) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """Parse a command line: a function that executes the command, and one that prints its result."""
    name, *rest = words or ["--help"]
    if name == "--version":
        return describe_versions, print
    if name == "run":
        return partial(execute_run, rest), print
    from vit_vs_cnn.commands import COMMANDS, completion_script, usage

    if name == "--completion":
        return partial(completion_script, " ".join(rest)), print
    if name in ("-h", "--help"):
        return usage, print
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise InputError(f"{name!r} is not a command{hint} (there are: {', '.join(COMMANDS)}; see --help)")
    return read_command(COMMANDS[name], rest)


def read_command(command: "Command", words: list[str]) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """Read the words after the name of a command: the call, and the function that prints its result."""
    from vit_vs_cnn.api import load_experiment

    if {"-h", "--help"} & {*(words[: words.index("--")] if "--" in words else words)}:
        return command.help, print
    paths, options, overrides = command.read(words)
    in_json = options.pop("json", False)
    if options.pop("print_config", False):
        return partial(load_experiment, options.get("config"), overrides), print_json if in_json else print_yaml
    if command.name == "report" and Path(paths[0]).is_file():
        return partial(print_result_table, Path(paths[0]), options.get("output"), in_json=in_json), print
    positional = [options.pop("config", None), overrides] if command.config_settings else paths
    print_result = print_json if in_json else partial(print_text, command.name)
    return partial(command.function, *positional, **options), print_result


def describe_versions() -> str:
    """Versions of the package, of Python and of PyTorch."""
    return f"vit-vs-cnn {__version__}, Python {platform.python_version()}, torch {metadata.version('torch')}"


def execute_run(words: list[str]) -> None:
    """Execute the run in a folder that the user trusts: ``run FOLDER --trust``. ``train`` starts it, not the user."""
    folder = words[0] if words else ""
    if "--trust" not in words[1:]:
        raise InputError(f"{folder}: its config.yaml names the code to run; add --trust if the folder is yours")
    from vit_vs_cnn.images.experiment_data import ExperimentData
    from vit_vs_cnn.runs.experiment_folder import raise_failures
    from vit_vs_cnn.runs.result import RunState
    from vit_vs_cnn.runs.run import read_run
    from vit_vs_cnn.workers.run import WorkRequest, run_one

    run = read_run(Path(folder), trusted=True)
    data = ExperimentData.from_experiment(run.experiment, fingerprint=run.fingerprint)
    if run_one(run, data, console=open_console(), request=WorkRequest([run], retries=0)) is RunState.WAITING:
        raise InputError(f"{run.name} starts from a run that is not finished; train runs both")
    raise_failures([run])


def describe_error(error: BaseException, words: list[str]) -> tuple[int, list[str]]:
    """Exit code of an error, and the lines to print."""
    match error:
        case RunsFailed():
            lines = [f"failed: {line}" for line in error.failures]
            advice = "Run the same command again to retry the failed runs."
            if not error.is_transient:
                advice = "Fix the cause first: the same command would fail again."
            return EXIT_RUNS_FAILED, [*lines, advice]
        case InputError():
            return EXIT_BAD_INPUT, [f"error: {' '.join(str(error).split())}"]
        case Interrupted() | KeyboardInterrupt():
            is_training = bool(words) and words[0] in TRAINING_COMMANDS
            hint = "; run the same command again to resume from the last checkpoint" if is_training else ""
            return EXIT_INTERRUPTED, [f"{str(error) or 'stopped'}{hint}"]
        case OSError():  # a full disk, a folder without permission to write
            return EXIT_BAD_INPUT, [f"error: {error.filename or 'input or output'}: {error.strerror or error}"]
    message, command = one_line(error), words[0] if words else "help"
    if isinstance(error, MemoryError) or any(text in message for text in OUT_OF_MEMORY_TEXTS):
        return EXIT_BAD_INPUT, [f"error: {command} needs more memory than there is: {message}"]
    lines = "".join(traceback.format_exception(error)).splitlines()
    return EXIT_RUNS_FAILED, [*lines, f"error: {command} failed with {type(error).__name__}: {message}; this is a bug"]


def print_text(name: str, result: Any) -> None:
    PRINTERS[name](result)
    if isinstance(result, CommandResult):
        print("", *result.lines, "", sep="\n")
        print_paths(result.written)


def print_json(result: Any) -> None:
    def to_plain(value: Any) -> Any:
        if hasattr(value, "to_dict"):
            return value.to_dict()
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.asdict(value)
        return str(value)

    print(json.dumps(result, indent=1, allow_nan=False, default=to_plain))


def print_yaml(experiment: Any) -> None:
    """Print the settings of an experiment as YAML, with the description of each where it first occurs."""
    from vit_vs_cnn.config.experiment import dotted_settings

    comments = {name: setting.help.partition(". ")[0].rstrip(".:") for name, setting in dotted_settings().items()}
    places: list[str] = []
    for line in yaml.safe_dump(experiment.to_dict(), sort_keys=False, width=sys.maxsize).splitlines():
        if setting := re.match(r"( *)([\w-]+):", line):
            indent, name = setting.groups()
            places = [*places[: len(indent) // 2], name]
            if places[0] == "models" and len(places) > 1:
                places[1] = "NAME"
            if comment := comments.pop(".".join(places), ""):
                print(f"{indent}# {comment}")
        print(line)


def print_result_table(path: Path, output: str | None, *, in_json: bool) -> None:
    """Print the accuracies and the answer of a recorded table, and write its report if a folder is named."""
    from vit_vs_cnn.analysis.analysis import read_table_analysis
    from vit_vs_cnn.analysis.answer import write_answer
    from vit_vs_cnn.reporting.experiment_page import ACCURACIES_ALONE, write_table_page
    from vit_vs_cnn.runs.record import read_result_table

    results, analysis = read_result_table(path), read_table_analysis(path)
    written = [] if output is None else write_table_page(path, results, analysis, Path(output))
    if in_json:
        print_json([result.to_row() for result in results])
        return
    _print_accuracies(results, analysis)
    print("", write_answer(analysis), "", sep="\n")
    print(f"note: {ACCURACIES_ALONE[0].lower()}{ACCURACIES_ALONE[1:]}")
    print_paths(written)


def print_paths(paths: Sequence[Path]) -> None:
    """Print the page, or else each file."""
    page = next((path for path in paths if path.name == "index.html"), None)
    for line in [f"wrote {path}" for path in paths] if page is None else [f"The report is {page}"]:
        print(line)


def _print_findings(findings: Any) -> None:
    from vit_vs_cnn.reporting.experiment_page import describe_unfinished_runs
    from vit_vs_cnn.runs.status import read_status

    _print_accuracies(findings.results, findings.analysis)
    for line in describe_unfinished_runs(read_status(findings.folder, findings.results)):
        print(f"note: {line}")


def _print_accuracies(results: Any, analysis: Any) -> None:
    from vit_vs_cnn.reporting.experiment_tables import accuracy_table
    from vit_vs_cnn.reporting.table import print_tables

    print_tables([accuracy_table(analysis, results)])


def _print_tune(experiment: Any) -> None:
    from vit_vs_cnn.experiments.tuning import describe_choice
    from vit_vs_cnn.runs.trials import TRIALS_FILE, rank_trials, read_trials

    trials = read_trials(experiment.folder / TRIALS_FILE)
    for group in group_by(trials, lambda trial: (trial.model, trial.train_size)).values():
        print(describe_choice(rank_trials(group)[0], len(group)))
    print(f"All trials are in {experiment.folder / TRIALS_FILE}")
    print(f"Train with these recipes: vit-vs-cnn train --config {experiment.folder / 'tuned.yaml'}")


def _print_status(status: Any) -> None:
    from vit_vs_cnn.runs.status import status_line

    is_list = isinstance(status, list)
    lines = [f"{experiment.name}: {status_line(experiment)}" for experiment in status] if is_list else [repr(status)]
    print("\n".join(lines))


def _print_to_attention(converted: Any) -> None:
    from vit_vs_cnn.conversion.to_attention import EXACT_IMAGES

    exact = min(EXACT_IMAGES, converted.images)
    print_paths([converted.path])
    print(f"largest difference of a logit  {converted.difference:.1e} in float32 on {converted.images:,} images")
    print(f"                               {converted.exact_difference:.1e} in float64 on {exact:,} of them")
    print(f"same class                     {100 * converted.agreement:.2f} % of {converted.images:,} images")
    if converted.heads is not None:
        errors = converted.heads
        kernel, bound = 100 * errors.kernel, 100 * errors.bound
        print(f"error of the kernels           {kernel:.1f} % of their energy (at least {bound:.1f} %)")
        print(f"error of the outputs           {100 * errors.outputs:.1f} %, mean over {errors.layers} layers")
    for name, (before, after) in {"parameters": converted.parameters, "MACs": converted.macs}.items():
        print(f"{name:<30} {format_millions(before)} before, {format_millions(after)} after")


def _print_export(files: Any) -> None:
    for file in files:
        print(f"wrote {file.path}  (largest difference of a logit {file.difference:.1e})")
    print(f"wrote {files[0].path.parent / 'config.json'}  (classes, image size, normalization)")


def _print_models(models: Any) -> None:
    for model in models:
        cost = f"{'':>36}"
        if model["macs"] is not None:
            parameters, macs = format_millions(model["parameters"]), format_millions(model["macs"])
            cost = f"{parameters:>7} parameters  {macs:>7} MACs"
        print(f"{model['name']:<16} {cost}  {model['recipe']}")
    if any(model["macs"] is not None for model in models):
        print(f"{'timm/<name>':<16} any model of timm; vit-vs-cnn models 'timm/resnet*' lists their recipes")


def _from_reporting(module: str, function: str) -> Callable[[Any], None]:
    """A function of a module of reports, which is imported when it prints."""

    def print_result(result: Any) -> None:
        getattr(import_module(f"vit_vs_cnn.reporting.{module}"), function)(result)

    return print_result


PRINTERS: dict[str, Callable[[Any], None]] = {
    "train": _print_findings,
    "tune": _print_tune,
    "audit": _from_reporting("audit_report", "print_audit"),
    "status": _print_status,
    "report": _print_findings,
    "compare": _from_reporting("comparison_page", "print_comparison"),
    "evaluate": _from_reporting("predictions", "print_evaluation"),
    "inspect": _from_reporting("inspection_page", "print_scores"),
    "predict": _from_reporting("predictions", "print_predictions"),
    "to-attention": _print_to_attention,
    "locality": _from_reporting("locality_page", "print_locality"),
    "export": _print_export,
    "models": _print_models,
    "schema": print_json,
}
