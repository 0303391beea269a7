"""Hostile model folders and data are refused in a sentence, or work. `benchmarks.corpus` tries all of them."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks import _hostile_data, _hostile_models, _hostile_runs, fuzz
from posttrain.components.tasks import files
from posttrain.components.tasks.files import Files
from posttrain.datasets import parquet
from posttrain.datasets import rows as reading
from posttrain.datasets.sources import files_of
from posttrain.datasets.values import memory
from posttrain.errors import UserError, foreign
from posttrain.models import Model
from posttrain.policies.loading import load_policy

MODELS = [
    (group, name)
    for group in ("links out of a model folder", "tokenizers", "configs", "indices and weights", "adapters")
    for name in _hostile_models.CLASSES[group]
]
DATA = [("data: broken", name) for name in _hostile_data.CLASSES["data: broken"]]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    fuzz.make_place(tmp_path)
    yield tmp_path
    torch.set_num_threads(threads)


def load(source: str) -> str:
    """The error about a model: nothing where it works."""
    try:
        load_policy("policy", Model(source=source), {}, torch.device("cpu"))
    except UserError as refusal:
        return str(refusal)
    return ""


@pytest.mark.parametrize(("group", "name"), MODELS)
def test_hostile_model_folders_are_refused_in_a_sentence_or_work(group: str, name: str) -> None:
    extra = _hostile_models.CLASSES[group][name]()
    source = next((part.removeprefix("model=") for part in extra if part.startswith("model=")), "tiny")
    said = load(source)
    assert len(said) < 1000
    if group == "links out of a model folder":
        assert said, "every one of them leads somewhere else"


@pytest.mark.parametrize(("group", "name"), DATA)
def test_hostile_data_is_refused_in_a_sentence_or_works(group: str, name: str) -> None:
    [path] = [part.removeprefix("tasks=") for part in _hostile_data.CLASSES[group][name]()]
    try:
        Files(path=path).load()
    except UserError as refusal:
        assert path in str(refusal)
        assert len(str(refusal)) < 1000


def test_a_row_has_a_limit_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LONGEST_ROW", 1000)
    Path("long.jsonl").write_text('{"question": "' + "a" * 2000 + '"}\n')
    with pytest.raises(UserError, match=r"long.jsonl line 1: the line has more than 1,000 bytes"):
        Files(path="long.jsonl").load()
    monkeypatch.setattr(reading, "LARGEST_JSON", 1000)
    shutil.copy("long.jsonl", "long.json")
    with pytest.raises(UserError, match=r"at most 1,000 are read"):
        Files(path="long.json").load()


@pytest.mark.parametrize(("name", "most"), [("MOST_ROWS", 7), ("MOST_MEMORY", 2000)])
def test_more_rows_than_fit_are_asked_about(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, name, most)
    with pytest.raises(UserError, match=r"rows\.jsonl has more than .* tasks\.limit=N"):
        Files(path="rows.jsonl").load()
    assert len(Files(path="rows.jsonl", limit=8).load()) == 8


def test_what_is_hashed_is_what_is_read() -> None:
    Path("folder").mkdir()
    shutil.copy("rows.jsonl", "folder/rows.jsonl")
    Path("folder/model.bin").write_text("not data")
    assert files_of("folder") == [Path("folder/rows.jsonl")]
    Path("folder/more.jsonl").symlink_to(Path("rows.jsonl").absolute())
    with pytest.raises(UserError, match="leads out of its folder"):
        files_of("folder")


CONFIG_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 300), st.integers(), st.floats(), st.text(max_size=5),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.sampled_from(["rope_type", "factor"]), st.integers(-1, 3)),
)  # fmt: skip
KEYS = st.sampled_from(
    ["hidden_size", "num_hidden_layers", "head_dim", "rope_theta", "rope_scaling", "rms_norm_eps", "eos_token_id",
     "posttrain_vision", "hidden_act", "layer_types", "vocab_size", "tie_word_embeddings"]
)  # fmt: skip


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(KEYS, CONFIG_VALUES, min_size=1, max_size=2))
def test_configs_of_any_values_are_refused_or_work(changes: dict[str, object]) -> None:
    config = json.loads(Path("tiny/config.json").read_text())
    shutil.copytree("tiny", "changed", dirs_exist_ok=True)
    Path("changed/config.json").write_text(json.dumps(config | changes))
    assert len(load("changed")) < 1000


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["tokenizer.json", "tokenizer_config.json", "generation_config.json", "model.safetensors"]),
    st.integers(0, 10**6),
    st.binary(max_size=6),
)
def test_files_of_a_model_with_other_bytes_are_refused_or_work(name: str, place: int, content: bytes) -> None:
    shutil.copytree("tiny", "changed", dirs_exist_ok=True)
    good = Path("tiny", name).read_bytes()
    place %= len(good)
    Path("changed", name).write_bytes(good[:place] + content + good[place + len(content) // 2 :])
    assert len(load("changed")) < 1000


SMALL_TARGETS = ("runs", "adapters", "indices", "chat templates", "images")


@pytest.mark.slow
@pytest.mark.parametrize("target", SMALL_TARGETS)
def test_mutations_of_other_files_are_refused_or_work(target: str) -> None:
    found = [fuzz.attempt(target, number, seed=2026) for number in range(8)]
    assert [problem for problem, _ in found if problem] == []


RUNS = [(group, name) for group in ("recipes", "counts") for name in _hostile_runs.CLASSES[group]]


@pytest.mark.parametrize(("group", "name"), RUNS)
def test_hostile_recipes_and_counts_are_refused_in_a_sentence_or_work(group: str, name: str) -> None:
    extra = list(_hostile_runs.CLASSES[group][name]())
    problem, _ = fuzz.judge(extra[1:] if extra[0] == "!" else ["show", "grpo", *extra])
    assert problem == ""


# Parquet


def write_parquet(query: str) -> None:
    duckdb.sql(f"COPY ({query}) TO 'mine.parquet' (FORMAT parquet, ROW_GROUP_SIZE 2048)")


def test_parquet_is_measured_before_it_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet("SELECT repeat('a', 100000) AS question, '1' AS answer FROM range(5000)")
    assert Path("mine.parquet").stat().st_size < 50_000
    with pytest.raises(UserError, match=r"rows 1 to 2048: they have 204,\d{3},\d{3} bytes when they are unpacked"):
        monkeypatch.setattr(parquet, "LARGEST_VECTOR", 100 << 20)
        Files(path="mine.parquet", limit=1).load()
    write_parquet("SELECT 'a' AS question, [['bb', NULL], ['ccc']] AS x, {'k': 'v'} AS s, map {'m': [1.5]} AS m")
    with pytest.raises(UserError, match=r"row 1: it has (\d+) bytes") as refused:
        list(parquet.read_values(Path("mine.parquet"), 1))
    texts = (1 + 32) + (2 + 32 + 32 + 3 + 32) + (1 + 32) + (1 + 32) + 32
    lists = 64 * (3 + 2 + 1)
    assert f"it has {texts + lists} bytes" in str(refused.value)


def test_every_row_of_a_long_parquet_file_comes_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet("SELECT i::VARCHAR AS question FROM range(20000) t(i)")
    found = [values["question"] for values in parquet.read_values(Path("mine.parquet"), 1000)]
    assert found == [str(i) for i in range(20_000)]
    assert parquet.count_rows(Path("mine.parquet")) == 20_000
    monkeypatch.setattr(files, "MOST_ROWS", 19_999)
    monkeypatch.setattr(reading, "read_values", lambda *_: pytest.fail("rows were read"))
    with pytest.raises(UserError, match=r"more than 19,999 rows"):
        Files(path="mine.parquet").load()


def test_lines_are_counted_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_ROWS", 7)
    monkeypatch.setattr(reading, "parse_json", lambda *_: pytest.fail("a row was read"))
    with pytest.raises(UserError, match=r"rows\.jsonl has more than 7 rows"):
        Files(path="rows.jsonl").load()


def test_blank_lines_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_BLANK", 5)
    for name, start in (("blank.jsonl", ""), ("blank.csv", "question,answer\n")):
        Path(name).write_text(start + "\n" * 6)
        with pytest.raises(UserError, match=f"{name} has more than 5 blank lines"):
            Files(path=name, limit=1).load()


def test_a_document_has_a_limit_of_values() -> None:
    assert foreign.parse_json("[[], []]", most=4) == [[], []]
    with pytest.raises(ValueError, match="more than about 4 values"):
        foreign.parse_json("[[], [], []]", most=4)


def test_what_rows_take_in_memory_is_counted_for_empty_lists_too() -> None:
    assert memory([]) == sys.getsizeof([])
    assert memory({"a": [[], "é"]}) == sum(map(sys.getsizeof, ({"a": 1}, "a", [[], 1], [], "é")))
