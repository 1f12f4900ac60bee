"""Batch files are read as data. Nothing that a pickle names is run."""

import copyreg
import os
import pickle
import zlib

import numpy as np
import pytest

from tests.data.test_cifar import text
from tests.refused import message_of
from vit_vs_cnn.data.cifar import load_plain_pickle
from vit_vs_cnn.errors import InputError

PLAIN = {"text": "ä", "numbers": [1, 2**70, 0.5, True, None], "nested": ({"a": (1,)}, [[]])}
ARRAY = np.arange(2 * 3 * 5, dtype=np.uint8).reshape(2, 3, 5)


class Touch:
    """Pickles to a call that creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def refused(content):
    message = message_of(load_plain_pickle, content, "some/file")
    assert message.startswith("some/file: ")
    return message


@pytest.mark.parametrize("protocol", range(6))
def test_plain_data_and_byte_arrays_are_read_unchanged(protocol):
    assert load_plain_pickle(pickle.dumps(PLAIN, protocol), "x") == PLAIN
    for stored in (ARRAY, np.asfortranarray(ARRAY)) if protocol in (2, 3, 4) else ():
        read = load_plain_pickle(pickle.dumps({"data": stored, "bytes": b"\x00\xff"}, protocol), "x")
        np.testing.assert_array_equal(read["data"], ARRAY)
        assert read["bytes"] == b"\x00\xff"


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickled_call_is_refused_by_name_and_not_executed(tmp_path, protocol):
    witness = tmp_path / "witness"
    for content in (Touch(witness), {"data": [1, (Touch(witness),)]}):
        assert f"{os.system.__module__}.system" in refused(pickle.dumps(content, protocol))
    assert not witness.exists()
    pickle.loads(pickle.dumps(Touch(witness), protocol))
    assert witness.exists(), "pickle itself runs it"


def named(module, attribute):
    """A call of a name that is on the stack."""
    texts = b"".join(b"\x8c" + bytes([len(part)]) + part.encode() for part in (module, attribute))
    return b"\x80\x04" + texts + b"\x93\x8c\x011\x85R."


def test_every_way_to_name_code_is_refused():
    contents = [
        (named("builtins", "eval"), "builtins.eval"),
        (named("numpy", "load"), "numpy.load"),
        (named("numpy.core.multiarray", "_reconstruct.__globals__"), "_reconstruct.__globals__"),
        (b"\x80\x02(" + text("ls") + b"iposix\nsystem\n.", "posix.system"),  # instances of the old style
        (b"\x80\x02(cposix\nsystem\n" + text("ls") + b"o.", "posix.system"),
        (b"\x80\x02cposix\nsystem\n" + text("ls") + b"\x85\x81.", "posix.system"),
        (b"\x80\x02\x82\xf0" + text("ls") + b"\x85R.", "posix.system"),  # of the extension registry
        (b"\x80\x02\x83\xf0\x00" + text("ls") + b"\x85R.", "posix.system"),
        (b"\x80\x02\x84\xf0\x00\x00\x00" + text("ls") + b"\x85R.", "posix.system"),
        (pickle.dumps(1j), "builtins.complex"),
        (b"\x80\x02K\x03Q.", ""),  # a persistent id
    ]
    copyreg.add_extension("posix", "system", 0xF0)
    try:
        for content, name in contents:
            assert name in refused(content)
    finally:
        copyreg.remove_extension("posix", "system", 0xF0)


@pytest.mark.parametrize("dtype", ["O", "i8", "f4", "V8", [("a", "u1")]])
def test_arrays_of_anything_but_bytes_are_refused(dtype):
    assert "numpy.dtype" in refused(pickle.dumps({"data": np.zeros(2, dtype)}, 4))


@pytest.mark.parametrize("name", ["numpy.core.multiarray._reconstruct", "numpy.ndarray", "numpy.dtype"])
def test_stand_ins_for_numpy_cannot_be_modified_by_a_pickle(name):
    """Flags of a dtype, by which bytes would be read as pointers, and changed defaults have no effect."""
    module, _, attribute = name.rpartition(".")
    load = b"\x80\x02c" + f"{module}\n{attribute}\n".encode()
    for state in (b"}" + text("x") + b"K\x01sb", b"N}" + text("__defaults__") + b"Ns\x86b", b"K\x05\x85R"):
        try:
            read = load_plain_pickle(load + state + b".", "x")
        except InputError:
            continue
        assert not isinstance(read, np.ndarray | np.dtype | type(np))
    np.testing.assert_array_equal(load_plain_pickle(pickle.dumps({"data": ARRAY}, 2), "x")["data"], ARRAY)


def test_damaged_bytes_every_truncation_and_an_array_of_the_wrong_size_give_a_one_line_error():
    for content in (b"hello", b"\x80\x09.", pickle.dumps(PLAIN)[:-5], zlib.compress(b"data")):
        assert "truncated or damaged" in refused(content)
    content = pickle.dumps({"data": np.arange(7, dtype=np.uint8), "labels": [1, 2]}, 2)
    for length in range(len(content)):
        refused(content[:length])
    content = pickle.dumps({"data": ARRAY[0]}, 4)
    assert content.count(b"K\x03K\x05\x86") == 1
    refused(content.replace(b"K\x03K\x05\x86", b"K\x02K\x05\x86"))
