"""Files and texts that others made are read within bounds, and what is wrong is a sentence."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from posttrain.errors import RunFailed, UserError
from posttrain.errors.foreign import (
    check_file,
    file_in,
    guard,
    nesting,
    parse_json,
    printable,
    read_bytes,
    read_json,
    read_text,
    shown,
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain é 漢", "plain é 漢"),
        ("a\nb", "a b"),
        ("\x1b]0;x\x07", r"\x1b]0;x\x07"),
        ("\x9b31m\x7f", r"\x9b31m\x7f"),
        ("\u202eabc\u2066", r"\u202eabc\u2066"),
        ("\ud800", r"\ud800"),
        ("a" * 1000, "a" * 297 + "..."),
    ],
)
def test_a_foreign_text_is_shown_in_a_line(text: str, line: str) -> None:
    assert shown(text) == line


@given(st.text(alphabet=st.characters(exclude_categories=[]), max_size=400))
def test_what_is_shown_can_be_printed(text: str) -> None:
    line = shown(text)
    assert not any(
        ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or "\ud800" <= c <= "\udfff"
        for c in line + printable(text).replace("\n", "").replace("\t", "")
    )
    assert len(line.encode()) > 0 or not text


def test_whatever_a_parser_raises_is_a_sentence() -> None:
    class Panic(BaseException):
        pass

    for error in (ValueError("a\x1bb"), Panic("p"), RecursionError(), MemoryError(), KeyError("k"), OSError(2, "no")):
        with pytest.raises(UserError, match=r"^'mine' is broken: ") as refusal, guard("'mine' is broken"):
            raise error
        assert str(refusal.value).isprintable()
    with pytest.raises(RunFailed), guard("x"):
        raise RunFailed("as it is")
    with pytest.raises(KeyboardInterrupt), guard("x"):
        raise KeyboardInterrupt


def test_what_pydantic_finds_is_a_sentence() -> None:
    with pytest.raises(UserError, match=r"^state\.json: step: Input should be a valid integer$"), guard("state.json"):
        TypeAdapter(dict[str, int]).validate_python({"step": "x"}, strict=True)
    with pytest.raises(UserError, match=r"^state\.json: Input should be a valid dictionary$"), guard("state.json"):
        TypeAdapter(dict[str, int]).validate_python([], strict=True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)


def depth_of(value: object) -> int:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if items is None else 1 + max(map(depth_of, items), default=0)


@given(JSON, st.sampled_from([None, 2]), st.booleans())
def test_the_depth_of_json_is_counted(value: object, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert nesting(text, -1) == depth_of(value)
    for enough in range(4):
        assert (nesting(text, enough) > enough) == (depth_of(value) > enough)
    assert parse_json(text) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1, "a": 2}', "the key 'a' is there twice"),
        ('{"b": [{"a": 1, "c": 2, "a": 1}]}', "the key 'a' is there twice"),
        ("[" * 101 + "]" * 101, "more than 100 levels"),
        ("[" * 1_000_000, "more than 100 levels"),
        ('{"a":' * 900 + "1" + "}" * 900, "more than 100 levels"),
        ("NaN", "NaN is not a JSON value"),
        ("[1e999, " + "9" * 5000 + "]", "4300"),
        ("[", "Expecting value"),
    ],
)
def test_json_that_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_json(text)


def test_json_as_deep_as_may_be_is_read() -> None:
    assert depth_of(parse_json("[" * 100 + '"]]]{"' + "]" * 100)) == 100
    assert parse_json("[NaN, -Infinity]", constants=True)[1] == float("-inf")


def test_a_file_in_a_folder_stays_there(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (tmp_path / "secret").write_text("s")
    (folder / "own").write_text("o")
    (folder / "link").symlink_to("own")
    assert file_in(folder, "own").read_text() == file_in(folder, "link").read_text() == "o"
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "up").symlink_to("../secret")
    (folder / "loop").symlink_to("loop")
    (folder / "device").symlink_to("/dev/zero")
    os.mkfifo(folder / "fifo")
    for name in ("out", "up", "../secret", str(tmp_path / "secret"), "device"):
        with pytest.raises(UserError, match="leads out of its folder"):
            file_in(folder, name)
    for name, why in (("fifo", "a FIFO"), ("inner", "a folder"), ("loop", "cannot be read"), ("a\0b", "null byte"),
                      ("gone", "No such file"), ("a" * 5000, "too long")):  # fmt: skip
        with pytest.raises(UserError, match=why):
            file_in(folder, name)
    (tmp_path / "whole").symlink_to(folder)
    assert file_in(tmp_path / "whole", "own").read_text() == "o", "the folder itself may be a link"


def test_the_links_of_a_cached_repository_work(tmp_path: Path) -> None:
    repository = tmp_path / "models--mine--tiny"
    snapshot = repository / "snapshots" / "4f2a"
    for path in (snapshot, repository / "blobs", tmp_path / "models--yours--private" / "blobs"):
        path.mkdir(parents=True)
    (repository / "blobs" / "abc").write_text("weights")
    (tmp_path / "models--yours--private" / "blobs" / "abc").write_text("secret")
    (snapshot / "config.json").symlink_to("../../blobs/abc")
    assert file_in(snapshot, "config.json").read_text() == "weights"
    (snapshot / "vocab.txt").symlink_to("../../../models--yours--private/blobs/abc")
    (repository / "blobs" / "chained").symlink_to(tmp_path / "models--yours--private" / "blobs" / "abc")
    (snapshot / "merges.txt").symlink_to("../../blobs/chained")
    for name in ("vocab.txt", "merges.txt"):
        with pytest.raises(UserError, match="leads out of its folder"):
            file_in(snapshot, name)


def test_sizes_are_inspected_before_anything_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    path.write_text("{}")
    os.truncate(path, 10**13)
    for read in (read_bytes, read_text, read_json):
        with pytest.raises(UserError, match=r"has 10,000,000,000,000 bytes, and at most 67,108,864 are read"):
            read(path)
    assert check_file(path) == 10**13
    assert read_json(tmp_path / "gone.json") == {}
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(UserError, match=r"is not UTF-8 \(byte 0xff at 7\)"):
        read_json(path)
