"""Every error message on the FAQ page is printed by the program."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vit_vs_cnn as vc
from vit_vs_cnn.cli import main
from vit_vs_cnn.errors import InputError

PAGE = (Path(__file__).parents[1] / "docs/faq.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^```text\n(.*)\n```$", PAGE, re.MULTILINE)
TINY = ["--data.synthetic", "{train_images: 60, test_images: 60}", "--protocol.train_sizes", "[60]"]
TINY += ["--protocol.budget.steps", "2", "--executor", "local", "--quiet"]
FOLDER = ["train", "--config", "folder", "--data.folder.cache", "cache", "--data.root"]

#: A part of each message, and a command that prints it.
PRINTED_BY = {
    "sedes": ["train", "--protocol.sedes", "[0]"],
    "got three": ["train", "--protocol.seeds", "three"],
    "config cifar": ["train", "--config", "cifar"],
    "trian": ["trian"],
    "is not in 1 to 60": ["train", *TINY, "--protocol.train_sizes", "[500]"],
    "by_size": ["train", "--models.vit.by_size", "{500: {label_smoothing: 0.1}}", *TINY],
    "exactly one of": ["train", "--protocol.budget", "{steps: 5, epochs: 5}"],
    "protocol.pairs": ["train", "--protocol.pairs", "[[vit, cnn]]"],
    "patch_size": ["train", "--models.vit.options.patch_size", "5", *TINY],
    "num_heads": ["train", "--models.vit.options.num_heads", "5", *TINY],
    "options.dept": ["train", "--models.vit.options.dept", "4", *TINY],
    "finetune: head": ["train", "--models.vit.finetune", "head"],
    "fotos": [*FOLDER, "fotos"],
    "only the class": [*FOLDER, "one"],
    "no train/": [*FOLDER, "half"],
    "empty file": [*FOLDER, "bad"],
    "too few images": [*FOLDER, "few"],
    "CIFAR-10": ["train", "--config", "cifar10_cpu", "--data.cifar.download", "false", "--data.root", "nowhere"],
    "leaves no validation image": ["tune", "--tuning.trials", "2", "--trainer.precision", "32-true", *TINY],
    "accelerator gpu": ["train", "--trainer.accelerator", "gpu", *TINY],
    "runs/none": ["status", "runs/none"],
    "error: photos": ["inspect", "photos"],
    "0.png": ["predict", "one/cats/0.png", "one"],
    "speed": ["compare", "runs/none", "--parts", "speed"],
}
IMAGES = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)
LABELS = ["cat", "dog"] * 20
GIVEN = {
    "several sizes": ([image[: 8 + place % 2] for place, image in enumerate(IMAGES)], LABELS),
    "float64 values": ((IMAGES % 64) * (4.25 / 63), LABELS),
    "(16, 16, 5)": (np.zeros((40, 16, 16, 5), np.uint8), LABELS),
}
#: Messages that need training or timing first; test_time_plan.py tests the one on minutes.
TRAINED = {"loss is not a number", "minutes 0.001", "several models", "mine.Net", "onnxscript", "no attention between"}


def explained(key: str) -> re.Pattern[str]:
    """The message of the page that contains the key, as a pattern in which dots match any text."""
    (message,) = [one for one in MESSAGES if key in one]
    return re.compile(re.escape(message).replace(r"\.\.\.", ".*"))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, count in {"one/cats": 4, "few/cats": 4, "few/dogs": 2, "bad/cats": 12, "bad/dogs": 12}.items():
        Path(name).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(IMAGES[number]).save(f"{name}/{number}.png")
    Path("half/test/cats").mkdir(parents=True)
    Path("photos").mkdir()
    Path("bad/cats/x.jpg").write_bytes(b"no image")
    Path("bad/dogs/e.png").write_bytes(b"")
    return tmp_path


def test_every_message_of_the_page_is_tested_once():
    keys = [*PRINTED_BY, *GIVEN, *TRAINED]
    assert all(explained(key) for key in keys)
    assert [one for one in MESSAGES if sum(key in one for key in keys) != 1] == []


@pytest.mark.parametrize("key", PRINTED_BY)
def test_messages_of_the_page_are_printed(key, here, error_line):
    assert explained(key).match(error_line(*PRINTED_BY[key]))


@pytest.mark.parametrize("key", GIVEN)
def test_messages_about_images_given_in_python_are_raised(key, here):
    config = {"name": "given", "protocol": {"train_sizes": [20], "budget": {"steps": 1}}}
    with pytest.raises(InputError) as error:
        vc.train(config | {"models": {"resnet": {"name": "resnet8"}}}, data=GIVEN[key], quiet=True)
    assert explained(key).match(str(error.value))


@pytest.mark.slow
def test_messages_that_need_training_first_are_printed(here, capsys, monkeypatch):
    Path("mine.py").write_text("from tests.own_classes import SmallCnn\n\n\nclass Net(SmallCnn):\n    pass\n")
    monkeypatch.syspath_prepend(here)

    def last_line(*words: str) -> str:
        capsys.readouterr()
        main([*words])
        return capsys.readouterr().err.splitlines()[-1]

    diverging = ["--models.vit.optimizer", "{name: sgd, lr: 1.0e8}", "--models.resnet", "null"]
    main(["train", *TINY, *diverging, "--protocol.budget.steps", "30", "--trainer.precision", "32-true"])
    assert re.search(r"the loss is not a number at step \d+ of 30: likely the learning", capsys.readouterr().err)
    main(["train", "--name", "a", *TINY, "--models.resnet", "{class_path: mine.Net}"])
    own = str(next(Path("runs/a").glob("resnet*")))
    assert explained("several models").match(last_line("to-attention", "runs/a"))
    assert explained("mine.Net").match(last_line("inspect", own))
    assert explained("no attention between").match(last_line("inspect", own, "--trust", "--methods", "rollout"))
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert explained("onnxscript").match(last_line("export", own, "--trust", "--format", "onnx"))
