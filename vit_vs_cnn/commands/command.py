"""A command: the function that it calls, which of its arguments are options, and what its words say."""

import difflib
import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from vit_vs_cnn.config.experiment import Contender, settings_of_a_config
from vit_vs_cnn.config.parsing import Setting, element_of, kinds_of, settings_of, walk
from vit_vs_cnn.errors import InputError
from vit_vs_cnn.plain import read_yaml

JSON = Setting("json", bool, False, "Print the result as JSON, and nothing else.")
PRINT_CONFIG = Setting("print_config", bool, False, "Print the config with every default, and stop.")


_NUMBER = re.compile(r"-?[\d.]+")


@dataclass
class Given:
    """What the words of a command line say."""

    paths: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    overrides: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Command:
    """One command.

    Arguments:
        example: command lines, for its help.
        daily: the options that its help shows before all others are asked for; all of them if none is named.
        besides: options of the command line alone.
        also: older names of options.
        default_config: name of the config that is read without ``--config``, for commands that take one.
        home: the module of the function, which has the command's name.
    """

    name: str
    example: tuple[str, ...] = ()
    daily: tuple[str, ...] = ()
    besides: tuple[Setting, ...] = (JSON,)
    also: dict[str, str] = field(default_factory=dict)
    default_config: str = "quickstart"
    home: str = "vit_vs_cnn.api"

    @property
    def function(self) -> Callable[..., Any]:
        return getattr(importlib.import_module(self.home), self.name.replace("-", "_"))

    @cached_property
    def configured(self) -> dict[str, Setting]:
        """The settings of a config, where the command takes one."""
        return settings_of_a_config() if "overrides" in settings_of(self.function) else {}

    @cached_property
    def places(self) -> list[inspect.Parameter]:
        """The arguments that stand without an option: the first, and those that may be many."""
        parameters = list(inspect.signature(self.function).parameters.values())
        first = [] if self.configured or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY else parameters[:1]
        return first + [one for one in parameters[1:] if one.kind is one.VAR_POSITIONAL]

    @cached_property
    def settings(self) -> dict[str, Setting]:
        """The options but for those of a config, by name."""
        left_out = {"overrides", *(["data"] if self.configured else []), *(place.name for place in self.places)}
        own = {name: one for name, one in settings_of(self.function).items() if name not in left_out}
        return own | {one.name: one for one in self.besides}

    def read(self, words: list[str]) -> Given:
        """What the words say.

        Raises:
            InputError: an option that there is not, a value that it cannot have, a path too few or too many.
        """
        given, rest = Given(), list(words)
        while rest:
            word = rest.pop(0)
            if word == "--" or not word.startswith("-") or word == "-" or _NUMBER.fullmatch(word):
                paths, rest = ([word], rest) if word != "--" else (rest, [])  # no option follows after --
                if paths and not self.places:
                    raise InputError(
                        f"argument {paths[0]!r}: expected --setting value{self._meant(paths[0])} (see --help)"
                    )
                given.paths += paths
                continue
            if not word.startswith("--"):
                close = [spelt(one) for one in self.settings if one[0] == word[1]]
                hint = f"; did you mean {' or '.join(close[:3])}?" if close else ""
                raise InputError(
                    f"vit-vs-cnn {self.name}: there is no option {word}{hint} (a path that begins with - goes after --)"
                )
            name, equals, text = word[2:].partition("=")
            if self._is_configured(name):
                value = text if equals else _taken(rest, 1, name)[0]
                given.overrides.pop(name, None)  # what is named last is laid over the rest
                if not self._is_text(name, value):
                    where = f"argument --{name}: {value[:80]!r}"
                    value = read_yaml(value, where=where, kind="a YAML value")
                given.overrides[name] = value
            else:
                self._take(name, [text] if equals else None, rest, given.options)
        self._check_paths(given.paths)
        return given

    def _meant(self, word: str) -> str:
        """A hint at the option of a word without one, or with an unknown one: a number, or the path of a file."""
        if _NUMBER.fullmatch(word):
            return "; a list is one word, such as '[0, 1, 2]'"
        path = Path(word)
        option = "data.root" if path.is_dir() else "config" if path.suffix in (".yaml", ".yml") else None
        return f"; did you mean --{option} {word}?" if self.configured and option else ""

    def _is_configured(self, name: str) -> bool:
        return bool(self.configured) and ("." in name or (name in self.configured and name not in self.settings))

    def _is_text(self, name: str, value: str) -> bool:
        """Whether a setting of the config takes a word as it is: a path such as "photos #1" is no YAML."""
        hint = self._texts.get(re.sub(r"^contenders\.[^.]+", "contenders.NAME", name))
        return hint is not None and not (value == "null" and type(None) in kinds_of(hint))

    @cached_property
    def _texts(self) -> dict[str, Any]:
        """The settings of a config that are texts, by dotted name, with their types."""
        known = [*walk(self.configured), *walk(settings_of(Contender), "contenders.NAME.")]
        return {name: one.hint for name, one in known if {*kinds_of(one.hint)} <= {str, type(None)}}

    def _take(self, word: str, texts: list[str] | None, rest: list[str], options: dict[str, Any]) -> None:
        """The value of one option, from behind the equals sign or from the words that follow."""
        name = self.also.get(key := word.replace("-", "_"), key)
        if name not in self.settings:
            known = [spelt(one) for one in (*self.settings, *self.configured)]
            inside = [f"--{one}" for one, _ in walk(self.configured) if one.rpartition(".")[2] == key]
            close = inside or difflib.get_close_matches(f"--{word}", known, n=1, cutoff=0.7)
            hint = f"; did you mean {' or '.join(close[:3])}?" if close else self._meant(next(iter(texts or rest), "-"))
            raise InputError(f"vit-vs-cnn {self.name}: there is no option --{word}{hint} (see --help)")
        setting = self.settings[name]
        inner, is_text = element_of(setting.hint), str in kinds_of(setting.hint)
        if texts is None and setting.hint is bool:
            options[name] = True
            return
        if texts is None:
            texts = _taken(rest, len(rest) if inner else 1, name)
        if inner is not None:
            several = [part for text in texts for part in (text.split(",") if inner is str else [text])]
            options[name] = [*options.get(name, ()), *(part.strip() for part in several if part.strip())]
        else:
            options[name] = texts[0] if is_text else setting.read(texts[0], spelt(name))

    def _check_paths(self, paths: list[str]) -> None:
        needed = [place for place in self.places if place.default is place.empty]
        if len(paths) < len(needed):
            raise InputError(f"vit-vs-cnn {self.name}: {word_of(needed[len(paths)])} is missing (see --help)")
        if self.places and len(paths) > len(self.places) and not takes_several(self.places[-1]):
            raise InputError(f"vit-vs-cnn {self.name}: {paths[len(self.places)]!r} is one too many (see --help)")

    def call(self, given: Given) -> Any:
        besides = {one.name for one in self.besides}
        options = {name: value for name, value in given.options.items() if name not in besides}
        if self.configured:
            return self.function(options.pop("config", None), given.overrides, **options)
        return self.function(*given.paths, **options)


def word_of(place: inspect.Parameter) -> str:
    """What stands for an argument in a help."""
    return place.name.removesuffix("s").upper()


def takes_several(place: inspect.Parameter) -> bool:
    return place.kind is place.VAR_POSITIONAL


def spelt(name: str) -> str:
    """An option as it is typed; what a config names is spelt as there."""
    return f"--{name if '.' in name else name.replace('_', '-')}"


def _taken(rest: list[str], most: int, name: str) -> list[str]:
    """The values of an option, taken off the words that are left."""
    there = next((i for i, word in enumerate(rest) if word.startswith("--")), len(rest))
    texts, rest[:] = rest[: min(most, there)], rest[min(most, there) :]
    if not texts:
        raise InputError(f"argument {spelt(name)} needs a value")
    return texts


TRAINED = (
    *("config", "name", "output", "minutes", "data.source", "data.root", "protocol.train_sizes", "protocol.seeds"),
    *("protocol.budget.steps", "contenders.NAME.model"),
    *("executor.name", "force", "print_config", "json", "quiet"),
)
COMMANDS = {
    one.name: one
    for one in (
        Command(
            "train",
            example=("vit-vs-cnn train", "vit-vs-cnn train --config decide --data.root photos --minutes 60"),
            daily=TRAINED,
            besides=(PRINT_CONFIG, JSON),
        ),
        Command(
            "tune",
            example=(
                "vit-vs-cnn tune --config mine.yaml --tuning.trials 12",
                "vit-vs-cnn tune --config mine.yaml --tuning.trials 12 \\\n"
                "    --tuning.space '{optimizer.lr: {low: 1e-3, high: 3e-2, log: true}}'",
            ),
            daily=(
                "config",
                "tuning.trials",
                "tuning.space",
                "tuning.sizes",
                "tuning.splits",
                "json",
            ),
        ),
        Command(
            "audit",
            example=("vit-vs-cnn audit --data.root photos", "vit-vs-cnn audit --data.source cifar10 --data.root data"),
            daily=("config", "data.source", "data.root", "data.folder.image_size", "output", "json", "quiet"),
            default_config="decide",
        ),
        Command("status", example=("vit-vs-cnn status runs/duel", "vit-vs-cnn status")),
        Command("report", example=("vit-vs-cnn report runs/duel",)),
        Command(
            "compare",
            example=(
                "vit-vs-cnn compare runs/duel --quick",
                "vit-vs-cnn compare runs/duel timm/resnet18=weights.safetensors --parts cost",
            ),
            daily=("parts", "skip", "quick", "count", "train_size", "output", "root", "device", "json", "quiet"),
            also={"only": "parts", "size": "train_size", "images": "count"},
        ),
        Command(
            "inspect",
            example=(
                "vit-vs-cnn inspect runs/duel --score",
                "vit-vs-cnn inspect CHECKPOINT --images photos --methods rollout",
            ),
            daily=("images", "count", "methods", "class_name", "score", "output", "root", "json", "quiet"),
            also={"class": "class_name"},
        ),
        Command(
            "predict",
            example=(
                "vit-vs-cnn predict runs/duel/cells/vit-n2000-s0-0d3a photos --output answers.csv --top 3 --explain",
                "find photos -name '*.jpg' | vit-vs-cnn predict runs/duel - --contender vit",
            ),
            daily=("output", "top", "explain", "contender", "device", "json", "quiet"),
        ),
        Command(
            "to-attention",
            example=("vit-vs-cnn to-attention runs/duel/cells/resnet-n2000-s0-4c1f",),
            also={"images": "count"},
        ),
        Command("locality", example=("vit-vs-cnn locality runs/locality",), also={"images": "count"}),
        Command("export", example=("vit-vs-cnn export runs/duel/cells/vit-n2000-s0-0d3a --format onnx",)),
        Command("models", example=("vit-vs-cnn models 'vit*'",)),
        Command("cell", besides=(), home="vit_vs_cnn.commands.cell"),
    )
}
#: What ``train`` starts by itself; not for users.
INTERNAL = {"cell"}
#: Names that commands had until version 0.1.
RENAMED = {"compile": "to-attention"}
#: Commands of before: what has taken their place.
GONE = {"figures": "the figures of the lesson are drawn by notebooks/figures.py: python notebooks/figures.py FOLDER"}
