"""The search for texts that a reward rewards although they are not correct."""

import json
from pathlib import Path
from random import Random

import pytest
from pydantic import TypeAdapter

from posttrain.audit import Subject
from posttrain.audit.attack import BITS, counts_of, edited, is_reference, pieces, searched
from posttrain.audit.auditing import Finding, Settings, finding_of
from posttrain.cli import main
from posttrain.components.rewards import Reward
from posttrain.types import Task

TASKS = [Task(key=str(n), prompt=f"What is question number {n}?", answer=a) for n, a in ((1, "42"), (2, "7"))]


def finds(tmp_path: Path, body: str, budget: int, oracle: str | None = None) -> list[Finding]:
    (tmp_path / "mine.py").write_text(f"def score(completion, answer):\n    return {body}\n")
    make = TypeAdapter(Reward).validate_python
    reward = make({"kind": "function", "path": f"{tmp_path}/mine.py:score"})
    everything, found = searched(
        reward, TASKS, Settings(cpu_seconds=2.0), budget=budget, seed=0, oracle=make(oracle) if oracle else None
    )
    assert counts_of(everything)["probes"] == budget
    return [finding_of("false positive", item, item.score.explanation) for item in found]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("42", True),
        ("**42**", True),
        ("<answer>42</answer>", True),
        ("41 or 6\n42", True),
        ("the answer is \\boxed{42}", True),
        ("42 or 41", False),
        ("x42", False),
        ("", False),
        ("<answer>42</answer><answer>41</answer>", False),
    ],
)
def test_what_is_the_reference(text: str, right: bool) -> None:
    assert is_reference(text, Subject(task=TASKS[0])) is right


def test_edits_are_functions_of_the_generator_and_pieces_join_to_the_text() -> None:
    text = "So <answer>4 + 2</answer> is \\boxed{6}."
    assert "".join(pieces(text)) == text
    assert [edited(text, BITS, Random(n)) for n in range(50)] == [edited(text, BITS, Random(n)) for n in range(50)]
    assert len({edited(text, BITS, Random(n)) for n in range(50)}) > 40


@pytest.mark.slow
def test_a_reward_for_texts_that_contain_the_answer_is_found(tmp_path: Path) -> None:
    found = finds(tmp_path, "answer in completion", 64)
    assert found and {finding.fault for finding in found} == {"false positive"}
    assert all("42" in f.completion if f.task == "1" else "7" in f.completion for f in found)
    assert not finds(tmp_path, "completion.strip() == answer", 64)


@pytest.mark.slow
def test_the_search_climbs(tmp_path: Path) -> None:
    """A text with five brackets in a row is not among 128 blind edits, but each bracket gives a little more."""
    climbing = "1.0 if ']]]]]' in completion else 0.1 * max(n for n in range(6) if ']' * n in completion)"
    assert finds(tmp_path, climbing, 1200)
    assert not finds(tmp_path, "float(']]]]]' in completion)", 128)


@pytest.mark.slow
def test_another_oracle_decides(tmp_path: Path) -> None:
    """By `match` a text that ends with the answer is correct, so that only the others are finds."""
    found = finds(tmp_path, "answer in completion", 64, oracle="match")
    assert found and not [f for f in found if json.loads(f.completion).strip().endswith("\n42")]


@pytest.mark.slow
def test_the_verb(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def score(completion, answer):\n    return answer in completion\n")
    Path("mine.jsonl").write_text('{"prompt": "What is six times seven?", "answer": "42"}\n')
    verb = ["audit", "./mine.py:score", "tasks=mine.jsonl", "--attack", "40", "--json"]
    assert main(verb) == 1
    first = json.loads(capfd.readouterr().out)
    assert first["kinds"]["attack"]["probes"] == 40 and [f for f in first["findings"] if f["kind"] == "attack"]
    assert main(verb) == 1
    again = json.loads(capfd.readouterr().out)
    assert again["findings"] == first["findings"], "the search is a function of its seed"


@pytest.mark.slow
def test_finds_become_probes_of_later_audits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.jsonl").write_text('{"prompt": "Six by seven?", "answer": "42"}\n')
    weak = ["audit", "regex", "pattern=4", "tasks=mine.jsonl", "--about", "form", "--finds", "finds.jsonl", "--json"]
    assert main([*weak, "--attack", "40"]) == 1
    capfd.readouterr()
    kept = [json.loads(line) for line in Path("finds.jsonl").read_text().splitlines()]
    assert kept and all("4" in one["text"] and one["value"] == 1.0 for one in kept)
    assert main(weak) == 1
    again = json.loads(capfd.readouterr().out)
    assert again["kinds"]["finds"]["probes"] == again["kinds"]["finds"]["rewarded"] == len(kept)
    assert main(["audit", "match", *weak[3:4], *weak[6:]]) == 0, "they are no finds of this reward"
    assert json.loads(capfd.readouterr().out)["kinds"]["finds"]["rewarded"] == 0
    assert main([*weak, "--attack", "40"]) == 1
    assert len(Path("finds.jsonl").read_text().splitlines()) == len(kept), "nothing is there twice"
    Path("finds.jsonl").write_text("{}\n")
    assert main(weak) == 2
    assert "finds.jsonl:1 is no find" in capfd.readouterr().err
