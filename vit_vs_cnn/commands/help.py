"""What a command's help says, and what a shell completes: from the same settings that its words are read by."""

import inspect
import os
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

from vit_vs_cnn.commands.command import COMMANDS, INTERNAL, Command, spelt, takes_several, word_of
from vit_vs_cnn.config.experiment import find_config, read_config
from vit_vs_cnn.config.parsing import Setting, element_of, kinds_of, settings_of, walk
from vit_vs_cnn.config.schema import Contender
from vit_vs_cnn.config.trainer import trainer_settings
from vit_vs_cnn.errors import InputError

WIDTH, COLUMN = 100, 32
KINDS = {int: "N", float: "X", str: "TEXT", bool: "true|false"}
SHELLS = ("bash", "zsh", "fish", "tcsh")


def usage() -> str:
    """What there is to do."""
    shown = {name: about(command)[0] for name, command in COMMANDS.items() if name not in INTERNAL}
    entries = [(name, " ".join(text.split())) for name, text in shown.items()]
    lines = [
        "usage: vit-vs-cnn COMMAND ...   (or: python -m vit_vs_cnn COMMAND ...)",
        "",
        "Train a Vision Transformer and a CNN under one protocol and see which serves your images better.",
        "",
        *_entries(entries),
        "",
        "vit-vs-cnn COMMAND --help tells what one sets every day, --help=all everything.",
        "vit-vs-cnn --version tells versions, --print-completion bash|zsh|fish|tcsh what a shell completes.",
    ]
    return "\n".join(lines) + "\n"


def help_page(command: Command, *, everything: bool = False) -> str:
    """One screen with what one sets every day, or everything that can be set."""
    places = [word_of(one) if one.default is one.empty else f"[{word_of(one)}]" for one in command.places]
    several = [f"[{word_of(one)} ...]" for one in command.places if takes_several(one)]
    lines = [f"usage: {' '.join([f'vit-vs-cnn {command.name}', *places, *several, '[--option value ...]'])}", ""]
    for paragraph in about(command):
        lines += [*textwrap.wrap(paragraph, WIDTH), ""]
    options = all_options(command) if everything or not command.daily else _daily(command)
    defaults = defaults_of(command)
    entries = [
        (f"{spelt(name)} {kind_of(name, one)}", meaning_of(one, defaults.get(name, one.default)))
        for name, one in options
    ]
    known = settings_of(command.function)
    lines += _entries([*((word_of(one), known[one.name].help) for one in command.places), *entries])
    lines += ["", *(f"  {example}" for example in command.example)]
    notes = [f"Defaults are those of --config {command.default_config}."] if command.configured else []
    if command.daily and not everything:
        more = " and dotted setting" if command.configured else ""
        notes.append(f"--help=all has every option{more}.")
    if notes:
        lines += ["", " ".join(notes)]
    return "\n".join(lines) + "\n"


def about(command: Command) -> list[str]:
    """What a command does, in paragraphs."""
    text = (inspect.getdoc(command.function) or "").partition("\n\nArguments:")[0].replace("``", "")
    return text.split("\n\n")


def _daily(command: Command) -> Iterator[tuple[str, Setting]]:
    known = command.settings | dict(settings_within(command, with_trainer=False))
    return ((name, known[name]) for name in command.daily)


def all_options(command: Command) -> Iterator[tuple[str, Setting]]:
    """Every option by its name; ``contenders.NAME`` stands for each of the contenders."""
    yield from command.settings.items()
    yield from settings_within(command, with_trainer=True)


def settings_within(command: Command, *, with_trainer: bool) -> Iterator[tuple[str, Setting]]:
    """The settings of a config that a command takes, by their dotted names."""
    for name, setting in walk({name: one for name, one in command.configured.items() if name not in command.settings}):
        if name == "contenders":
            yield from walk(settings_of(Contender), "contenders.NAME.")
        elif name != "trainer":
            yield name, setting
        elif with_trainer:
            yield from walk(trainer_settings(), "trainer.")


def kind_of(name: str, setting: Setting) -> str:
    """What stands behind an option for its value."""
    if setting.hint is bool and setting.default is False and "." not in name:
        return ""
    kinds = [kind for kind in kinds_of(setting.hint) if kind is not type(None)]
    if element_of(setting.hint) is not None:
        return "LIST" if "." in name else "A B ..."
    if literals := literals_of(setting):
        return "|".join(map(str, literals))
    if any(kind is os.PathLike or get_origin(kind) is os.PathLike for kind in kinds):
        return "PATH"
    return next((KINDS[kind] for kind in kinds if kind in KINDS), "VALUE")


def defaults_of(command: Command) -> dict[str, Any]:
    """Default values by dotted name, where the config that the command reads without ``--config`` sets them."""

    def flatten(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, value in values.items():
            yield f"{prefix}{name}", value
            if isinstance(value, Mapping):
                yield from flatten(value, f"{prefix}{name}.")

    config = read_config(find_config(command.default_config)) if command.configured else {}
    return dict(flatten(config, ""))


def literals_of(setting: Setting) -> list[Any]:
    """Values that a setting names in its type."""
    kinds = [kind for kind in kinds_of(setting.hint) if get_origin(kind) is Literal]
    return [value for kind in kinds for value in get_args(kind)]


def meaning_of(setting: Setting, default: Any) -> str:
    """Describe an option and its default. The first word is capitalized unless it is a value that may be given."""
    first = re.split(r"[\s,;.]", setting.help, maxsplit=1)[0]
    is_value = first in map(str, (setting.default, *literals_of(setting)))
    text = setting.help if is_value else setting.help[:1].upper() + setting.help[1:]
    if isinstance(default, list | tuple) and default:
        return f"{text} (default {', '.join(map(str, default))})"
    is_shown = isinstance(default, bool | str | int | float) and default is not False and default != ""
    return f"{text} (default {str(default).lower() if default is True else default})" if is_shown else text


def _entries(entries: list[tuple[str, str]]) -> Iterator[str]:
    """Names, and beside each of them what it means; below it, where it is long."""
    column = min(COLUMN, 4 + max(len(name) for name, _ in entries))
    for name, text in entries:
        head, gap = f"  {name.strip()}", " " * column
        body = textwrap.fill(text, WIDTH, initial_indent=gap, subsequent_indent=gap, break_on_hyphens=False)
        yield f"{head}\n{body}" if len(head) > column - 2 else head + body[len(head) :]


def completion(shell: str) -> str:
    """The script that makes a shell complete commands and options."""
    if shell not in SHELLS:
        raise InputError(f"--print-completion: expected one of {', '.join(SHELLS)}, got {shell or 'nothing'}")
    shown = {name: command for name, command in COMMANDS.items() if name not in INTERNAL}
    options = {name: ["--help", *_spelt(all_options(command))] for name, command in shown.items()}
    names = " ".join(options)
    if shell == "fish":
        seen = "__fish_seen_subcommand_from"
        lines = [f"complete -c vit-vs-cnn -n __fish_use_subcommand -f -a '{names}'"]
        lines += [f"complete -c vit-vs-cnn -n '{seen} {one}' -a '{' '.join(words)}'" for one, words in options.items()]
        return "\n".join(lines) + "\n"
    if shell == "tcsh":
        every = " ".join(dict.fromkeys(word[2:] for words in options.values() for word in words))
        return f"complete vit-vs-cnn 'p/1/({names})/' 'c/--/({every})/' 'p/*/f/'\n"
    cases = "\n".join(f'    {one}) words="{" ".join(words)}" ;;' for one, words in options.items())
    configs = " ".join(sorted(path.stem for path in find_config().parent.glob("*.yaml")))
    zsh = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    return f"""{zsh}_vit_vs_cnn() {{
  local words=""
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  [ "$COMP_CWORD" = 1 ] && words="{names}"
  [ "${{COMP_WORDS[COMP_CWORD-1]}}" = --config ] && words="{configs}"
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _vit_vs_cnn vit-vs-cnn
"""


def _spelt(options: Iterable[tuple[str, Any]]) -> list[str]:
    return [spelt(name) for name, _ in options if "NAME" not in name]
