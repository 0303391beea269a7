"""Which pairs are easy and which are hard, by a reward that is written out here."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.components.rewards.reward_model import RewardModel
from posttrain.components.selections import Chosen, Selection
from posttrain.components.selections.by_margin import ByMargin
from posttrain.errors import AlarmStop, UserError
from posttrain.types import Group, Preference, Score, Task
from tests.builders import ScriptedSampler


@frozen
class Written(Reward):
    """The number that a completion is; an error where it is none."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Read the numbers."""
        texts = [t.completion for t in group]
        return [failure("no number") if x == "?" else Score(value=float(x), status="ok") for x in texts]


def tasks(*pairs: Sequence[tuple[float | str, float | str]]) -> list[Task]:
    return [
        Task(key=f"t{i}", prompt="p", preferences=tuple(Preference(chosen=str(c), rejected=str(r)) for c, r in own))
        for i, own in enumerate(pairs)
    ]


FOUR = tasks([(1.1, 1.0)], [(0.0, 0.5)], [(3.0, 1.0)], [(-2.0, 1.0)])
"""Margins 0.1, 0.5, 2 and 3; in the second and the last the reward disagrees with the label."""


def split(of: list[Task], **settings: Any) -> Chosen:
    selection = ByMargin(reward=Written(), **settings)
    seen = asyncio.run(selection.measure(of, {"policy": ScriptedSampler("policy")}))
    again = selection.choose(of, json.loads(json.dumps(seen)))
    chosen = selection.choose(of, seen)
    assert again == chosen, "what was seen survives a checkpoint"
    return chosen


def keys(chosen: Chosen) -> list[str]:
    return [task.key for task in chosen.tasks]


def test_two_are_easy_and_two_are_hard() -> None:
    easy = split(FOUR, keep="easy", quantile=None, margin=1.0)
    hard = split(FOUR, keep="hard", quantile=None, margin=1.0)
    assert (keys(easy), keys(hard)) == (["t2", "t3"], ["t0", "t1"])
    assert easy.summary == f"2 of 4 pairs are easy, with a margin above 1 by '{Written().kind}'"
    assert hard.summary == f"2 of 4 pairs are hard, with a margin of at most 1 by '{Written().kind}'"


def test_labels_stay_as_they_are() -> None:
    assert split(FOUR, keep="easy").tasks == FOUR[2:]
    assert split(FOUR, keep="hard").tasks == FOUR[:2]


@pytest.mark.parametrize(
    ("quantile", "easy"), [(0.0, ["t1", "t2", "t3"]), (0.5, ["t2", "t3"]), (0.7, ["t3"]), (1.0, [])]
)
def test_by_a_quantile(quantile: float, easy: list[str]) -> None:
    """Three quarters of the way through 0.1, 0.5, 2, 3 is 2.25; at 0.7 it is 2.1, between the last two."""
    assert keys(split(FOUR, keep="easy", quantile=quantile)) == easy
    assert keys(split(FOUR, keep="hard", quantile=quantile)) == [k for k in ("t0", "t1", "t2", "t3") if k not in easy]


def test_a_margin_of_gamma_is_hard_and_so_are_all_equal_ones() -> None:
    same = tasks([(1, 0)], [(0, 1)], [(5, 4)])
    assert keys(split(same, keep="easy")) == []
    assert keys(split(same, keep="hard")) == ["t0", "t1", "t2"]
    assert keys(split(tasks([(1, 1)], [(2, 0)]), keep="hard", quantile=None, margin=0.0)) == ["t0"]


def test_a_task_of_several_pairs_keeps_those_that_belong() -> None:
    """Margins 4 and 1, then 2, then none; the median is 2."""
    several = tasks([(4, 0), (1, 0)], [(2, 0)], [])
    easy, hard = split(several, keep="easy"), split(several, keep="hard")
    assert [(t.key, [p.chosen for p in t.preferences]) for t in easy.tasks] == [("t0", ["4"])]
    assert [(t.key, [p.chosen for p in t.preferences]) for t in hard.tasks] == [("t0", ["1"]), ("t1", ["2"])]


def test_what_could_not_be_scored_is_neither() -> None:
    some = tasks([(1, "?")], [(3, 0)], [(1, 0)], [("?", "?")])
    easy, hard = split(some, keep="easy"), split(some, keep="hard")
    assert (keys(easy), keys(hard)) == (["t1"], ["t2"])
    assert easy.summary.endswith("; 2 could not be scored and are left out")
    with pytest.raises(AlarmStop, match="no pair of the 1 tasks could be scored"):
        split(tasks([("?", 1)]))


def test_tasks_without_pairs_are_refused() -> None:
    with pytest.raises(UserError, match="none of the 2 tasks has a pair to take the margin of"):
        split(tasks([], []))


@pytest.mark.parametrize("wrong", [{"margin": 1.0}, {"quantile": None}])
def test_one_bound_is_needed(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="give one, and null for the other"):
        ByMargin(reward=Written(), **wrong)


def test_its_roles_are_those_of_its_reward() -> None:
    text = {"kind": "by_margin", "reward": {"kind": "reward_model", "role": "judge"}, "keep": "hard"}
    selection = TypeAdapter(Selection).validate_python(text)
    assert selection == ByMargin(reward=RewardModel(role="judge"), keep="hard")
    assert selection.roles == {"judge"}
