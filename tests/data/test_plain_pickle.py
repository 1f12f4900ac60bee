"""The reader of plain pickles gives back data, and runs nothing."""

import copyreg
import io
import os
import pickle
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest

from vit_vs_cnn.data.plain_pickle import parse_plain_pickle
from vit_vs_cnn.errors import InputError

PLAIN = {"text": "ä", "bytes": b"\x00\xff", "numbers": [1, 2**70, 0.5, True, None], "nested": ({"a": (1,)}, [[]])}


class Touch:
    """Pickles to a call that creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def text(value):
    """A string as Python 2 pickled it."""
    return b"U" + bytes([len(value)]) + value.encode()


def refused(content):
    with pytest.raises(InputError) as caught:
        parse_plain_pickle(content, "some/file")
    message = str(caught.value)
    assert message.startswith("some/file: ") and "\n" not in message
    return message


@pytest.mark.parametrize("protocol", range(6))
def test_plain_data_comes_back_as_it_was(protocol):
    assert parse_plain_pickle(pickle.dumps(PLAIN, protocol), "x") == PLAIN


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize("dtype", ["u1", "<i8", ">f4", "?", "<u2"])
def test_arrays_come_back_as_they_were(protocol, dtype):
    array = np.arange(2 * 3 * 5).reshape(2, 3, 5).astype(dtype)
    for stored in (array, np.asfortranarray(array)):
        read = parse_plain_pickle(pickle.dumps([stored, stored], protocol), "x")
        assert read[0].dtype == array.dtype
        np.testing.assert_array_equal(read[0], array)
        np.testing.assert_array_equal(read[1], array)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_numpy_scalars_become_numbers(protocol):
    assert parse_plain_pickle(pickle.dumps({"label": np.int64(7), "loss": np.float32(0.5)}, protocol), "x") == {
        "label": 7,
        "loss": 0.5,
    }


def test_a_list_that_holds_itself_is_read():
    loop = [1]
    loop.append(loop)
    read = parse_plain_pickle(pickle.dumps(loop), "x")
    assert read[0] == 1 and read[1] is read


@pytest.mark.parametrize("protocol", range(6))
def test_a_call_is_refused_by_name_and_not_made(tmp_path, protocol):
    witness = tmp_path / "witness"
    for content in (Touch(witness), {"data": [1, (Touch(witness),)]}):
        assert f"{os.system.__module__}.system" in refused(pickle.dumps(content, protocol))
    assert not witness.exists()


def test_the_probe_would_run_under_the_ordinary_reader(tmp_path):
    pickle.loads(pickle.dumps(Touch(tmp_path / "witness")))
    assert (tmp_path / "witness").exists()


@pytest.mark.parametrize(
    "name",
    ["builtins.eval", "builtins.getattr", "numpy.load", "numpy.core.multiarray._reconstruct.__globals__", "os.system"],
)
def test_a_name_from_the_stack_is_refused(name):
    module, _, attribute = name.partition(".") if "core" not in name else ("numpy.core.multiarray", ".", name[22:])
    content = b"\x80\x04\x8c" + bytes([len(module)]) + module.encode()
    content += b"\x8c" + bytes([len(attribute)]) + attribute.encode() + b"\x93\x8c\x011\x85R."
    assert name in refused(content)


def test_old_style_instances_are_refused(tmp_path):
    witness = tmp_path / "witness"
    call = text(f"touch {witness}")
    assert "posix.system" in refused(b"\x80\x02(" + call + b"iposix\nsystem\n.")
    assert "posix.system" in refused(b"\x80\x02(cposix\nsystem\n" + call + b"o.")
    assert "posix.system" in refused(b"\x80\x02cposix\nsystem\n" + call + b"\x85\x81.")
    assert not witness.exists()


@pytest.mark.parametrize("name", ["numpy.core.multiarray._reconstruct", "numpy.ndarray", "_codecs.encode"])
def test_a_permitted_name_cannot_be_altered(name):
    module, _, attribute = name.rpartition(".")
    load = f"c{module}\n{attribute}\n".encode()
    for state in (b"}" + text("x") + b"K\x01s", b"N}" + text("__defaults__") + b"Ns\x86"):
        assert name in refused(b"\x80\x02" + load + state + b"b.")


def test_state_of_a_list_or_number_is_refused():
    for value in (b"]", b"K\x01", b"}"):
        refused(b"\x80\x02" + value + b"}" + text("append") + b"K\x01sb.")


def test_permitted_names_cannot_be_abused():
    array = b"cnumpy.core.multiarray\n_reconstruct\n"
    empty = b"K\x00\x85" + text("b") + b"\x87R"
    dtype = b"cnumpy\ndtype\n" + text("O8") + b"K\x00K\x01\x87R"
    assert "numpy.dtype('O8')" in refused(b"\x80\x02" + dtype + b".")
    assert "no numpy.ndarray" in refused(b"\x80\x02" + array + b"]" + empty + b".")
    assert "numpy.ndarray" in refused(b"\x80\x02cnumpy\nndarray\nK\x05\x85R.")
    assert "numpy.ndarray" in refused(b"\x80\x02cnumpy\nndarray\n.")
    assert "rot13" in refused(b"\x80\x02c_codecs\nencode\n" + text("abc") + text("rot13") + b"\x86R.")
    assert "zlib" in refused(b"\x80\x02c_codecs\nencode\n" + text("abc") + text("zlib") + b"\x86R.")
    assert "an empty array" in refused(b"\x80\x02" + array + b"cnumpy\nndarray\n" + empty + b".")


def test_an_array_of_objects_is_refused():
    message = refused(pickle.dumps(np.array([{}, "a"], dtype=object)))
    assert "numpy.dtype('O8')" in message
    assert "numpy.dtype" in refused(pickle.dumps(np.zeros(2, [("a", "u1")])))


@pytest.mark.parametrize("opcode", [b"\x82\xf0", b"\x83\xf0\x00", b"\x84\xf0\x00\x00\x00"])
@pytest.mark.parametrize("is_cached", [False, True])
def test_the_extension_registry_is_refused(tmp_path, opcode, is_cached):
    witness = tmp_path / "witness"
    copyreg.add_extension("posix", "system", 0xF0)
    try:
        if is_cached:  # as after another unpickler used it
            pickle.loads(b"\x80\x02" + opcode + b".")
        assert "240" in refused(b"\x80\x02" + opcode + text(f"touch {witness}") + b"\x85R.")
    finally:
        copyreg.remove_extension("posix", "system", 0xF0)
    assert "240" in refused(b"\x80\x02" + opcode + b".")
    assert not witness.exists()


def test_persistent_ids_and_outside_buffers_are_refused():
    class Persistent(pickle.Pickler):
        def persistent_id(self, obj):
            return "outside" if obj == 3 else None

    file = io.BytesIO()
    Persistent(file).dump([3])
    assert "BINPERSID" in refused(file.getvalue())
    buffers = []
    refused(pickle.dumps(np.arange(5), 5, buffer_callback=buffers.append))


def test_sets_and_complex_numbers_are_refused():
    assert "EMPTY_SET" in refused(pickle.dumps({1, 2}))
    assert "builtins.complex" in refused(pickle.dumps(1j))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"\x80\x02",
        b"\x80\x09.",
        pickle.dumps(PLAIN)[:-5],
        zlib.compress(b"data"),
        b"\x80\x02" + b"]" * 9,
    ],
)
def test_damaged_bytes_give_one_line(content):
    assert "truncated or damaged" in refused(content)


def test_every_truncation_of_a_batch_gives_one_line():
    content = pickle.dumps({"data": np.arange(7, dtype=np.uint8), "labels": [1, 2]}, 2)
    for length in range(len(content)):
        refused(content[:length])


def test_an_array_of_the_wrong_size_gives_one_line():
    content = pickle.dumps(np.arange(6, dtype=np.uint8).reshape(2, 3), 4)
    assert content.count(b"K\x02K\x03\x86") == 1
    refused(content.replace(b"K\x02K\x03\x86", b"K\x02K\x05\x86"))


def test_a_python_2_array_is_read():
    dtype = (
        b"cnumpy\ndtype\n"
        + text("u1")
        + b"K\x00K\x01\x87R(K\x03"
        + text("|")
        + b"NNN"
        + 2 * b"J\xff\xff\xff\xff"
        + b"K\x00tb"
    )
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text("b") + b"\x87R(K\x01K\x02K\x03\x86"
    )
    values = bytes([0, 127, 128, 200, 254, 255])
    content = b"\x80\x02" + array + dtype + b"\x89T" + struct.pack("<I", 6) + values + b"tb."
    np.testing.assert_array_equal(parse_plain_pickle(content, "x"), np.frombuffer(values, np.uint8).reshape(2, 3))


def encoded_often(length, times):
    """A list of one text, encoded again and again."""
    start = b"X" + struct.pack("<I", length) + b"a" * length + b"q\x00X\x06\x00\x00\x00latin1q\x010("
    return b"\x80\x02" + start + b"c_codecs\nencode\nh\x00h\x01\x86R" * times + b"l."


#: Small files that ask for much. Under ``pickle.Unpickler`` the first two take 4 GB each, the third 380 MB.
HOSTILE = {
    "a place far out in the memo": b"\x80\x02]r" + struct.pack("<I", 0x0FFFFFFF) + b"00.",
    "twenty million lists": b"\x80\x02(" + b"]" * 20_000_000 + b"l.",
    "a text encoded two thousand times": encoded_often(200_000, 2000),
    "a key that doubles": b"\x80\x02U\x01aq\x00" + b"h\x00h\x00\x86q\x00" * 60 + b"0}h\x00K\x01s.",
    "a codec that doubles": b"\x80\x02)q\x00" + b"h\x00h\x00\x86q\x00" * 60 + b"c_codecs\nencode\nU\x01ah\x00\x86R.",
    "lists in lists": b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".",
    "lists in lists, by the memo": b"\x80\x02]q\x00" + b"]q\x01h\x00a0h\x01q\x000" * 60_000 + b"h\x00.",
    "a string of a terabyte": b"\x80\x05\x8e" + struct.pack("<Q", 1 << 40) + b"abc.",
    "a text of four gigabytes": b"\x80\x02X" + struct.pack("<I", 0xFFFFFFFF) + b"abc.",
    "a frame of a terabyte": b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"N0.",
    "an array of a terabyte": pickle.dumps(np.zeros(7, np.uint8), 4).replace(
        b"K\x07\x85", b"\x8a\x06" + bytes(5) + b"\x01\x85"
    ),
    "an empty array of a terabyte": b"\x80\x02cnumpy\nndarray\n\x8a\x06" + bytes(5) + b"\x01\x85R.",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_pickle_ends_in_one_line(kind):
    refused(HOSTILE[kind])


def test_a_whole_process_that_reads_hostile_pickles_stays_small(tmp_path):
    for number, content in enumerate(HOSTILE.values()):
        (tmp_path / str(number)).write_bytes(content)
    code = """if True:
        import resource, sys
        from pathlib import Path
        from vit_vs_cnn.data.plain_pickle import parse_plain_pickle
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for path in Path(sys.argv[1]).iterdir():
            try:
                parse_plain_pickle(path.read_bytes(), path.name)
                sys.exit(f"{path.name} was read")
            except ValueError:
                pass
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 1024 < 200e6
