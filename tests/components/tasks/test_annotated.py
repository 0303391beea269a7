"""Annotators of any pairs."""

import json
from pathlib import Path

import pytest

from posttrain.components.annotators.missing import Missing
from posttrain.components.annotators.noise import Noise
from posttrain.components.annotators.own_style import OwnStyle
from posttrain.components.annotators.reversal import Reversal
from posttrain.components.annotators.taste import Taste
from posttrain.components.tasks.annotated import AnnotatedPairs
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.files import Files
from posttrain.errors import UserError

ROW = {
    "prompt": "p",
    "chosen": "good",
    "rejected": "bad",
    "strength": 2.0,
    "aspects": {"polite": [0, 3], "other": [1, None]},
    "writer_chosen": "x",
    "writer_rejected": "own",
    "user": "kim",
}


def tasks(folder: Path, **changed: object) -> Files:
    """A file with one pair."""
    (folder / "pairs.jsonl").write_text(json.dumps({**ROW, **changed}) + "\n")
    return Files(path=str(folder / "pairs.jsonl"))


def test_each_annotator_states_the_pair_again(tmp_path: Path) -> None:
    annotators = (Noise(spread=0.0), Reversal(), Taste(weights={"polite": 1.0}), OwnStyle(bonus=3.0))
    (task,) = AnnotatedPairs(tasks=tasks(tmp_path), annotators=annotators).load()
    assert [(p.annotator, p.chosen, p.strength) for p in task.preferences] == [
        ("noise", "good", 2.0),
        ("reversal", "bad", 2.0),
        ("taste", "bad", 1.0),
        ("own_style", "bad", 1.0),
    ]
    assert {p.user for p in task.preferences} == {"kim"}
    assert task.preferences[0].aspects == {"polite": (0, 3), "other": (1, None)}
    assert task.preferences[1].aspects == {"polite": (3, 0), "other": (None, 1)}
    assert [p.fields["gold_gap"] for p in task.preferences] == [2.0, -2.0, -2.0, -2.0]


def test_a_pair_without_a_strength_has_that_of_the_settings(tmp_path: Path) -> None:
    source = tasks(tmp_path, strength=None)
    (task,) = AnnotatedPairs(tasks=source, annotators=(Noise(spread=0.0),), strength=0.5).load()
    assert task.preferences[0].strength == 0.5
    found = AnnotatedPairs(tasks=source, annotators=(Missing(rate=0.5),) * 40).load()[0].preferences
    assert 8 < len(found) < 32


def test_tasks_without_pairs_are_refused() -> None:
    with pytest.raises(UserError, match=r"none of the tasks has a preference.*columns named chosen and rejected"):
        AnnotatedPairs(tasks=Arithmetic(size=3), annotators=(Noise(spread=0.0),)).load()
