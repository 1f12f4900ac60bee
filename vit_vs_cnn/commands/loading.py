"""A word on the terminal for as long as large libraries are imported: seconds in which nothing else can be said."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

#: Libraries whose import takes a good part of a second.
SLOW = frozenset({"lightning", "matplotlib", "onnx", "scipy", "sympy", "timm", "torch", "torchmetrics", "torchvision"})


@contextmanager
def loading_told() -> Iterator[None]:
    """Within the block ``loading torch ...`` stands there while that is imported, and is wiped away behind it.

    It stands on standard error; where that is no terminal nothing is written.
    """
    if not sys.stderr.isatty():
        yield
        return
    finder = _Telling()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Telling(MetaPathFinder):
    """Finds what the others find, and tells when a slow library begins and ends; what that imports is part of it."""

    def __init__(self) -> None:
        self._stream = sys.stderr  # whatever is put in its place while a live display runs
        self._loads = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        library = fullname.partition(".")[0]
        if self._loads or library not in SLOW:
            return None
        others = (one for one in sys.meta_path if one is not self)
        spec = next((found for one in others if (found := one.find_spec(fullname, path, target))), None)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = self._told(f"loading {library} ...", spec.loader.exec_module)
        return spec

    def _told(self, text: str, run: Callable[..., None]) -> Callable[..., None]:
        def execute(module: ModuleType) -> None:
            self._loads = True
            self._write(text)
            try:
                run(module)
            finally:
                self._write(" " * len(text))
                self._loads = False

        return execute

    def _write(self, text: str) -> None:
        self._stream.write(f"{text}\r")
        self._stream.flush()
