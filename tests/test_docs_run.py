"""Commands of all pages are run in order, and print the output below them.

    pytest -m slow tests/test_docs_run.py                       # all pages
    pytest -m slow tests/test_docs_run.py -k howto/compare    # one

Blocks of the languages ``py`` and ``sh`` are for the reader, and are not run. Options are added to long commands
(``SMALLER``), and commands that cannot be run here are in ``NOT_RUN``. Chinese pages have no commands of their own.
"""

import contextlib
import glob
import io
import pickle
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.draw_photographs import draw_photographs
from tests.data.test_cifar import make as make_cifar
from vit_vs_cnn.cli import main
from vit_vs_cnn.commands import COMMANDS

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^(?:`{3,})(\S*) ?([^\n]*)\n(.*?)^`{3,}$", re.MULTILINE | re.DOTALL)
#: Commands that need a shell, or start processes.
SHELL = re.compile(r"\||>|--trainer\.devices|--executor (ray|processes)")
OURS = re.compile(r"^(vit-vs-cnn|python -m vit_vs_cnn|python (?=train\.py))\s*")

#: Patterns of commands that are not run, with the reason.
NOT_RUN = {
    r"\$ pip install": "changes the environment that the tests run in, and downloads",
    r"\$ (python -m venv|source )": "creates an empty environment",
    r"\$ python -m tests\.check": "runs the tests, this one among them",
    r"\$ vit-vs-cnn train .*--name finetuned": "downloads pretrained weights",
    r"\$ (lightly-train|vit-vs-cnn train .*=simclr/)": "needs LightlyTrain, which is not installed for the tests",
    r"\$ python -m benchmarks\.record": "NAME is an experiment of the reader",
    r"\$ (jupyter lab|tensorboard)": "serves until it is stopped",
    r"\$ (nvidia-cuda-mps-control|echo quit)": "needs a GPU",
}
SHORT = "--protocol.budget.steps 2 --data.synthetic.test_images 100"
CIFAR = "--data.cifar.verify_checksum false --protocol.budget.steps 1 --protocol.seeds [0]"
NANO = "--models.vit vit_nano --models.resnet resnet8"
#: Options that are added to commands that match (page, ``$``, command) to reduce their work.
SMALLER = {
    r"^(?!.*--executor).*\b(train(\.py)?|tune)\b": "--executor local",
    r"train(\.py)?( --name deeper)?( --protocol\.seeds [^-]*| --models\.resnet [^-]*| --name duel)?$": SHORT,
    r"--config (configs/)?(cifar10|regimes)": CIFAR,
    r"--config regimes_cpu": "--protocol.train_sizes [5000]",
    r"--models\.vit\.pretrain": "--models.vit.pretrain.steps 2",
    r"--config cifar10 ": f"--protocol.train_sizes [400] --protocol.batch_size 32 {NANO}",
    r"--config (configs/)?(folder|decide)|mine\.yaml": "--protocol.budget.steps 1",
    r"^(?!.*your_images).*(--config (configs/)?(folder|decide)|mine\.yaml)": "--protocol.train_sizes [40]",
    r"^(?!.*your_images).*--config (configs/)?decide": "--protocol.seeds [0]",
    r"your_images.*--config decide": "--protocol.seeds [0,1,2] --data.folder.image_size 32",
    r"--tuning\.(trials 12|space)": "--tuning.trials 2 --tuning.splits 1 --data.validation_fraction 0.5",
    r"audit --data\.source cifar10": "--data.cifar.verify_checksum false",
    r"inspect runs/(?!.*(--count [24]|--images))|inspect RUN(?!.*--images)": "--count 2",
    r"--score": "--score-images 4",
    r"compare runs/(?!.*--quiet)": "--count 40",
    r"\$ vit-vs-cnn locality": "--count 8 --held-out 4",
    r"--executor ray": "--executor.address local --executor.resources '{CPU: 1}'",
    r"--output /shared/runs": "--output shared",
}
#: Placeholders on pages for values of the reader.
STANDS_FOR = {
    r"(runs/\w+/\w+-n\d+-s\d+-)(\.\.\.|[0-9a-f]{4}\b)": r"\1*",
    r"\bRUN\b": "runs/cifar10_cpu/vit-*",
    r"\bCHECKPOINT\b": "runs/duel/vit-*/checkpoints/last.ckpt",
    r"\bFOLDER\b": "figures",
    r"\bnew_photos\b": "photos",
}
CALLBACKS = (
    "[{class_path: lightning.pytorch.callbacks.ModelCheckpoint, init_args: {every_n_train_steps: 1, save_top_k: -1}}]"
)
#: Libraries of extras that a page needs.
NEEDS = {
    "docs/howto/cluster.md": ("ray",),
    "docs/howto/export.md": ("onnxruntime", "onnxscript"),
    "docs/reference/commands.md": ("onnxruntime", "onnxscript"),
}
REGIMES = "vit-vs-cnn train --config regimes_cpu"
#: Commands that a page assumes to have been run.
BEFORE = {
    "docs/concepts/locality.md": [REGIMES],
    "docs/gallery.md": [f"{REGIMES} --name locality_cpu", f"{REGIMES} --name regimes_25600_cpu"],
    "docs/howto/fine_tune.md": ["vit-vs-cnn train"],
    "docs/howto/inspect.md": [f"vit-vs-cnn train --config cifar10_cpu --trainer.callbacks '{CALLBACKS}'"],
    "docs/howto/predict.md": [
        "vit-vs-cnn train",
        "vit-vs-cnn export runs/quickstart/vit-*-s0-* --format safetensors --output .",
    ],
    "docs/reference/commands.md": ["vit-vs-cnn train --name duel", f"{REGIMES} --name locality"],
}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path) -> Iterator[tuple[str, str]]:
    """Language and text of each block; for a command of the reference its examples."""
    for language, word, text in BLOCK.findall(path.read_text(encoding="utf-8")):
        if language == "{command}":
            yield "bash", "\n".join(COMMANDS[word].examples)
        else:
            yield language, text


def commands(text: str) -> list[str]:
    """The commands of a block one by one, without comments; of a block with ``$`` the lines that have one."""
    lines = text.replace("\\\n", " ").splitlines()
    if text.startswith("$ "):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    output = [re.sub(r"\s+#\s.*", "", line) for line in lines]
    return [" ".join(one.split()) for line in output for one in line.split(" && ") if one]


def commands_of(page: Path) -> list[str]:
    return [one for language, text in blocks(page) if language in ("bash", "console") for one in commands(text)]


PAGES = [
    path
    for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))
    if "docs/zh" not in name_of(path) and commands_of(path)
]
PAGES += [
    path for path in sorted(ROOT.glob("docs/[he]*/*.md")) if path not in PAGES and "```python" in path.read_text()
]


def of_page(table: dict[str, str], page: Path, command: str) -> list[str]:
    """The entries of a table that match a command of a page."""
    return [found for pattern, found in table.items() if re.search(pattern, f"{name_of(page)} $ {command}")]


def smaller(page: Path, command: str) -> str:
    more = of_page(SMALLER, page, command)
    for pattern, ours in STANDS_FOR.items():
        command = re.sub(pattern, ours, command)
    return " ".join([command, *more])


def normal(output: str) -> str:
    """A text without parts that differ between runs and machines.

    These are numbers, hashes, folders, the better model, recommendations, warnings, and plans for given minutes.
    """
    for pattern, sign in {
        r"\x1b\[[0-9;]*m": "",
        r"(?<=\s)/\S*/(?=runs/)": "",
        r"[─━]+": "-",
        r"(?<=-)[0-9a-f]{10}\b": "HASH",
        r"[-+]?\d+(,\d{3})*(\.\d+)?(e[-+]?\d+)?": "0",
        r"\b0 min 0 s|\b0 h 0 min|\b0 (min|s|h)\b": "0 s",
        r"0M\b": "0",
        r"0(, 0)+": "0",
        r"\bp [<=>] 0": "p 0",
        r"\w+ is 0 points better than \w+": "one is 0 points better than the other",
        r"(ResNet0|ViT nano) \(0 parameters\) vs (ResNet0|ViT nano) \(0 parameters\)": "one vs the other",
        r"(ResNet|ViT) +(ResNet|ViT) +\1 - \2, points": "one, the other, points",
        r"(?s)Recommendation: .*?(?=\n *More images:|$)": "Recommendation: one",
        r"(?s)\n *Warning: .*?(?=\n\n|$)": "",
        r"significant|not enough evidence|no conclusion": "conclusion",
        r"\s+": " ",
        r"0 minutes allow a conclusion and no trend; --minutes 0 allows both": ("0 minutes allow both"),
    }.items():
        output = re.sub(pattern, sign, output)
    return output.strip()


def shows(shown: str, output: str) -> bool:
    """True if a text is in the output; ``...`` matches any text."""
    return re.search(".*".join([re.escape(normal(part)) for part in shown.split("...")]), normal(output)) is not None


def run(command: str, capfd: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """The output of a command and its error. Commands of the package run in this process, as starting one is slow."""
    capfd.readouterr()
    if OURS.match(command) and not SHELL.search(command):
        first, *words = shlex.split(OURS.sub("", command).replace("train.py", "train"))
        code = main([first, *(one for word in words for one in sorted(glob.glob(word)) or [word])])
    else:
        ours = f'python() {{ {sys.executable} "$@"; }}\nvit-vs-cnn() {{ python -m vit_vs_cnn "$@"; }}\n'
        code = subprocess.run(["bash", "-c", f"{ours}set -o pipefail\n{command}"], check=False).returncode
    output = "".join(capfd.readouterr())
    return output, f"{command}\nended with {code}:\n{output}" if code or "Traceback" in output else ""


@pytest.fixture
def prepared(tmp_path, monkeypatch) -> Path:
    """A copy of the parts of the repository that pages use, with images, CIFAR and weights."""
    from safetensors.torch import save_file
    from timm import create_model

    here = tmp_path / "here"
    here.mkdir()
    for name in ("train.py", "configs", "notebooks"):
        (here / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "results/regimes_cpu", here / "results/regimes_cpu")
    draw_photographs(here / "photos", of_each=45, side=48)
    for shape, called in {"cross": "cats", "disc": "dogs"}.items():
        (here / "photos" / shape).rename(here / "photos" / called)
    for photo in (here / "photos").glob("*/*.JPG"):
        photo.rename(photo.with_suffix(".jpg"))
    shutil.copy(photo.with_suffix(".jpg"), here / "cat.jpg")
    shutil.copytree(here / "photos/dogs", here / "more_photos")
    shutil.copytree(here / "photos/star", here / "labelled/star")  # a class of the synthetic images
    make_cifar(here / "data", "cifar10", count=1000)
    names = "airplane automobile bird cat deer dog frog horse ship truck".split()
    (here / "data/cifar-10-batches-py/batches.meta").write_bytes(pickle.dumps({"label_names": names}))
    save_file(create_model("resnet18", num_classes=10).state_dict(), here / "weights.safetensors")
    shutil.copy(ROOT / "configs/quickstart.yaml", here / "mine.yaml")
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(here)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{here}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return here


@pytest.mark.slow
@pytest.mark.filterwarnings("always")  # which commands print
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_of_a_page_do_what_it_shows(page, prepared, capfd):
    for library in NEEDS.get(name_of(page), ()):
        pytest.importorskip(library)
    wrong = [run(smaller(page, command), capfd)[1] for command in BEFORE.get(name_of(page), [])]
    names, output = {"__name__": "__main__"}, ""
    for language, text in blocks(page):
        if language in ("bash", "console"):
            done = [run(smaller(page, one), capfd) for one in commands(text) if not of_page(NOT_RUN, page, one)]
            output = "".join(one for one, _ in done)
            wrong += [one for _, one in done]
        elif language == "python" and ("docs/concepts" in name_of(page) or page.name == "README.md"):
            output = ""  # run by test_docs.py and test_api.py
        elif language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(text, name_of(page), "exec"), names)
            output = printed.getvalue()
        elif text.startswith("runs/<"):  # a tree of files
            wrong += [one for one in re.findall(r"[\w/]+\.[a-z]{3,4}\b", text) if not any(Path("runs").rglob(one))]
        elif language in ("text", "") and output and not shows(text, output):
            wrong.append(f"{name_of(page)} shows\n{text}\nand what is printed is\n{output}")
    if any(wrong):
        pytest.fail("\n\n".join(filter(None, wrong)), pytrace=False)


def test_every_row_of_the_tables_is_for_a_command_on_a_page():
    output = [(page, command) for page in PAGES for command in commands_of(page)]
    rows = [{pattern: ""} for table in (SMALLER, NOT_RUN, STANDS_FOR) for pattern in table]
    assert [row for row in rows if not any(of_page(row, *one) for one in output)] == []
    assert {*BEFORE, *NEEDS} <= {name_of(page) for page in PAGES}
