"""The container: the library's reader agrees, and hostile files are refused before memory is taken."""

import struct
import tracemalloc

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from hypothesis import given
from hypothesis import strategies as st

from posttrain.errors import UserError
from posttrain.policies.gguf.container import read_container
from tests.policies.gguf.gguf_files import small_folder, write_gguf

HEAD = b"GGUF" + struct.pack("<I", 3)


def written(tensors: int, values: int, body: bytes = b"") -> bytes:
    return HEAD + struct.pack("<QQ", tensors, values) + body


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def row(name: str, sizes: tuple[int, ...], kind: int = 0, start: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, start)


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    folder = tmp_path_factory.mktemp("example")
    return write_gguf(folder / "m.gguf", small_folder(folder / "model"), Kind.Q4_1)


def test_metadata_and_tensors_are_those_of_the_library(example):
    ours, library = read_container(example), gguf.GGUFReader(example)
    own = {name: field.contents() for name, field in library.fields.items() if not name.startswith("GGUF.")}
    assert dict(ours.metadata) == own
    assert list(ours.entries) == [tensor.name for tensor in library.tensors]
    for tensor in library.tensors:
        expected = gguf.dequantize(tensor.data, tensor.tensor_type)
        assert np.array_equal(ours.tensor(tensor.name).numpy(), expected.astype(np.float32)), tensor.name


HOSTILE = {
    "empty": (b"", "does not begin with GGUF"),
    "another file": (b"PK\x03\x04" + bytes(60), "does not begin with GGUF"),
    "old": (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1, and versions 2 and 3 are read"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "it is big-endian"),
    "values": (written(0, 2**60, bytes(90)), "announces 1,152,921,504,606,846,976 values, and only 90 bytes"),
    "tensors": (written(2**63, 0, bytes(90)), "tensors, and only 90 bytes are left"),
    "long key": (written(0, 1, struct.pack("<Q", 2**62) + bytes(90)), "a text of 4,611,686,018,427,387,904 bytes"),
    "long text": (written(0, 1, text("a") + struct.pack("<IQ", 8, 2**27) + bytes(90)), "bytes of text, and only 90"),
    "list": (written(0, 1, text("a") + struct.pack("<IIQ", 9, 0, 2**61) + bytes(9)), "values in a list, and only 9"),
    "texts": (written(0, 1, text("a") + struct.pack("<IIQ", 9, 8, 2**40) + bytes(9)), "values in a list, and only 9"),
    "lists": (written(0, 1, text("a") + struct.pack("<IIQ", 9, 9, 1) + bytes(9)), "a list of lists"),
    "kind": (written(0, 1, text("a") + struct.pack("<I", 77) + bytes(9)), "77 is not a valid GGUFValueType"),
    "bytes": (written(0, 1, struct.pack("<Q", 2) + b"\xff\xfe" + bytes(9)), "can't decode byte 0xff"),
    "twice": (written(0, 2, 2 * (text("a") + struct.pack("<IB", 0, 1))), "the key 'a' is there twice"),
    "cut": (written(0, 1, text("abc") + struct.pack("<I", 4) + b"\0"), "only 1 bytes are left"),
    "axes": (written(1, 0, row("t", (1,) * 9) + bytes(99)), "'t' has 9 axes; 1 to 4"),
    "huge": (written(1, 0, row("t", (2**32, 2**32, 2**32)) + bytes(99)), "cut short: tensor 't' ends at byte"),
    "none": (written(1, 0, row("t", (0, 4)) + bytes(99)), r"is \[0, 4\] of F32"),
    "blocks": (written(1, 0, row("t", (33, 4), 3) + bytes(999)), r"\[33, 4\] of Q4_1, whose rows are multiples of 32"),
    "type": (written(1, 0, row("t", (32,), 4242) + bytes(99)), "'t' is of type 4242, which cannot be dequantized"),
    "integers": (written(1, 0, row("t", (8,), 26) + bytes(99)), "'t' is of type I32, which cannot be dequantized"),
    "far": (written(1, 0, row("t", (8,), 0, 2**63) + bytes(99)), "cut short: tensor 't' ends at byte"),
    "overlap": (written(2, 0, row("s", (8,)) + row("t", (8,), 0, 16) + bytes(99)), "tensors 's' and 't' overlap"),
    "same": (written(2, 0, row("s", (8,)) + row("s", (8,), 0, 32) + bytes(99)), "tensor 's' is there twice"),
    "alignment": (written(0, 1, text("general.alignment") + struct.pack("<II", 4, 12)), "alignment is 12; it is a"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_refused_before_memory_is_taken(tmp_path, case):
    content, message = HOSTILE[case]
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=message) as refused:
            read_container(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert str(path) in str(refused.value)


@given(st.data())
def test_any_damage_is_refused_or_read(example, tmp_path_factory, data):
    content = bytearray(example.read_bytes())
    header = min(entry.start for entry in read_container(example).entries.values())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, header - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([len(content), data.draw(st.integers(0, len(content)))]))
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(content[:cut])
    try:
        container = read_container(path)
        for name in container.entries:
            container.tensor(name)
    except UserError as error:
        assert str(path) in str(error)


def test_a_file_that_is_cut_in_its_weights_is_refused(example, tmp_path):
    path = tmp_path / "cut.gguf"
    path.write_bytes(example.read_bytes()[:-100])
    with pytest.raises(UserError, match="cut short: tensor"):
        read_container(path)
