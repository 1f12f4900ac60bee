"""A reader of pickles that can construct nothing but plain data, in memory that the pickle's own length bounds.

A pickle is a program for a small stack machine; its GLOBAL, REDUCE and BUILD instructions can call anything that Python
can import. The published CIFAR files are pickles, and a mirror or a colleague may hand out altered ones. Here the
instructions come from the standard library's ``pickletools.genops``, which runs nothing, and are followed by a machine
of our own that knows those of plain data alone; names are words to it, and nothing is ever imported.

Why not ``pickle.Unpickler`` with a ``find_class`` that allows numpy's names? It would be half as long, but the machine
in C has no bounds: of nine bytes that put a list at place 2**28 of its memo it makes 4 GB (Python 3.11). And numpy's
own constructors, handed to a stranger's arguments, allocate what these say.
"""

import pickletools
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from vit_vs_cnn.errors import InputError, one_line

MOST_STEPS = 1_000_000  # the published file with the most instructions, CIFAR-100's train, has 200,204
MOST_DEPTH = 100
NEWEST_PROTOCOL = 5
NUMBERS = re.compile(r"[biuf][1248]")
LEAVES = (str, bytes, int, float, type(None), np.ndarray)


class Refused(Exception):
    """The pickle asks for something that plain data does not need."""


class Name:
    """A permitted name; what it stands for is never looked up."""

    def __init__(self, name: str) -> None:
        if name not in CALLS:
            raise Refused(f"it asks for {name}")
        self.name = name


class DTypeRecord:
    """A numpy dtype of numbers, as its pickle describes it: first the code, then the byte order."""

    name = "numpy.dtype"

    def __init__(self, code: str) -> None:
        if not NUMBERS.fullmatch(code):
            raise Refused(f"it asks for numpy.dtype({code!r})")
        self.code = code
        self.order = "="

    def set_order(self, state: tuple[Any, ...]) -> None:
        _version, order, *structure = state[:5]
        if order not in ("<", ">", "|", "=") or structure != [None, None, None]:
            raise Refused("it asks for a structured numpy.dtype")
        self.order = order


class EmptyArray:
    """A numpy array before BUILD brings its contents; ``places`` are those of the memo that it has."""

    name = "an empty array"

    def __init__(self) -> None:
        self.places: list[int] = []


class Machine:
    """The stack machine: ``run`` follows the instructions of a pickle and returns the value that it describes."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.encodable = len(content)  # what is encoded once, as in an honest pickle, is no longer than the pickle

    def run(self) -> Any:
        for step, (opcode, argument, _) in enumerate(pickletools.genops(self.content)):
            if step == MOST_STEPS:
                raise Refused(f"it has more than {MOST_STEPS:,} instructions")
            name = opcode.name
            if name in LITERALS:
                self.stack.append(argument)
            elif name in STEPS:
                STEPS[name](self, argument)
            else:
                raise Refused(f"it has the instruction {name} {'' if argument is None else _dotted(argument)}".rstrip())
        return _checked(self.stack.pop())

    def above_mark(self) -> list[Any]:
        """Take what lies above the last mark off the stack."""
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def top(self, count: int) -> list[Any]:
        """Take as many values off the stack."""
        if count > len(self.stack):
            raise IndexError("the stack is empty")
        items = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return items

    def put(self, place: int) -> None:
        value = self.memo[place] = self.stack[-1]
        if isinstance(value, EmptyArray):
            value.places.append(place)

    def extend(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise Refused(f"it appends to {_kind(self.stack[-1])}")
        self.stack[-1].extend(items)

    def update(self, items: list[Any]) -> None:
        keys = items[::2]
        if type(self.stack[-1]) is not dict or not all(type(key) in (str, bytes) for key in keys):
            raise Refused("it has keys that are no strings, or sets them in what is no dict")
        self.stack[-1].update(zip(keys, items[1::2], strict=True))

    def name(self, words: str) -> None:
        self.stack.append(Name(_dotted(words)))

    def call(self) -> None:
        called, arguments = self.top(2)
        if not isinstance(called, Name):
            raise Refused(f"it calls {_kind(called)}")
        self.stack.append(CALLS[called.name](self, *arguments))

    def build(self) -> None:
        """Give a record its state; an array that is whole takes the place of its record everywhere."""
        record, state = self.top(2)
        if isinstance(record, DTypeRecord):
            record.set_order(state)
            return self.stack.append(record)
        if not isinstance(record, EmptyArray):
            raise Refused(f"it alters {_kind(record)}")
        _version, shape, dtype, is_fortran, content = state
        array = self.array(content, dtype, shape, "F" if is_fortran else "C")
        self.memo.update(dict.fromkeys(record.places, array))
        self.stack.append(array)

    def array(self, content: str | bytes, dtype: Any, shape: tuple[int, ...], order: Any = "C") -> np.ndarray:
        if not isinstance(dtype, DTypeRecord):
            raise Refused("it describes an array without a numpy.dtype of numbers")
        if order not in ("C", "F"):
            raise Refused("it describes an array of an unknown order")
        if isinstance(content, str):  # Python 2 kept bytes as str
            content = self.encode(content, "latin1")
        return np.frombuffer(content, np.dtype(dtype.order + dtype.code)).reshape(shape, order=order)

    def encode(self, text: str, codec: Any) -> bytes:
        self.encodable -= len(text)
        if codec != "latin1":
            raise Refused(f"it asks for _codecs.encode with {codec if isinstance(codec, str) else _kind(codec)}")
        if self.encodable < 0:
            raise Refused("it encodes more text than it holds")
        return text.encode("latin1")

    def empty_array(self, kind: Any, _shape: Any, _code: Any) -> EmptyArray:
        if not isinstance(kind, Name) or kind.name != "numpy.ndarray":
            raise Refused("it reconstructs an array that is no numpy.ndarray")
        return EmptyArray()


def _never(_machine: Machine, *_arguments: Any) -> Any:
    raise Refused("it calls numpy.ndarray")


def _dotted(argument: Any) -> str:
    return str(argument).replace(" ", ".")


def _kind(value: Any) -> str:
    return getattr(value, "name", type(value).__name__)


def _protocol(_machine: Machine, number: int) -> None:
    if number > NEWEST_PROTOCOL:
        raise ValueError(f"protocol {number}")


CALLS: dict[str, Callable[..., Any]] = {
    "numpy.ndarray": _never,
    "numpy.dtype": lambda _machine, code, _align=False, _copy=True: DTypeRecord(code),
    "_codecs.encode": Machine.encode,
} | {
    f"numpy.{core}.{name}": call
    for core in ("core", "_core")
    for name, call in {
        "multiarray._reconstruct": Machine.empty_array,
        "multiarray.scalar": lambda machine, dtype, content: machine.array(content, dtype, ()).item(),
        "numeric._frombuffer": Machine.array,
    }.items()
}
LITERALS = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT"),
    *("BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE"),
    *("SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
}
STEPS: dict[str, Callable[[Machine, Any], Any]] = {
    "PROTO": _protocol,
    "FRAME": lambda m, _: None,
    "STOP": lambda m, _: None,
    "NONE": lambda m, _: m.stack.append(None),
    "NEWTRUE": lambda m, _: m.stack.append(True),
    "NEWFALSE": lambda m, _: m.stack.append(False),
    "BYTEARRAY8": lambda m, content: m.stack.append(bytes(content)),
    "MARK": lambda m, _: m.marks.append(len(m.stack)),
    "POP": lambda m, _: m.top(1),
    "POP_MARK": lambda m, _: m.above_mark(),
    "EMPTY_LIST": lambda m, _: m.stack.append([]),
    "EMPTY_DICT": lambda m, _: m.stack.append({}),
    "EMPTY_TUPLE": lambda m, _: m.stack.append(()),
    "LIST": lambda m, _: m.stack.append(m.above_mark()),
    "DICT": lambda m, _: [items := m.above_mark(), m.stack.append({}), m.update(items)],
    "TUPLE": lambda m, _: m.stack.append(tuple(m.above_mark())),
    "TUPLE1": lambda m, _: m.stack.append(tuple(m.top(1))),
    "TUPLE2": lambda m, _: m.stack.append(tuple(m.top(2))),
    "TUPLE3": lambda m, _: m.stack.append(tuple(m.top(3))),
    "APPEND": lambda m, _: m.extend(m.top(1)),
    "APPENDS": lambda m, _: m.extend(m.above_mark()),
    "SETITEM": lambda m, _: m.update(m.top(2)),
    "SETITEMS": lambda m, _: m.update(m.above_mark()),
    "PUT": Machine.put,
    "MEMOIZE": lambda m, _: m.put(len(m.memo)),
    "GET": lambda m, place: m.stack.append(m.memo[place]),
    "GLOBAL": Machine.name,
    "STACK_GLOBAL": lambda m, _: m.name(" ".join(m.top(2))),
    "REDUCE": lambda m, _: m.call(),
    "BUILD": lambda m, _: m.build(),
}
for _short in ("PUT", "GET"):
    STEPS |= {f"{_long}{_short}": STEPS[_short] for _long in ("BIN", "LONG_BIN")}


def _checked(value: Any) -> Any:
    """``value``, which holds plain data and is not nested without end; what occurs in several places is seen once."""
    seen: set[int] = set()
    level: list[Any] = [value]
    for _ in range(MOST_DEPTH):
        level = [inner for outer in level for inner in _inside(outer, seen)]
        if not level:
            return value
    raise Refused(f"it nests more than {MOST_DEPTH} lists")


def _inside(value: Any, seen: set[int]) -> Iterable[Any]:
    if isinstance(value, LEAVES) or id(value) in seen:
        return ()
    seen.add(id(value))
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, dict):
        return value.values()
    raise Refused(f"it holds {_kind(value)} where data should be")


def parse_plain_pickle(content: bytes, where: Path | str) -> Any:
    """The dicts, lists, tuples, strings, numbers and (read-only) numpy arrays that a pickle of plain data describes.

    Strings of Python 2 are read as Latin-1. The keys of dicts are strings. At most a million instructions are followed.

    Raises:
        InputError: if the pickle is damaged, or asks for anything but plain data; that thing is named, and not run.
    """
    try:
        return Machine(content).run()
    except Refused as refusal:
        raise InputError(
            f"{where}: refused to load it: {one_line(refusal)}, and only arrays, numbers, strings "
            "and lists or dicts of them are allowed; get the file from a source that you trust"
        ) from None
    except Exception as error:  # damaged bytes make the stack machine fail in every way there is
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        raise InputError(f"{where}: truncated or damaged pickle ({reason}); get the file again") from None
