"""What all tests share. Types and shapes of every call are checked, from before anything imports the package."""

import atexit
import base64
import functools
import gc
import os
import sys

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": os.devnull}  # no test fetches weights, or finds some
if "PYTEST_XDIST_WORKER" in os.environ:  # one of several processes: each takes one core, and does not spin for it
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import typed_calls

gc.disable()  # until all is imported: nothing of it is garbage
sys.dont_write_bytecode = False  # compiled once, and not anew in each process
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
typed_calls.install()

import tests.children  # noqa: E402, F401  (what it has children begin with holds for all tests)


def pytest_collection_finish() -> None:
    gc.enable()


@pytest.fixture(autouse=True)
def old_objects_frozen() -> None:
    """The collector, which every cell runs, need not look again and again through what was there before a test."""
    gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    """With the slow tests, what is left behind is collected and tells what it has to; once, and not the five times that
    pytest would. Without them nobody waits for it.
    """
    if config.option.markexpr != "not slow":
        gc.unfreeze()
        gc.collect()
    gc.freeze()


def _end() -> None:
    """One of several processes ends at once: to take apart what is left of all tests lasts seconds."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        os._exit(0)
    gc.unfreeze()  # libraries that look for leaks at the end find none


atexit.register(_end)  # early, so that it comes behind all others


@pytest.fixture(autouse=True)
def modules_of_tests_forgotten(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Modules that a test wrote and imported are not those of the next test, which may have the same names."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path_factory.getbasetemp())):
            del sys.modules[name]


@pytest.fixture(scope="session", autouse=True)
def disk_not_waited_for() -> Iterator[None]:
    """No test cuts the power, which is all that waiting for the disk is for; killed processes lose nothing by it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def drawn_once() -> Iterator[None]:
    """Experiments on the same drawn images draw them once; tests of the drawing call ``render_objects`` itself."""
    from vit_vs_cnn.data.synthetic.source import SyntheticSource

    draw = SyntheticSource._render
    kept = functools.lru_cache(maxsize=8)(lambda options, count, split: draw(SyntheticSource(options), count, split))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SyntheticSource, "_render", lambda source, count, split: kept(source.options, count, split))
        yield


@pytest.fixture(scope="session", autouse=True)
def counted_once() -> Iterator[None]:
    """Cells whose networks print alike, on images of one shape, have their cost counted once, which takes as long as
    their few steps; tests of the counting call ``count_macs`` itself.
    """
    from vit_vs_cnn.runs import networks

    count, kept = networks.run_on_meta_device, {}

    def run_on_meta_device(network: Any, shape: tuple[int, ...]) -> Any:
        key = type(network), repr(network), shape
        if key not in kept:
            kept[key] = count(network, shape)
        return kept[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(networks, "run_on_meta_device", run_on_meta_device)
        yield


#: The smallest files that are what their names say.
BLANK = {
    "png": base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
    ),
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1" viewBox="0 0 1 1"/>\n',
}
_BLANKS = [True]


@pytest.fixture(scope="session", autouse=True)
def blank_figures() -> Iterator[None]:
    """Figures are composed in every test, and laid out and rendered in those that ask for ``real_figures``: it takes
    half of all time, and most tests look at what stands beside them.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    render, lay_out = Figure.savefig, ConstrainedLayoutEngine.execute

    def savefig(figure: Figure, place: Any, **options: Any) -> None:
        if not _BLANKS[0]:
            render(figure, place, **options)
        elif hasattr(place, "write"):
            place.write(BLANK[options["format"]])
        else:
            Path(place).write_bytes(BLANK[options.get("format") or Path(place).suffix[1:]])

    def execute(engine: ConstrainedLayoutEngine, figure: Figure) -> None:
        if not _BLANKS[0]:
            lay_out(engine, figure)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", savefig)
        patch.setattr(ConstrainedLayoutEngine, "execute", execute)
        yield


@pytest.fixture(scope="module")
def real_figures() -> Iterator[None]:
    """From here to the end of the module figures are rendered."""
    _BLANKS[0] = False
    yield
    _BLANKS[0] = True


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished experiment: two contenders, two seeds, two steps. Read it, or change a copy."""
    from tests.experiments.tiny import run_quietly, tiny_experiment

    root = tmp_path_factory.mktemp("trained_once")
    protocol = {"train_sizes": [120], "seeds": [3, 4], "budget": {"steps": 2}, "batch_size": 14}
    run_quietly(tiny_experiment(root, protocol=protocol))
    return root / "tiny"
