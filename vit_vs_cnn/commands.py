"""Commands made from the functions of the API: signatures are options, docstrings are help.

argparse reads the words and prints the help. Values get their types from the annotations, by the reader of configs.
Words with a dot (``--protocol.seeds '[0, 1]'``) are settings of the config and are taken out before.
"""

import argparse
import difflib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, get_args, get_origin

from vit_vs_cnn import api
from vit_vs_cnn.config.experiment import Experiment, dotted_settings
from vit_vs_cnn.errors import InputError, import_optional
from vit_vs_cnn.strict_yaml import read_yaml
from vit_vs_cnn.typed_values import Setting, convert, item_type, list_settings, union_args

JSON = Setting("json", bool, False, "Print the result as JSON and nothing else.")
PRINT_CONFIG = Setting("print_config", bool, False, "Print the config with all defaults, then stop.")
_NUMBER = re.compile(r"-?[\d.]+")
#: Settings that have a short form: a text that may contain any characters.
_SHORT_FORM = re.compile(r"models\.[^.]+(\.weights)?")


class Words(NamedTuple):
    """Arguments read from a command line."""

    paths: list[str]
    options: dict[str, Any]
    overrides: dict[str, Any]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(f"{self.prog}: {message} (see --help)")


@dataclass(frozen=True, eq=False)
class Command:
    """A command: a function of the API, with example lines for its help and the settings that the help lists."""

    name: str
    examples: tuple[str, ...]
    shown_settings: tuple[str, ...] = ()

    @property
    def function(self) -> Callable[..., Any]:
        return getattr(api, self.name.replace("-", "_"))

    @cached_property
    def config_settings(self) -> dict[str, Setting]:
        """Settings of a config; empty for a command that takes none."""
        return list_settings(Experiment) if "overrides" in list_settings(self.function) else {}

    @cached_property
    def positional(self) -> list[inspect.Parameter]:
        """Parameters given without an option: the first one, and the variadic one."""
        parameters = list(inspect.signature(self.function).parameters.values())
        is_option = self.config_settings or any(p.kind is p.KEYWORD_ONLY for p in parameters[:1])
        first = [] if is_option else parameters[:1]
        return first + [parameter for parameter in parameters[1:] if parameter.kind is parameter.VAR_POSITIONAL]

    @cached_property
    def options(self) -> dict[str, Setting]:
        """Options of the command by the name of the parameter."""
        excluded = {parameter.name for parameter in self.positional}
        excluded |= {"overrides", "data", "models"} if self.config_settings else set()
        options = {name: setting for name, setting in list_settings(self.function).items() if name not in excluded}
        return options | ({"print_config": PRINT_CONFIG} if self.name == "train" else {}) | {"json": JSON}

    @property
    def usage(self) -> str:
        """First line of the help."""
        places = [f"[{name}]" if is_optional else name for name, is_optional in map(positional_word, self.positional)]
        return " ".join([f"vit-vs-cnn {self.name}", *places, "[--option value ...]"])

    @property
    def description(self) -> str:
        """Docstring of the function up to its arguments."""
        return (inspect.getdoc(self.function) or "").partition("\n\nArguments:")[0].replace("``", "")

    def read(self, words: list[str]) -> Words:
        """Read the words after the command. Raises InputError: an unknown option, a wrong value or path."""
        end = words.index("--") if "--" in words else len(words)
        rest, overrides = self._split_overrides(words[:end])
        namespace, unparsed = self._parser().parse_known_args(rest)
        paths = [word for word in unparsed if not word.startswith("-") or word == "-" or _NUMBER.fullmatch(word)]
        for word in unparsed:
            if word not in paths:
                self._refuse_option(word.partition("=")[0])
        paths += words[end + 1 :]
        place = f"vit-vs-cnn {self.name}"
        if paths and not self.positional:
            hint = f"; did you mean --data.root {paths[0]}?" if Path(paths[0]).is_dir() else ""
            raise InputError(f"argument {paths[0]!r}: expected --setting value{hint} (see --help)")
        required = [parameter for parameter in self.positional if parameter.default is parameter.empty]
        if len(paths) < len(required):
            raise InputError(f"{place}: {positional_word(required[len(paths)])[0].split()[0]} is missing (see --help)")
        takes_many = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in self.positional)
        if len(paths) > len(self.positional) and not takes_many:
            raise InputError(f"{place}: one path too many: {paths[len(self.positional)]!r} (see --help)")
        options = vars(namespace)
        for name, values in options.items():
            if item_type(self.options[name].hint) is str:  # --parts accuracy,cost
                options[name] = [part.strip() for value in values for part in value.split(",") if part.strip()]
        return Words(paths, options, overrides)

    def help(self) -> str:
        """Help with the options of the command and the common settings of its config."""
        parser = self._parser()
        for parameter in self.positional:
            word, text = positional_word(parameter)[0], list_settings(self.function)[parameter.name].help
            parser.add_argument(parameter.name, metavar=word, nargs="*", help=_escape(text))
        note = "train --print-config prints all settings; the reference describes them."
        group = parser.add_argument_group("common settings of the config", note if self.shown_settings else None)
        for name in self.shown_settings:
            group.add_argument(f"--{name}", metavar="VALUE", help=_escape(dotted_settings()[name].help))
        return parser.format_help().rstrip()

    def _parser(self, **options: Any) -> _Parser:
        parser = _Parser(
            prog=f"vit-vs-cnn {self.name}",
            usage=self.usage,
            description=self.description,
            epilog="\n".join(["examples:", *(f"  {example}" for example in self.examples)]),
            formatter_class=partial(argparse.RawDescriptionHelpFormatter, width=100, max_help_position=32),
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
            **options,
        )
        for name, setting in self.options.items():
            keywords: dict[str, Any] = {"type": partial(_read_option, setting)}
            if setting.hint is bool:
                keywords = {"action": "store_true"}
            elif get_origin(setting.hint) is Literal:
                keywords = {"choices": get_args(setting.hint)}
            elif item_type(setting.hint) is not None:
                keywords = {"nargs": "+", "action": "extend"}
            parser.add_argument(option_word(name), help=_escape(describe(setting)), **keywords)
        return parser

    def completion_parser(self) -> argparse.ArgumentParser:
        """Parser whose arguments a shell completes: options, settings of the config, and paths."""
        import shtab

        parser = self._parser(add_help=False)
        if self.positional:
            parser.add_argument("path", nargs="*")
        for name in sorted(dotted_settings().keys() - self.options) if self.config_settings else ():
            parser.add_argument(f"--{name}")
        for argument in parser._actions:
            if argument.choices is None and argument.nargs != 0:
                argument.complete = shtab.FILE  # type: ignore[attr-defined]
        return parser

    def _split_overrides(self, words: list[str]) -> tuple[list[str], dict[str, Any]]:
        """Separate settings of the config from other words. Options are written with dashes instead of underscores."""
        rest: list[str] = []
        overrides: dict[str, Any] = {}
        remaining = iter(words)
        for word in remaining:
            name, equals, value = word.removeprefix("--").partition("=")
            is_setting = "." in name or (name in self.config_settings and name not in self.options)
            if not (word.startswith("--") and self.config_settings and is_setting):
                rest.append(f"--{name.replace('_', '-')}{equals}{value}" if word.startswith("--") else word)
                continue
            if not equals:
                value = next(remaining, "--")
                if value.startswith("--"):
                    raise InputError(f"vit-vs-cnn {self.name}: argument --{name}: expected a value")
            overrides.pop(name, None)  # the last value of a setting is applied after all others
            setting = dotted_settings().get(re.sub(r"^models\.[^.]+", "models.NAME", name))
            kinds = {*union_args(setting.hint)} if setting is not None else {Any}
            # A path such as "photos #1" is not read as YAML.
            is_text = kinds <= {str, type(None)} and (value != "null" or type(None) not in kinds)
            is_text |= bool(_SHORT_FORM.fullmatch(name)) and not value.startswith("{") and value != "null"
            overrides[name] = value if is_text else _read_yaml(value, f"argument --{name}: ")
        return rest, overrides

    def _refuse_option(self, option: str) -> NoReturn:
        key = option.removeprefix("--").replace("-", "_")
        named = dotted_settings() if self.config_settings else {}
        settings = [dotted for dotted in named if dotted.rpartition(".")[2] in (key, f"{key}s")]
        settings.sort(key=lambda dotted: not dotted.startswith("protocol."))
        if key == "model":
            settings = ["models.NAME.name"]
        close = settings[:3] or difflib.get_close_matches(key, [*self.options, *self.config_settings], n=1, cutoff=0.7)
        hint = f"; did you mean {' or '.join(map(option_word, close))}?" if close else ""
        raise InputError(f"vit-vs-cnn {self.name}: there is no option {option}{hint} (see --help)")


def positional_word(parameter: inspect.Parameter) -> tuple[str, bool]:
    """Placeholder of a positional argument in the help, and whether it can be left out."""
    word = parameter.name.removesuffix("s").upper()
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"{word} ...", False
    return word, parameter.default is not parameter.empty


def option_word(name: str) -> str:
    """An option as it is typed: dashes for options of a command, underscores for settings of a config."""
    return f"--{name if '.' in name else name.replace('_', '-')}"


def describe(setting: Setting) -> str:
    """Description of an option with its default."""
    is_shown = setting.default not in (None, "", ()) and not isinstance(setting.default, bool)
    return f"{setting.help} (default: {setting.default})" if is_shown else setting.help


def usage() -> str:
    """Help of the program: its commands with one sentence each."""
    width = max(map(len, COMMANDS)) + 2
    summaries = (" ".join(command.description.split()).partition(". ")[0] for command in COMMANDS.values())
    lines = [f"  {name:<{width}}{text.rstrip('.')}." for name, text in zip(COMMANDS, summaries, strict=True)]
    return (
        "usage: vit-vs-cnn COMMAND ...   (or: python -m vit_vs_cnn COMMAND ...)\n\n"
        "Train a Vision Transformer and a CNN on the same images and report which is better.\n\n"
        + "\n".join(lines)
        + "\n\nvit-vs-cnn COMMAND --help describes the options of a command, vit-vs-cnn --version prints versions,\n"
        "vit-vs-cnn --completion SHELL prints a script for completion (bash, zsh, fish and others)."
    )


def completion_script(shell: str) -> str:
    """Script that completes commands, their options and settings of a config in a shell."""
    shtab = import_optional("shtab", needed_by="--completion")
    if shell not in shtab.SUPPORTED_SHELLS:
        raise InputError(f"--completion {shell!r}: expected one of {', '.join(shtab.SUPPORTED_SHELLS)}")
    parser = argparse.ArgumentParser(prog="vit-vs-cnn")
    parsers = parser.add_subparsers()
    for name, command in COMMANDS.items():
        summary = command.description.partition(".")[0]
        parsers.add_parser(name, parents=[command.completion_parser()], help=_escape(" ".join(summary.split())))
    return shtab.complete(parser, shell=shell)


def _read_option(setting: Setting, text: str) -> Any:
    if str in union_args(setting.hint):
        return text
    try:
        return convert(setting.hint, _read_yaml(text), "")
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix(": ")) from error


def _read_yaml(text: str, place: str = "") -> Any:
    return read_yaml(text, location=f"{place}{text[:80]!r}", kind="a YAML value")


def _escape(text: str) -> str:
    return text.replace("%", "%%")


COMMANDS = {
    command.name: command
    for command in (
        Command(
            "train",
            ("vit-vs-cnn train", "vit-vs-cnn train --config decide --data.root photos --minutes 60"),
            (
                *("name", "output", "minutes", "data.source", "data.root", "protocol.train_sizes", "protocol.seeds"),
                *("protocol.budget.steps", "models.NAME.name", "models.NAME.optimizer.lr", "executor.name"),
            ),
        ),
        Command(
            "tune",
            (
                "vit-vs-cnn tune --config mine.yaml --tuning.trials 12",
                "vit-vs-cnn tune --config mine.yaml --tuning.space '{optimizer.lr: [0.001, 0.003, 0.01]}'",
            ),
            ("tuning.trials", "tuning.space", "tuning.splits"),
        ),
        Command(
            "audit",
            ("vit-vs-cnn audit --data.root photos", "vit-vs-cnn audit --data.source cifar10 --data.root data"),
            ("data.source", "data.root", "data.folder.image_size"),
        ),
        Command("status", ("vit-vs-cnn status runs/duel", "vit-vs-cnn status")),
        Command("report", ("vit-vs-cnn report runs/duel",)),
        Command(
            "compare",
            (
                "vit-vs-cnn compare runs/duel --quick",
                "vit-vs-cnn compare runs/duel timm/resnet18=weights.safetensors --parts cost",
            ),
        ),
        Command("evaluate", ("vit-vs-cnn evaluate runs/duel labelled --output classes.csv",)),
        Command(
            "inspect",
            ("vit-vs-cnn inspect runs/duel --score", "vit-vs-cnn inspect CHECKPOINT --images photos --methods rollout"),
        ),
        Command("predict", ("vit-vs-cnn predict runs/duel photos --output answers.csv --top 3",)),
        Command("to-attention", ("vit-vs-cnn to-attention runs/duel/resnet-n2000-s0-4c1f",)),
        Command("locality", ("vit-vs-cnn locality runs/locality",)),
        Command("export", ("vit-vs-cnn export runs/duel/vit-n2000-s0-0d3a --format onnx",)),
        Command("models", ("vit-vs-cnn models 'vit*'",)),
        Command("schema", ("vit-vs-cnn schema > schema.json",)),
    )
}
