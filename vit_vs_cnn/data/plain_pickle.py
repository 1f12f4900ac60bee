"""A reader of pickles that can construct nothing but plain data.

A pickle is a program for a small stack machine; its GLOBAL, REDUCE and BUILD instructions can call anything that Python
can import. The published CIFAR files are pickles, and a mirror or a colleague may hand out altered ones. Here the few
names that an array needs are answered by stand-ins of our own that check what they are given; no name is ever imported,
so a pickle that asks for another one is refused before it has done anything.
"""

import copyreg
import io
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vit_vs_cnn.errors import InputError

NUMBERS = re.compile(r"[biuf][1248]")
LEAVES = (str, bytes, int, float, type(None))


class Refused(Exception):
    """The pickle asks for something that plain data does not need."""


class StandIn:
    """What a permitted name stands for: it can be called, it cannot be altered, and it is no type."""

    __slots__ = ("_call", "name")

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        self.name = name
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise Refused(f"it alters {self.name}")


class DTypeRecord:
    """A numpy dtype of numbers, as its pickle describes it: first the code, then the byte order."""

    __slots__ = ("code", "order")

    def __init__(self, code: str) -> None:
        if not NUMBERS.fullmatch(code):
            raise Refused(f"it asks for numpy.dtype({code!r})")
        self.code = code
        self.order = "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, order, *structure = state[:5]
        if order not in ("<", ">", "|", "=") or structure != [None, None, None]:
            raise Refused("it asks for a structured numpy.dtype")
        self.order = order

    def dtype(self) -> np.dtype:
        return np.dtype(self.order + self.code)


class ArrayRecord:
    """A numpy array, as its pickle describes it: first empty, then its contents."""

    __slots__ = ("values",)

    def __init__(self, values: np.ndarray | None = None) -> None:
        self.values = values

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, dtype, is_fortran, content = state
        self.values = _array(content, dtype, shape, "F" if is_fortran else "C")


def _array(content: str | bytes | bytearray, dtype: DTypeRecord, shape: tuple[int, ...], order: Any) -> np.ndarray:
    if not isinstance(dtype, DTypeRecord):
        raise Refused("it describes an array without a numpy.dtype of numbers")
    if isinstance(content, str):  # Python 2 kept bytes as str
        content = content.encode("latin1")
    return np.frombuffer(content, dtype.dtype()).reshape(shape, order=order)


def _empty_array(kind: Any, _shape: Any, _code: Any) -> ArrayRecord:
    if kind is not PERMITTED["numpy.ndarray"]:
        raise Refused("it reconstructs an array that is no numpy.ndarray")
    return ArrayRecord()


def _array_from_buffer(buffer: bytes | bytearray, dtype: Any, shape: Any, order: Any) -> ArrayRecord:
    return ArrayRecord(_array(buffer, dtype, shape, order))


def _scalar(dtype: Any, content: str | bytes) -> int | float:
    return _array(content, dtype, (), "C").item()


def _dtype(code: str, _align: Any = False, _copy: Any = True) -> DTypeRecord:
    return DTypeRecord(code)


def _encode(text: str, codec: str) -> bytes:
    if codec != "latin1":
        raise Refused(f"it asks for _codecs.encode with {codec!r}")
    return text.encode("latin1")


def _never(*_arguments: Any) -> Any:
    raise Refused("it calls numpy.ndarray")


CALLS: dict[str, Callable[..., Any]] = {
    "numpy.ndarray": _never,
    "numpy.dtype": _dtype,
    "_codecs.encode": _encode,
    "numpy.core.multiarray._reconstruct": _empty_array,
    "numpy._core.multiarray._reconstruct": _empty_array,
    "numpy.core.multiarray.scalar": _scalar,
    "numpy._core.multiarray.scalar": _scalar,
    "numpy.core.numeric._frombuffer": _array_from_buffer,
    "numpy._core.numeric._frombuffer": _array_from_buffer,
}
PERMITTED = {name: StandIn(name, call) for name, call in CALLS.items()}


class PlainUnpickler(pickle.Unpickler):
    """Answers permitted names with stand-ins and refuses all others, persistent ids included.

    The extension registry leads to ``find_class`` too, unless another unpickler has filled the registry's cache; so the
    cache is emptied first.
    """

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), fix_imports=False, encoding="latin1")
        copyreg.clear_extension_cache()  # pyright: ignore[reportAttributeAccessIssue]

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        name = f"{module_name}.{global_name}"
        if name not in PERMITTED:
            raise Refused(f"it asks for {name}")
        return PERMITTED[name]

    def persistent_load(self, pid: Any) -> Any:
        raise Refused(f"it asks for the persistent object {pid!r}")


def _plain(value: Any, done: dict[int, tuple[Any, Any]]) -> Any:
    """``value`` with its records turned into arrays; ``done`` maps identities, for what occurs twice or in itself."""
    if isinstance(value, LEAVES):
        return value
    if id(value) in done:
        return done[id(value)][1]
    result = value
    if isinstance(value, list):
        done[id(value)] = (value, value)
        value[:] = [_plain(item, done) for item in value]
    elif isinstance(value, dict):
        done[id(value)] = (value, value)
        value.update({_plain(key, done): _plain(item, done) for key, item in value.items()})
    elif isinstance(value, tuple):
        result = tuple(_plain(item, done) for item in value)
    elif isinstance(value, ArrayRecord) and value.values is not None:
        result = value.values
    elif isinstance(value, bytearray):
        result = bytes(value)
    else:
        raise Refused(f"it holds {getattr(value, 'name', type(value).__name__)} where data should be")
    done[id(value)] = (value, result)  # the original stays alive, so that its identity is not used again
    return result


def parse_plain_pickle(content: bytes, where: Path | str) -> Any:
    """The dicts, lists, tuples, strings, numbers and (read-only) numpy arrays that a pickle of plain data describes.

    Strings of Python 2 are read as Latin-1.

    Arguments:
        content: the bytes of the pickle.
        where: the file that they come from, for the message.

    Raises:
        InputError: if the pickle is damaged, or asks for anything but plain data; that thing is named, and not run.
    """
    try:
        return _plain(PlainUnpickler(content).load(), {})
    except Refused as refusal:
        raise InputError(
            f"{where}: refused to load it: {refusal}, and only arrays, numbers, strings and lists or dicts of them are "
            "allowed; get the file from a source that you trust"
        ) from None
    except Exception as error:  # damaged bytes make the stack machine fail in every way there is
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        raise InputError(f"{where}: truncated or damaged pickle ({reason}); get the file again") from None


def read_plain_pickle(path: Path) -> Any:
    """``parse_plain_pickle`` of a file.

    Raises:
        InputError: as there, or if the file cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    return parse_plain_pickle(content, path)
