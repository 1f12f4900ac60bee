"""Random configs with mistakes, the same for a number on every machine."""

import copy
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.experiments.tiny import tiny_config
from tests.test_strict_yaml import BOMB

#: A config that runs. Every random config changes it in one to three places.
BASE = tiny_config(
    Path("runs"),
    executor={"name": "local", "retries": 1, "resources": {"CPU": 1.0}},
    tuning={"space": {"optimizer.lr": [0.01]}, "trials": None, "splits": 1, "seed": 0},
    minutes=None,
)
BASE["data"] |= {"root": "data", "cifar": {"download": False, "mirror": None, "verify_checksum": True}}
BASE["data"] |= {"folder": {"image_size": 16, "resize": "crop", "cache": "cache"}}
BASE["data"]["synthetic"] |= {"seed": 0, "image_size": 16, "task": "shape"}
BASE["models"]["vit"] |= {
    "optimizer": {"name": "adamw", "lr": 0.001, "weight_decay": 0.1, "momentum": 0.9, "betas": [0.9, 0.99]},
    "schedule": {"name": "cosine", "warmup": 0.1, "final": 0.0},
    "starts_from": None,
    "by_size": {120: {"optimizer": {"lr": 0.01}}},
}
BASE["models"]["resnet"]["optimizer"]["options"] = {"nesterov": True}
BASE["execution"] |= {"channels_last": False, "passive_callbacks": []}
#: Values for any place.
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 3, 7, 1000, 10**5, 10**9, 10**18, 10**20, 10**400, -(10**30)),
    *(0.5, -0.5, 1.5, 1e-300, 1e20, 1e300, float("inf"), float("-inf"), float("nan"), -0.0),
    *("", " ", "no", "none", "null", "all", "auto", "1e-3", "1e20", "0x10", "ten", "a\nb", "a\0b", "\ud800", "é" * 300),
    *("..", "../up", "/", "/nowhere/at/all", "/dev/null", "~"),
    *("{", "[", "${x}", "!!python/object:os.system", "a" * 5000),
    *("http://[::1", "https://", "ftp://:99999/x", "file://nowhere", "javascript:1", "//", "http://a b/"),
    *([], [None], [[]], [1, "a"], [0.5] * 3, [60, 60], ["all", "all"], [-1], [10**20], [True], [[1, 2], [3]]),
    *({}, {"a": 1}, {1: 2}, {"name": []}, {"class_path": "no.such.Class"}, {"class_path": 3, "init_args": 4}),
    *({"name": {"name": 1}}, {"steps": 1, "epochs": 1}, {"epochs": 1e-9}, {"flops": 1e300}, {"low": 2, "high": 1}),
)
#: Names that exist but do not fit, by the end of the place.
NAMED: dict[str, Sequence[Any]] = {
    "models.vit.name": (
        *("timm/resnet18", "timm/vit_tiny_patch16_224", "timm/", "timm/hf-hub:a/b", "attention/resnet8", "attention/"),
    ),
    "optimizer.name": "fusedadam fusedlamb bnbadam8bit lbfgs muon lookahead_adam novograd sophia".split(),
    "data.source": ("cifar10", "cifar100", "folder"),
    "accelerator": ("cuda", "tpu", "mps", "gpu", "auto"),
    "precision": ("16-true", "16-mixed", "transformer-engine", "64-true", "bf16-true", 16, 64),
    "executor.name": ("ray", "processes"),
    "starts_from": ("vit", "resnet", ["resnet"], "nowhere.ckpt", {"a": 1}),
}
#: Settings that the base config does not have.
MORE: dict[str, tuple[Any, ...]] = {
    "trainer.strategy": ("ddp", "fsdp", "deepspeed", "ddp_spawn", "x", 3),
    "trainer.callbacks": ("EarlyStopping", [3], "no.such.Callback", {"class_path": "Timer"}, [[]]),
    "trainer.plugins": ("x", [3], {"class_path": "no.such"}),
    "trainer.logger": ("CSVLogger", 3, {"class_path": "WandbLogger"}),
    "trainer.profiler": ("simple", "x", 3),
    "trainer.max_steps": (1, -1, 0, "x", 1e20),
    "trainer.max_epochs": (1,),
    "trainer.barebones": (True,),
    "trainer.num_nodes": (2, 0, 10**9),
    "trainer.gradient_clip_val": (-1, "x", 10**20),
    "models.vit.recipe": ("none", "default", "x", 3, {"name": "x"}, {"source": "x"}),
    "tuning.space": ({"optimizer.lr": [1]}, {"optimizer.lr": {"low": 0, "high": 1, "log": True}}, [1], {"x": [1]}),
    "models.vit.augmentation": ({"policy": "x"}, {"crop_padding": -1}, 3, {}),
    "models.vit.options.position": ("rotary", "x", 3, None),
    "models.vit.options.window_size": ([3, None], [1, 2, 3], 0, 4, "3"),
    "models.vit.options.score": ("linear", "gated", "additive", 0),
    "models.vit.options.pretrained": (True, "x"),
    "models.resnet.options.sharpness": (1.0, -1),
    "data.cifar.mirror": ("http://[::1", "https://", "ftp://:99999/x", "javascript:1", "//", "http://a b/", "x", 3),
    "models.a/b": ({},),
    "executor.workers": (2, 10**6),
    "executor.address": ("auto", "1.2.3.4:5", "x", "ray://"),
}


def places(values: dict[str, Any], prefix: str = "") -> list[str]:
    """Every place of a config, dotted."""
    names = []
    for name, value in values.items():
        names.append(f"{prefix}{name}")
        if isinstance(value, dict):
            names += places(value, f"{prefix}{name}.")
    return names


def random_config(number: int) -> str:
    """The text of a config file."""
    chance = random.Random(f"config {number}")
    values = copy.deepcopy(BASE)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        place = chance.choice([*places(BASE), *MORE])
        pool = MORE.get(place) or next((NAMED[end] for end in NAMED if place.endswith(end)), ())
        value = chance.choice(pool) if pool and chance.random() < 0.7 else chance.choice(VALUES)
        change = chance.choice((_put, _put, _put, _put, _drop, _misspell))
        change(values, place, value, chance)
    text = yaml.dump(values, sort_keys=False, allow_unicode=False)
    return chance.choice(TEXTS)(text, chance) if chance.random() < 0.15 else text


def _block(values: Any, levels: list[str]) -> dict[Any, Any]:
    """The block at a place; an empty one if an earlier change has replaced it."""
    for level in levels:
        values = values.get(level, values.get(int(level)) if level.isdigit() else None)
        if not isinstance(values, dict):
            return {}
    return values


def _put(values: dict[str, Any], place: str, value: Any, chance: random.Random) -> None:
    *levels, last = place.split(".")
    _block(values, levels)[int(last) if last.isdigit() else last] = copy.deepcopy(value)


def _drop(values: dict[str, Any], place: str, value: Any, chance: random.Random) -> None:
    *levels, last = place.split(".")
    _block(values, levels).pop(last, None)


def _misspell(values: dict[str, Any], place: str, value: Any, chance: random.Random) -> None:
    letters = list(place)
    letters[chance.randrange(len(letters))] = chance.choice("abcdefz_-0 ")
    _put(values, "".join(letters), value, chance)


#: Changes of the text: cut short, a repeated block, circles, long numbers, other characters.
TEXTS: tuple[Callable[[str, random.Random], str], ...] = (
    lambda text, chance: text[: chance.randrange(len(text))],
    lambda text, chance: text + "\nprotocol: {budget: {steps: 3}}\n",
    lambda text, chance: text + "\nloop: &loop [*loop]\n",
    lambda text, chance: text + "\ndata: &data {synthetic: *data}\n",
    lambda text, chance: text.replace("1", "9" * 5000, 1),
    lambda text, chance: text + "\ndeep: " + "[" * 3000,
    lambda text, chance: text + "\ndeep: " + "{a: " * 200 + "1" + "}" * 200,
    lambda text, chance: text + "\n- 1\n",
    lambda text, chance: text.replace(":", "", 3),
    lambda text, chance: text + "\nwhen: 2026-13-45\nset: !!set {a, b}\n",
    lambda text, chance: text + "\nx: !!binary aGFsbG8=\n",
    lambda text, chance: f"{text}\n{BOMB}",
    lambda text, chance: "\ufeff" + text,
    lambda text, chance: "".join(chance.choice((c, c, c, chr(chance.randrange(1, 0x3000)))) for c in text),
    lambda text, chance: "",
    lambda text, chance: "3",
)  # fmt: skip
