"""What rows state about a pair besides its completions."""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from posttrain.components.tasks.files import Files
from posttrain.errors import UserError
from posttrain.grading.isolated import pack_trajectory, unpack_trajectory
from posttrain.stages.pairs import number_of
from posttrain.types import Preference, Task
from tests.builders import trajectory


def loaded(tmp_path: Path, **columns: Any) -> Task:
    (tmp_path / "pairs.jsonl").write_text(json.dumps({"prompt": "q", "chosen": "a", "rejected": "b", **columns}) + "\n")
    (task,) = Files(path=str(tmp_path / "pairs.jsonl")).load()
    return task


def test_columns_become_typed_fields(tmp_path: Path) -> None:
    about = {"strength": 2, "annotator": 7, "user": "kim", "principle": "short", "reference": 5}
    (pair,) = loaded(tmp_path, **about, aspects={"style": [4, None], "facts": [1.5, 3]}).preferences
    assert (pair.strength, pair.annotator, pair.user, pair.principle, pair.reference) == (2, "7", "kim", "short", "5")
    assert pair.aspects == {"style": (4, None), "facts": (1.5, 3)} and pair.fields == {}


def test_without_columns_nothing_is_stated(tmp_path: Path) -> None:
    (pair,) = loaded(tmp_path, annotator=None, principle="").preferences
    assert pair == Preference(chosen="a", rejected="b") and pair.about() == {}


def test_conversations_have_them_too(tmp_path: Path) -> None:
    turns = {s: [{"role": "user", "content": "q"}, {"role": "assistant", "content": s}] for s in ("chosen", "rejected")}
    (tmp_path / "pairs.jsonl").write_text(json.dumps({**turns, "strength": "1.5"}) + "\n")
    (task,) = Files(path=str(tmp_path / "pairs.jsonl")).load()
    assert task.preferences[0].strength == 1.5


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"strength": 0}, "strength is 0; it is how clear .* leave ties out"),
        ({"strength": -1}, "exchange chosen and rejected"),
        ({"strength": "much"}, "strength is 'much'"),
        ({"strength": True}, "strength is True"),
        ({"annotator": ["ann"]}, "annotator is .*, which is not text"),
        ({"user": 1.5}, "user is 1.5, which is not text"),
        ({"principle": {"a": 1}}, "principle is .*, which is not text"),
        ({"aspects": ["style"]}, "'aspects' is .*, which has no names"),
        ({"aspects": {"style": [4]}}, "the aspect 'style' is .*4.*; an aspect has the scores of the chosen"),
        ({"aspects": {"style": [4, "2"]}}, "the aspect 'style'"),
        ({"aspects": {"style": 4}}, "the aspect 'style'"),
    ],
)
def test_other_types_are_refused_with_their_place(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=r"pairs\.jsonl.*" + message):
        loaded(tmp_path, **columns)


@pytest.mark.parametrize("strength", [math.nan, math.inf, 0.0])
def test_code_cannot_state_an_unusable_strength(strength: float) -> None:
    with pytest.raises(UserError, match="how clear the preference is"):
        Preference(chosen="a", rejected="b", strength=strength)


def test_it_survives_json_and_another_process() -> None:
    pair = Preference(
        chosen="a", rejected="b", strength=2.0, annotator="ann", aspects={"style": (4, None)}, fields={"margin": 1.0}
    )
    assert Preference(**json.loads(json.dumps(asdict(pair)))) == pair
    one = replace(trajectory(), task=Task(key="k", prompt="q", preferences=(pair,)))
    packed = pack_trajectory(one, ids=False)
    assert unpack_trajectory(packed).task.preferences == (pair,)


def test_losses_read_the_pair_before_the_row() -> None:
    pair = Preference(chosen="a", rejected="b", strength=2.0, fields={"margin": 0.5})
    task = Task(key="k", prompt="q", preferences=(pair,), fields={"strength": 1.0, "margin": 9.0})
    assert number_of(task, pair, "strength") == 2.0 and number_of(task, pair, "margin") == 0.5
