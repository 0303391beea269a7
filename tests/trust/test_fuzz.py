"""What is read is refused or works, and is never run. `python -m benchmarks.fuzz` looks much further."""

import json
import os
import pickle
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks import fuzz

pytestmark = pytest.mark.slow  # seconds for many of them

Refused = Callable[..., None]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    fuzz.make_place(tmp_path)
    yield tmp_path
    torch.set_num_threads(threads)


def refused(*arguments: str, saying: str) -> None:
    """Run a command that must end with code 2 and a message that has this."""
    assert fuzz.judge(arguments, [saying]) == ("", True)


@pytest.mark.parametrize(("target", "cases"), [("recipe files", 20), ("overrides", 60), ("data files", 30)])
def test_mutated_files_are_refused_or_work(target: str, cases: int) -> None:
    problems = [fuzz.attempt(target, number, seed=2026) for number in range(cases)]
    assert [problem for problem, _ in problems if problem] == []
    assert 0 < sum(was_refused for _, was_refused in problems) < cases, "some are still valid, some are not"


@pytest.mark.slow
def test_mutated_models_are_refused_or_work() -> None:
    problems = [fuzz.attempt("model folders", number, seed=2026) for number in range(40)]
    assert [problem for problem, _ in problems if problem] == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
CELL = st.one_of(JSON, st.text(max_size=12))
COLUMN = st.sampled_from(
    ["prompt", "question", "answer", "messages", "chosen", "rejected", "id", "score", "solution", "x"]
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(COLUMN, CELL, max_size=4), max_size=4))
def test_rows_of_any_values_are_refused_or_read(rows: list[dict[str, Any]]) -> None:
    from posttrain.components.tasks.files import Files
    from posttrain.errors import UserError

    try:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        Path("any.jsonl").write_text(text)
        tasks = Files(path="any.jsonl").load()
    except UserError as refusal:
        assert "any.jsonl" in str(refusal) or "columns" in str(refusal)
    else:
        assert len(tasks) == len(rows)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=60))
def test_any_text_as_a_recipe_is_refused_with_its_place(text: str) -> None:
    Path("mine.yaml").write_text(text, encoding="utf-8", errors="replace")
    problem, _ = fuzz.judge(["show", "mine.yaml"], ["mine.yaml"])
    assert problem == ""


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(min_size=1, max_size=20), JSON)
def test_any_change_is_refused_or_made(path: str, value: Any) -> None:
    problem, _ = fuzz.judge(["show", "grpo", "--", f"{path}={json.dumps(value)}"])
    assert problem == ""


# Nothing that is read is run


class Bomb:
    """Makes a file when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("executed",)


def run_with(model: str) -> tuple[str, ...]:
    return ("run", *fuzz.SMALL, f"model={model}")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth"])
def test_a_pickle_is_never_loaded(name: str) -> None:
    Path("tiny/model.safetensors").unlink()
    Path("tiny", name).write_bytes(pickle.dumps(Bomb()))
    refused(*run_with("tiny"), saying="a pickle: loading one runs whatever code is in it, so it is refused")


def test_a_pickle_by_another_name_is_no_weight_file() -> None:
    Path("tiny/model.safetensors").write_bytes(pickle.dumps(Bomb()))
    refused(*run_with("tiny"), saying="'tiny/model.safetensors'")
    Path("tiny/model.safetensors").unlink()
    Path("tiny/weights.bin").write_bytes(pickle.dumps(Bomb()))
    index = {"weight_map": {"model.embed_tokens.weight": "weights.bin"}}
    Path("tiny/model.safetensors.index.json").write_text(json.dumps(index))
    refused(*run_with("tiny"), saying="'tiny/weights.bin'")


@pytest.mark.parametrize("kind", ["mine", "llama"])
def test_the_code_of_a_model_folder_is_not_run(kind: str) -> None:
    config = json.loads(Path("tiny/config.json").read_text())
    named = {"AutoConfig": "code.Mine", "AutoModelForCausalLM": "code.Mine"}
    Path("tiny/config.json").write_text(json.dumps(config | {"model_type": kind, "auto_map": named, "qk_norm": False}))
    Path("tiny/code.py").write_text("import os\nos.mkdir('executed')\nclass Mine: pass\n")
    refused(*run_with("tiny"), saying="tiny")


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.mkdir [executed]",
        "base: grpo\nsteps: !!python/object/apply:os.mkdir [executed]",
        "base: grpo\nsteps: !!python/name:os.mkdir",
    ],
)
def test_yaml_makes_no_objects(text: str) -> None:
    Path("mine.yaml").write_text(text)
    refused("show", "mine.yaml", saying="mine.yaml line ")


def test_a_kind_is_a_module_and_no_path() -> None:
    refused("run", "grpo", "tasks.kind=../..", "--dry-run", saying="a kind is a file that ends in .py; got '../..'")
    Path("broken.py").write_text("1 +")
    Path("outer").mkdir()
    Path("outer/inner.py").write_text("class Mine(Exception): ...\nraise RuntimeError('no luck')")
    refused("run", "grpo", "tasks.kind=outer.inner", "--dry-run", saying="no module 'outer.inner' is installed")
    refused("run", "grpo", "tasks.kind=outer/inner.py", "--dry-run", saying="cannot be imported: RuntimeError: no luck")


# Bombs


def header(text: bytes, size: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if size is None else size) + text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 7,
        header(b"", 2**63),
        header(b"{}", 2**64 - 1),
        header(b"{" * 100_000),
        header(b'{"a":' * 20_000 + b"1" + b"}" * 20_000),
        header(b'{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}'),
        header(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4294967296]}}'),
        header(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}') + bytes(4),
        header(b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}') + bytes(4),
    ],
    ids=range(10),
)
def test_headers_that_lie_about_weights(content: bytes) -> None:
    Path("tiny/model.safetensors").write_bytes(content)
    refused(*run_with("tiny"), saying="tiny/model.safetensors")


@pytest.mark.parametrize("key", ["vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size", "head_dim"])
@pytest.mark.parametrize("value", [0, -1, 2**40, 10**400, "4", 1.5, None, True, [2]])
def test_sizes_that_no_model_has(key: str, value: object) -> None:
    config = json.loads(Path("tiny/config.json").read_text())
    Path("tiny/config.json").write_text(json.dumps(config | {key: value}))
    problem, was_refused = fuzz.judge(run_with("tiny"), [key, "config.json"])
    assert problem == ""
    assert was_refused or (key == "head_dim" and value in (None, 0))


@pytest.mark.parametrize("ways", [10, 2])
def test_references_that_multiply_are_refused(ways: int) -> None:
    lines = ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * ways)}]" for i in range(1, 40))]
    Path("mine.yaml").write_text("base: grpo\n" + "\n".join(lines))
    refused("show", "mine.yaml", saying="expands to more than 200,000 values with its references")


def test_values_that_hold_themselves_are_refused() -> None:
    Path("mine.yaml").write_text("base: grpo\nnotes: &a\n  - *a\n")
    refused("show", "mine.yaml", saying="mine.yaml line 2 refers to itself")
    refused("show", "grpo", "objective=&a {kind: *a}", saying="refers to itself")


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{% for a in range(10000000) %}{% endfor %}x", "Range too big"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ cycler.__init__.__globals__.os.mkdir('executed') }}", "unsafe"),
        ("{% for", "broken"),
    ],
)
def test_chat_templates_reach_nothing(template: str, why: str) -> None:
    Path("tiny/chat_template.jinja").write_text(template)
    refused(*run_with("tiny"), "tasks.as_chat=true", saying=why)
