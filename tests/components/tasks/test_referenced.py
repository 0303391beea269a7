"""Pairs after a reference, by hand: the form, what is cut where, and letter policies without labels."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.files import Files
from posttrain.components.tasks.policies import LETTERS, Policies
from posttrain.components.tasks.referenced import Referenced
from posttrain.datasets.references import compared, without_thoughts
from posttrain.errors import UserError


def test_the_form_by_hand() -> None:
    made = compared("Q", "ref", ("good", "bad"), separator="|")
    assert made.before == "Q\nref|Q\n" and made.candidates == ("good", "bad")
    assert compared("Q", "ref", ("x",), line="", separator="|").before == "Qref|Q"


def test_answers_keep_their_start_and_prompts_their_end() -> None:
    """20 characters: 2 + 3 of answers, 2 line ends and a separator leave 12, 6 for each prompt."""
    made = compared("0123456789", "reference", ("ab", "abcdef"), separator="|", longest_answer=3, longest=21)
    assert made.candidates == ("ab", "abc")
    assert made.before == "456789\nref|456789\n"
    assert compared("0123", "r", ("a",), separator="|", longest=4).before == "\nr|\n"


def test_thoughts_are_taken_off() -> None:
    assert without_thoughts("<think>so</think> 42") == "42" and without_thoughts("42 <think>") == "42 <think>"
    assert without_thoughts("<think>so") == "<think>so"


def test_a_task_for_each_pair(tmp_path: Path) -> None:
    row = {"prompt": "Q", "chosen": "b", "rejected": "no", "completion": "r"}
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({**row, "chosen": chosen}) + "\n" for chosen in "ab"))
    found = Referenced(tasks=Files(path=str(path))).load()
    assert len({task.key for task in found}) == 2
    assert found[1].prompt == "Q\nr\n###\nQ\n" and found[1].preferences[0].chosen == "b"
    path.write_text(json.dumps({name: text for name, text in row.items() if name != "completion"}) + "\n")
    with pytest.raises(UserError, match="no reference"):
        Referenced(tasks=Files(path=str(path))).load()
    with pytest.raises(UserError, match="has a preference"):
        Referenced(tasks=Arithmetic(size=3)).load()


def test_reference_and_chosen_are_of_one_policy() -> None:
    tasks = Policies(size=400, length=64).load()
    source = Policies()

    def likelihood(text: str, policy: int) -> float:
        counts = Counter(text)
        return float(sum(counts[x] * np.log(w + 1e-12) for x, w in zip(LETTERS, source.weights(policy), strict=True)))

    for task in tasks[:50]:
        own, [pair] = int(task.domain.split()[1]), task.preferences
        assert all(
            likelihood(text, own) > likelihood(text, task.fields["other"]) for text in (task.answer, pair.chosen)
        )
        assert likelihood(pair.rejected, own) < likelihood(pair.rejected, task.fields["other"])
    owners = Counter(task.domain for task in tasks)
    assert len(owners) == 6 and min(owners.values()) > 40
    assert Policies(first=6, policies=2).weights(0) == Policies(policies=8).weights(6)
