"""The kind `files`: reading, keys, chats, errors. What columns mean is tested in test_layout.py."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posttrain.components.tasks.files import Files
from posttrain.datasets import sources
from posttrain.errors import UserError
from posttrain.types import Task
from tests.components.tasks.written import delimited, jsonl, load, load_one, parquet

ROWS = [
    {"prompt": "What is 2 + 2?", "answer": "4", "level": "easy"},
    {"prompt": 'She said "naïve, or\nnot?"', "answer": "日本", "level": "hard, very"},
]


def error(path: Path | str, **changes: Any) -> str:
    with pytest.raises(UserError) as caught:
        Files(path=str(path), **changes).load()
    return str(caught.value)


# Formats


@pytest.mark.parametrize(
    "name", ["a.jsonl", "a.ndjson", "a.json", "data.json", "lines.json", "a.csv", "a.tsv", "a.parquet"]
)
def test_every_format_gives_the_same_tasks(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    writers: dict[str, Callable[[], object]] = {
        "a.json": lambda: path.write_text(json.dumps(ROWS, indent=2)),
        "data.json": lambda: path.write_text(json.dumps({"version": 1, "data": ROWS})),
        "a.csv": lambda: delimited(path, ROWS),
        "a.tsv": lambda: delimited(path, ROWS, "\t"),
        "a.parquet": lambda: parquet(path, ROWS),
    }
    writers.get(name, lambda: jsonl(path, ROWS))()
    assert list(Files(path=str(path)).load()) == load(tmp_path, *ROWS)


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.tsv"])
def test_byte_order_mark_and_windows_line_ends(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    rows = [{"prompt": "one", "answer": "1"}, {"prompt": "two", "answer": "2"}]
    {".jsonl": jsonl, ".json": lambda p, r: p.write_text(json.dumps(r, indent=1)), ".csv": delimited}.get(
        path.suffix, lambda p, r: delimited(p, r, "\t")
    )(path, rows)
    unix = path.read_bytes().replace(b"\r\n", b"\n")
    path.write_bytes(b"\xef\xbb\xbf" + unix.replace(b"\n", b"\r\n"))
    assert [(t.prompt, t.answer) for t in Files(path=str(path)).load()] == [("one", "1"), ("two", "2")]


def test_parquet_keeps_nested_values_and_makes_odd_ones_plain(tmp_path: Path) -> None:
    import duckdb

    path = tmp_path / "odd[1].parquet"
    with duckdb.connect() as connection:
        connection.execute(
            """COPY (SELECT [{'role': 'user', 'content': 'Hi'}] AS prompt, 1.50::DECIMAL(5, 2) AS answer,
            DATE '2020-02-01' AS day, 'ab'::BLOB AS raw, 'NaN'::DOUBLE AS gone, MAP {'a': 1} AS map,
            'Infinity'::DOUBLE AS far, TIME '10:11:12' AS time, INTERVAL 90 SECOND AS span,
            '00000000-0000-0000-0000-000000000007'::UUID AS uuid) TO '%s' (FORMAT parquet)"""
            % (tmp_path / "plain.parquet")
        )
    (tmp_path / "plain.parquet").rename(path)
    jsonl(tmp_path / "odd1.jsonl", ROWS)  # what the name would mean as a pattern is not read
    [task] = Files(path=str(path)).load()
    assert task.prompt == ({"role": "user", "content": "Hi"},)
    assert task.answer == "1.5"
    assert {k: v for k, v in task.fields.items() if k != "answer"} == {
        "day": "2020-02-01",
        "raw": "YWI=",
        "gone": None,
        "map": {"a": 1},
        "far": "inf",
        "time": "10:11:12",
        "span": 90.0,
        "uuid": "00000000-0000-0000-0000-000000000007",
    }


def test_blank_lines_and_a_missing_last_line_end(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('\n{"prompt": "one"}\n\n  \n{"prompt": "two"}')
    assert [task.prompt for task in Files(path=str(path)).load()] == ["one", "two"]
    path.write_text('{"prompt": "one"}\n{"prompt": 2}')
    assert "a.jsonl line 2" in error(path)


def test_line_separators_of_unicode_do_not_end_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"prompt": "one\u2028two\x85"}, ensure_ascii=False), encoding="utf-8")
    assert [task.prompt for task in Files(path=str(path)).load()] == ["one\u2028two\x85"]


def test_a_cell_may_be_long(tmp_path: Path) -> None:
    path = delimited(tmp_path / "a.csv", [{"prompt": "x" * 200_000}])
    assert len(Files(path=str(path)).load()[0].prompt) == 200_000


def test_limit_takes_the_first_rows_and_reads_no_further(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "one"}\n{"prompt": "two"}\nnot json\n')
    assert [task.prompt for task in Files(path=str(path), limit=2).load()] == ["one", "two"]
    assert "limit 2" in Files(path=str(path), limit=2).describe()


# Folders and data sets


def test_a_folder_of_files_is_read_in_order_of_names(tmp_path: Path) -> None:
    jsonl(tmp_path / "b.jsonl", [{"prompt": "b"}])
    delimited(tmp_path / "a.csv", [{"prompt": "a"}])
    (tmp_path / "README.md").write_text("not data")
    (tmp_path / "dataset_infos.json").write_text("{}")
    assert [task.prompt for task in Files(path=str(tmp_path)).load()] == ["a", "b"]
    assert [task.prompt for task in Files(path=str(tmp_path), split="b").load()] == ["b"]
    assert "2 files" in Files(path=str(tmp_path)).describe()


@pytest.mark.parametrize(
    "names",
    [
        ("train.jsonl", "test.jsonl", "dev.jsonl"),
        ("train-00000-of-00001.jsonl", "test-00000-of-00001.jsonl", "validation-00000-of-00001.jsonl"),
        ("data/gsm8k_train.jsonl", "data/gsm8k_test.jsonl", "data/gsm8k_val.jsonl"),
        ("train/0.jsonl", "test/0.jsonl", "validation/0.jsonl"),
    ],
)
def test_splits_are_found_in_names_and_never_mixed(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        jsonl(tmp_path / name, [{"prompt": name}])
    assert [t.prompt for t in Files(path=str(tmp_path)).load()] == [names[0]]
    assert "split train (there are: test, train, validation)" in Files(path=str(tmp_path)).describe()
    assert [t.prompt for t in Files(path=str(tmp_path), split="test").load()] == [names[1]]
    assert [t.prompt for t in Files(path=str(tmp_path), split="validation").load()] == [names[2]]
    assert [t.prompt for t in Files(path=str(tmp_path), split="val").load()] == [names[2]]
    assert "has no split 'tests'; did you mean 'test'?" in error(tmp_path, split="tests")


def test_without_train_a_split_must_be_named(tmp_path: Path) -> None:
    jsonl(tmp_path / "test.jsonl", [{"prompt": "t"}])
    assert Files(path=str(tmp_path)).load()[0].prompt == "t"
    jsonl(tmp_path / "valid.jsonl", [{"prompt": "v"}])
    assert "name one of test, validation" in error(tmp_path)


class TestHuggingFace:
    @pytest.fixture(autouse=True)
    def library(self) -> Any:
        return pytest.importorskip("datasets")

    def test_a_saved_data_set(self, tmp_path: Path, library: Any) -> None:
        library.Dataset.from_list(ROWS).save_to_disk(tmp_path / "saved")
        assert list(Files(path=str(tmp_path / "saved")).load()) == load(tmp_path, *ROWS)
        assert "without splits" in error(tmp_path / "saved", split="train")

    def test_saved_splits(self, tmp_path: Path, library: Any) -> None:
        splits = {name: library.Dataset.from_list([{"prompt": name}]) for name in ("test", "train")}
        library.DatasetDict(splits).save_to_disk(tmp_path / "saved")
        for split, expected in ((None, "train"), ("train", "train"), ("test", "test")):
            assert Files(path=str(tmp_path / "saved"), split=split).load()[0].prompt == expected
        assert "has no split 'dev'; known: test, train" in error(tmp_path / "saved", split="dev")

    def test_a_broken_folder(self, tmp_path: Path) -> None:
        (tmp_path / "state.json").write_text("{}")
        assert "could not be loaded" in error(tmp_path)

    def test_a_data_set_of_the_hub(self, library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[Any] = []

        def load_dataset(*arguments: Any) -> Any:
            asked.append(arguments)
            return library.DatasetDict(train=library.Dataset.from_list([{"question": "q", "answer": "w\n#### 1"}]))

        monkeypatch.setattr(library, "load_dataset", load_dataset)
        source = Files(path="openai/gsm8k", subset="main")
        [task] = source.load()
        assert asked == [("openai/gsm8k", "main")]
        assert (task.prompt, task.answer) == ("q", "w\n#### 1")
        assert "openai/gsm8k (data set, split train)" in source.describe()

    def test_whatever_goes_wrong_there_is_one_message(self, library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        def load_dataset(*_: Any) -> Any:
            raise ConnectionError("no network")

        monkeypatch.setattr(library, "load_dataset", load_dataset)
        message = error("openai/gsm8k")
        assert "'openai/gsm8k' could not be loaded: no network" in message and "no file or folder" in message

    def test_rows_say_where_they_are(self, tmp_path: Path, library: Any) -> None:
        library.Dataset.from_list([{"prompt": "a"}, {"prompt": ""}]).save_to_disk(tmp_path / "saved")
        assert "saved row 2: 'prompt' is empty" in error(tmp_path / "saved")


def test_a_missing_library_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "pip install 'posttrain[datasets]'" in error("owner/name")
    (tmp_path / "dataset_dict.json").write_text("{}")
    assert "pip install 'posttrain[datasets]'" in error(tmp_path)


# Keys


def test_own_keys(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "id": 7}, {"prompt": "p", "id": "x"}]
    assert [task.key for task in load(tmp_path, *rows)] == ["7", "x"]
    named = [{"prompt": "p", "Task_ID": "b", "id": 1}, {"prompt": "q", "Task_ID": "a", "id": 1}]
    assert [task.key for task in load(tmp_path, *named)] == ["b", "a"], "id repeats, so the next column names the rows"


@pytest.mark.parametrize("second", [{"id": 1}, {"id": None}, {}, {"id": [2]}, {"id": ""}, {"id": 2.5}, {"id": True}])
def test_a_column_that_does_not_name_every_row_is_no_key(tmp_path: Path, second: dict[str, Any]) -> None:
    first, other = load(tmp_path, {"prompt": "p", "answer": "1", "id": 1}, {"prompt": "q", "answer": "1", **second})
    alone = load_one(tmp_path, {"prompt": "p", "answer": "1"})
    assert first.key == alone.key != other.key


def test_content_keys_do_not_depend_on_order_other_columns_or_chat(tmp_path: Path) -> None:
    rows = [{"question": f"q{n}", "answer": n, "note": n} for n in range(5)]
    keys = {task.prompt: task.key for task in load(tmp_path, *rows)}
    bare = [{"answer": str(n), "question": f"q{n}"} for n in reversed(range(5))]
    assert {task.prompt: task.key for task in load(tmp_path, *bare)} == keys
    chats = load(tmp_path, *rows, as_chat=True, system="Be brief.")
    assert [task.key for task in chats] == list(keys.values())


def test_a_key_that_was_asked_for_must_name_every_row(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "name": "a"}, {"prompt": "q", "name": "b"}]
    assert [task.key for task in load(tmp_path, *rows, columns={"key": "name"})] == ["a", "b"]
    jsonl(tmp_path / "twice.jsonl", [*rows, {"prompt": "r", "name": "b"}])
    assert "twice.jsonl line 2: columns.key names 'name'" in error(tmp_path / "twice.jsonl", columns={"key": "name"})


# Chats


def test_as_chat(tmp_path: Path) -> None:
    user = {"role": "user", "content": "Hi"}
    assert load_one(tmp_path, {"prompt": "Hi"}).prompt == "Hi"
    assert load_one(tmp_path, {"prompt": "Hi"}, as_chat=True).prompt == (user,)
    opening = {"role": "system", "content": "S"}
    assert load_one(tmp_path, {"prompt": "Hi"}, as_chat=True, system="S").prompt == (opening, user)
    assert load_one(tmp_path, {"prompt": [user]}, as_chat=True).prompt == (user,)


def test_chat_settings_that_would_do_nothing(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [{"prompt": "Hi"}])
    assert "as_chat is not set" in error(path, system="S")
    jsonl(path, [{"prompt": [{"role": "user", "content": "Hi"}]}])
    assert "a.jsonl line 1: the prompt is a chat already" in error(path, as_chat=True, system="S")
    jsonl(path, [{"text": "Once upon a time"}])
    assert "plain text without a prompt" in error(path, as_chat=True)


# Errors


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    jsonl(tmp_path / "train.jsonl", ROWS)
    jsonl(tmp_path / "unlike.jsonl", ROWS)
    message = error(tmp_path / "trian.jsonl")
    assert "trian.jsonl" in message and "did you mean train.jsonl?" in message and str(tmp_path) in message
    assert "there is no folder" in error(tmp_path / "nowhere" / "train.jsonl")


def test_a_misspelt_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    message = error("arithmatic")
    assert "did you mean arithmetic?" in message and "owner/name" in message


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"Hi", "a.txt ends in '.txt', which is not read; allowed: .jsonl"),
        ("a", b"Hi", "ends in '', which is not read"),
        ("a.jsonl", b"", "a.jsonl is empty: it holds no rows"),
        ("a.jsonl", b"\n\n", "it holds no rows"),
        ("a.json", b" ", "it holds no rows"),
        ("a.json", b"[]", "it holds no rows"),
        ("a.csv", b"", "it holds no rows"),
        ("a.csv", b"prompt,answer\n", "it holds no rows"),
        ("a.jsonl", b'{"prompt": "a"}\n{"prompt": }\n', "a.jsonl line 2, column 12: not JSON"),
        ("a.jsonl", b'{"prompt": "a"}\n{"prompt": "b"} x\n', "a.jsonl line 2, column 17: not JSON: Extra data"),
        ("a.jsonl", b'[\n{"prompt": "a"}\n]', "a.jsonl line 1, column 2: not JSON"),
        ("a.json", b'[\n{"prompt": "a"},\n{"prompt" "b"}]', "a.json line 3, column 11: not JSON"),
        ("a.json", b'{"prompt": "a"}\n{"prompt": 1}', "a.json line 2: 'prompt' is '1', which is neither text nor"),
        (
            "a.jsonl",
            b'{"prompt": "a"}\n["b"]\n',
            "a.jsonl line 2: a row is an object with named values, but this is a list",
        ),
        ("a.jsonl", b"3\n", "line 1: a row is an object with named values, but this is a number"),
        ("a.json", b"[null]", "row 1: a row is an object with named values, but this is null"),
        ("a.json", b'{"rows": []}', "an object with 'rows'"),
        ("a.json", b'"text"', "this file holds text"),
        ("a.jsonl", b'{"prompt": "a", "x": NaN}', "line 1: cannot be read as JSON: NaN is not a JSON value"),
        ("a.jsonl", b'{"prompt": ' + b"[" * 100_000, "line 1"),
        ("a.jsonl", b'{"prompt": "a", "x": ' + b"9" * 5000 + b"}", "line 1: cannot be read as JSON"),
        ("a.jsonl", b'{"prompt": "a"}\n{"prompt": "\xff"}', "a.jsonl line 2: byte 0xff at column 13 is not UTF-8"),
        ("a.csv", b"prompt\na\n\xe9t\xe9\n", "a.csv line 3: byte 0xe9 at column 1 is not UTF-8"),
        ("a.json", b'{"data":\n["\xff"]}', "a.json line 2: byte 0xff"),
        ("a.jsonl", rb'{"prompt": "a\ud800"}', r"line 1: \ud800 is half of a character"),
        ("a.csv", b"prompt,prompt\na,b\n", "a.csv line 1: two columns are named 'prompt'"),
        ("a.csv", b"prompt,answer\na,b\nc\n", "a.csv line 3: 1 cells, but the first line names 2 columns"),
        ("a.csv", b'prompt,answer\n"a\nb",1\nc,2,3\n', "a.csv line 4: 3 cells"),
        ("a.csv", b'prompt\n"a\n', "the line cannot be split into cells"),
        ("a.csv", b"prompt,answer\n,3\n", "no column is known to hold the prompt"),
        (
            "a.csv",
            b"prompt,answer\na,3\n,4\n",
            "a.csv line 3: no 'prompt', which other rows have; this row has 'answer'",
        ),
        ("a.parquet", b"not parquet at all", "cannot be read as Parquet"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert message in error(tmp_path / name)


def test_settings_that_do_not_apply(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", ROWS)
    assert "is one file, which has no splits" in error(path, split="train")
    assert "only data sets of the Hugging Face hub have subsets" in error(path, subset="main")
    (tmp_path / "void").mkdir()
    assert "holds no file that can be read" in error(tmp_path / "void")
    assert "cannot be opened" in error("x" * 5000 + ".jsonl")


def test_a_value_that_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sources.Source(
        name="n", form="f", rows=(sources.as_row({"prompt": "a", "x": object()}, "n", "row", 1) for _ in "1")
    )
    monkeypatch.setattr("posttrain.components.tasks.files.open_source", lambda *_: rows)
    assert "n row 1: column 'x' holds a value of type object, which cannot be read" in error("n")


# Any input


NAMES = [
    "prompt",
    "messages",
    "role",
    "content",
    "text",
    "answer",
    "chosen",
    "rejected",
    "completion",
    "label",
    "id",
    "x",
]
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.just('[{"role":"user","content":""}]'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=10,
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system"]), "content": st.text(max_size=4) | values}
    ),
    max_size=3,
)
rows = st.dictionaries(st.sampled_from(NAMES), st.text(max_size=8) | messages | values, max_size=6)
any_input = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def tasks_or_user_error(path: Path, **changes: Any) -> None:
    source = Files(path=str(path), **changes)
    try:
        tasks = source.load()
    except UserError as error:
        assert path.name in str(error)
        return
    assert tasks and all(isinstance(task, Task) for task in tasks)
    assert len({task.key for task in tasks}) == len(tasks)
    assert source.describe()
    for task in tasks:
        texts = [task.answer or "", task.domain, *task.demonstrations]
        texts += [task.prompt] if isinstance(task.prompt, str) else [m["content"] for m in task.prompt]
        "".join(texts).encode()


@any_input
@given(st.lists(rows, max_size=4), st.booleans())
@pytest.mark.slow
def test_any_rows_give_tasks_or_one_clear_error(
    tmp_path: Path, given_rows: list[dict[str, Any]], as_chat: bool
) -> None:
    tasks_or_user_error(jsonl(tmp_path / "rows.jsonl", given_rows), as_chat=as_chat)
    (tmp_path / "rows.json").write_text(json.dumps(given_rows))
    tasks_or_user_error(tmp_path / "rows.json", as_chat=as_chat)


@pytest.mark.slow
@any_input
@given(st.sampled_from(["jsonl", "json", "csv", "tsv", "parquet"]), st.binary(max_size=80))
def test_any_bytes_give_tasks_or_one_clear_error(tmp_path: Path, ending: str, content: bytes) -> None:
    path = tmp_path / f"bytes.{ending}"
    path.write_bytes(content)
    tasks_or_user_error(path)


@any_input
@given(st.sampled_from(["jsonl", "json", "csv", "tsv"]), st.text('{}[]",:\n\r\t prompt\\ud81\x00\u2028', max_size=60))
def test_any_text_that_looks_like_data_gives_tasks_or_one_clear_error(
    tmp_path: Path, ending: str, content: str
) -> None:
    path = tmp_path / f"text.{ending}"
    header = "prompt,x\n" if ending == "csv" else "prompt\tx\n" if ending == "tsv" else ""
    path.write_bytes((header + content).encode())
    tasks_or_user_error(path)
