"""Fixtures of all tests. Types and shapes of every call are checked."""

import atexit
import base64
import functools
import gc
import io
import os
import sys

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": os.devnull}  # no test downloads weights or uses cached ones
if "PYTEST_XDIST_WORKER" in os.environ:  # one of several processes: each uses one core, without busy waiting
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import typed_calls

gc.disable()  # until all is imported: nothing of it is garbage
sys.dont_write_bytecode = False  # compiled once and not again in each process
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
typed_calls.install()

import tests.children  # noqa: E402, F401  (its preloaded modules apply to all tests)

#: Beginnings of the reasons for which tests are skipped on a machine with all extras.
ALLOWED_SKIPS = ("needs a GPU", "needs a browser: ", "names are UTF-8 here")
_UNLISTED_SKIPS: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--refuse-skips", action="store_true", help="fail on a skip whose reason is not in ALLOWED_SKIPS")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not reason.startswith(ALLOWED_SKIPS):
            _UNLISTED_SKIPS.append(f"{report.nodeid}: {reason}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.option.refuse_skips and _UNLISTED_SKIPS:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for skip in _UNLISTED_SKIPS if config.option.refuse_skips else ():
        terminalreporter.write_line(f"not allowed to be skipped: {skip}", red=True)


def pytest_collection_finish() -> None:
    gc.enable()


@pytest.fixture(autouse=True)
def existing_objects_excluded_from_collection() -> None:
    """Exclude objects that existed before a test from garbage collection, which every run triggers."""
    gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Collect garbage once, instead of pytest's five times, and only with slow tests.

    Warnings of collected objects are then reported.
    """
    if config.option.markexpr != "not slow":
        gc.unfreeze()
        gc.collect()
    gc.freeze()


def _end() -> None:
    """End one of several processes immediately: freeing the objects of all tests takes seconds."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        os._exit(0)
    gc.unfreeze()  # libraries that search for leaks at exit find none


atexit.register(_end)  # registered first, so that it is called last


@pytest.fixture(autouse=True)
def seed() -> None:
    import torch

    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def written_modules_unloaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Unload modules that a test wrote and imported: the next test may use the same names."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path_factory.getbasetemp())):
            del sys.modules[name]


@pytest.fixture(scope="session", autouse=True)
def fsync_skipped() -> Iterator[None]:
    """Skip fsync, which protects against power cuts only. Killed processes lose no data without it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def synthetic_images_cached() -> Iterator[None]:
    """Generate equal synthetic images once. Tests of the generator call ``render_objects`` directly."""
    from vit_vs_cnn.data.synthetic.source import SyntheticSource

    draw = SyntheticSource._render
    cached = functools.lru_cache(maxsize=8)(lambda options, count, split: draw(SyntheticSource(options), count, split))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SyntheticSource, "_render", lambda source, count, split: cached(source.options, count, split))
        yield


@pytest.fixture(scope="session", autouse=True)
def costs_cached() -> Iterator[None]:
    """Count the cost of equal networks on images of one shape once, as it takes as long as a short run.

    Tests of the count call ``count_macs`` directly.
    """
    from vit_vs_cnn.networks import build

    count, cached = build.run_on_meta_device, {}

    def run_on_meta_device(network: Any, shape: tuple[int, ...]) -> Any:
        key = type(network), repr(network), shape
        if key not in cached:
            cached[key] = count(network, shape)
        return cached[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "run_on_meta_device", run_on_meta_device)
        yield


#: The smallest valid files of each format.
BLANK = {
    "png": base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
    ),
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1" viewBox="0 0 1 1"/>\n',
}
_BLANKS = [True]


@pytest.fixture(scope="session", autouse=True)
def blank_figures() -> Iterator[None]:
    """Write blank figures, except in tests with ``real_figures``: rendering takes half of the time.

    Figures are composed all the same.
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
    """Render figures from here to the end of the module."""
    _BLANKS[0] = False
    yield
    _BLANKS[0] = True


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """A function that runs a command, which must succeed, and returns what was printed."""
    from vit_vs_cnn.cli import main

    def run(*words: object) -> Any:
        assert main([str(word) for word in words]) == 0
        return capsys.readouterr()

    return run


@pytest.fixture
def error_line(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A function that runs a command, which must be refused, and returns the line that it prints."""
    from vit_vs_cnn.cli import main

    def run(*words: object) -> str:
        capsys.readouterr()
        assert main([str(word) for word in words]) == 2
        printed = capsys.readouterr()
        (line,) = [line for line in printed.err.splitlines() if not line.endswith("...")]  # of progress
        assert line.startswith("error: ") and len(line) < 1000 and printed.out == "", printed
        return line

    return run


@pytest.fixture
def console() -> Any:
    """A console whose text ``console.file.getvalue()`` returns."""
    from rich.console import Console

    return Console(file=io.StringIO(), width=500)


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished experiment: two models, two seeds, two steps. Read it, or change a copy."""
    from tests.experiments.tiny import run_quietly, tiny_experiment

    root = tmp_path_factory.mktemp("trained_once")
    run_quietly(tiny_experiment(root, seeds=[3, 4], budget={"steps": 2}))
    return root / "tiny"


@pytest.fixture(scope="session")
def trained_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished experiment with both models and other synthetic images. Read it only."""
    from tests.experiments.tiny import run_quietly, tiny_config, tiny_experiment

    root = tmp_path_factory.mktemp("other_images")
    data = tiny_config(root)["data"]
    run_quietly(tiny_experiment(root, data=data | {"synthetic": data["synthetic"] | {"seed": 7}}))
    return root / "tiny"
