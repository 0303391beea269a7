"""Searching from the command line: sample, eval and generate with a tiny value model."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.cli import main
from posttrain.components.tasks.files import Files
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy

TREE = "{kind: tree, iterations: 2, samples: 2, delimiter: 2, sampling: {max_tokens: 6}}"
SMALL = ("tasks.size=12", "tasks.terms=[2, 2]", "evaluation.holdout=4", "evaluation.sampling.max_tokens=4", "threads=1")


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    folder = new_folder(tmp_path / "tiny", layers=1, width=32, heads=2, kv_heads=1, context=64)
    value = load_policy("value", Model(source=str(folder), head="reward"), {}, torch.device("cpu"))
    Path("value").mkdir()
    value.save(Path("value"))
    return str(folder)


def answer(capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert main([*arguments, "--json"]) == code
    return json.loads(capfd.readouterr().out)


def test_eval_answers_by_search_too(capfd: pytest.CaptureFixture[str], tiny: str) -> None:
    found = answer(capfd, "eval", tiny, *SMALL, "--search", TREE, "--value", "value", "--save", "answers.parquet")
    assert found["searched"]["tasks"] == 4 and 2 <= found["searched"]["rollouts"] <= 4
    assert "accuracy" in found and Path("answers.parquet").is_file()
    assert "searched" not in answer(capfd, "eval", tiny, *SMALL)


def test_sample_prints_the_best(capfd: pytest.CaptureFixture[str], tiny: str) -> None:
    found = answer(capfd, "sample", tiny, "Q:", "--search", TREE, "--value", "value", "-n", "2", "--max-tokens", "5")
    assert 1 <= len(found["completions"]) <= 2
    assert all(0.0 <= c["value"] <= 1.0 and len(c["token_ids"]) <= 5 for c in found["completions"])


def test_generate_writes_what_tasks_read(capfd: pytest.CaptureFixture[str], tiny: str) -> None:
    search = TREE.replace("samples", "value_role: null, samples")
    found = answer(capfd, "generate", tiny, *SMALL, "--out", "a.jsonl", "--search", search)
    assert found["tasks"] == 8 and found["rows"] == len(Files(path="a.jsonl").load())
    again = answer(capfd, "generate", tiny, *SMALL, "--search", search)
    assert Path("a.jsonl").read_bytes() == Path(again["out"]).read_bytes() and again["rows"] == found["rows"]
    assert again["out"] == "rated.jsonl"
    assert "exists already" in answer(capfd, "generate", tiny, *SMALL, "--out", "a.jsonl", code=2)["error"]


def test_generate_counts_tasks_without_a_row(capfd: pytest.CaptureFixture[str], tiny: str) -> None:
    """A new model never thinks, so that no mode is better."""
    search = "{kind: best_of, n: 2, value_role: null, sampling: {max_tokens: 4}}"
    found = answer(capfd, "generate", tiny, *SMALL, "--as", "modes", "--search", search)
    assert found["out"] == "modes.jsonl" and found["rows"] == 0
    assert found.get("no rollout thinks", 0) + found.get("no rollout ended and could be scored", 0) == found["tasks"]


def test_generate_makes_pairs_by_a_rule_and_counts_who_has_none(capfd: pytest.CaptureFixture[str], tiny: str) -> None:
    search = "{kind: best_of, n: 3, value_role: null, sampling: {max_tokens: 6}}"
    rule = ("--rows", "pairs", "--pairing", "{kind: fields_differ, fields: [answer]}")
    found = answer(
        capfd, "generate", tiny, *SMALL, "tasks.demonstrate=false", "--out", "p.jsonl", "--search", search, *rule
    )
    assert found["rows"] == 0 and found["the reference lacks a field"] == 8
    rows = [
        {"prompt": f"{i}+1=", "answer": str(i), "demonstration": f"answer: {i + 1}", "margin": 3} for i in range(12)
    ]
    Path("mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = ("tasks=mine.jsonl", "evaluation.verifier=match", *SMALL[2:])
    found = answer(capfd, "generate", tiny, *own, "--out", "q.jsonl", "--search", search, *rule)
    made = [json.loads(line) for line in Path("q.jsonl").read_text().splitlines()]
    assert found["rows"] == len(made) == 8 and found["rollouts"] == 24
    assert all(row["rule"] == "fields_differ" and row["chosen"].startswith("answer: ") for row in made)
    assert all("margin" not in row for row in made)
    assert len(Files(path="q.jsonl").load()[0].preferences) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("eval", *SMALL, "--search", "tree"), "and there is none; name one with --value FOLDER"),
        (("eval", *SMALL, "--value", "value"), "but there is no search; add --search tree"),
        (("eval", *SMALL, "--search", "{kind: tree, value_role: null}"), "cannot answer held-out tasks"),
        (("sample", "Q:", "--search", "best_of"), "and there is none"),
        (("sample", "Q:", "--search", "{kind: tree, value_role: null}"), "cannot answer a prompt"),
        (("sample", "Q:", "--value", "value"), "but there is no search"),
        (("sample", "Q:", "--search", "tre"), "no search named 'tre'; did you mean 'tree'?"),
        (("generate", *SMALL, "--out", "a.csv"), "name a file that ends with .jsonl"),
        (("generate", *SMALL, "--out", "no/a.jsonl"), "no folder no to write a.jsonl into"),
        (("generate", *SMALL, "--out", "a.jsonl", "--pairing", "ranks"), "write --rows pairs"),
        (("generate", *SMALL, "--out", "a.jsonl", "--rows", "pairs", "--pairing", "rank"), "did you mean 'ranks'?"),
    ],
)
def test_mistakes(capfd: pytest.CaptureFixture[str], tiny: str, arguments: tuple[str, ...], said: str) -> None:
    verb, *rest = arguments
    assert said in answer(capfd, verb, tiny, *rest, code=2)["error"]
