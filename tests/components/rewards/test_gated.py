"""The other reward counts only behind the gates."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from pydantic import TypeAdapter

from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.components.rewards.format import Format
from posttrain.components.rewards.function import Function
from posttrain.components.rewards.gated import Gated
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.repetition import Repetition
from posttrain.components.rewards.routed import Routed
from posttrain.components.rewards.shaped_length import ShapedLength
from posttrain.errors import UserError
from posttrain.types import Group, Score, Segment, Trajectory
from tests.builders import task

REWARDS: TypeAdapter[Reward] = TypeAdapter(Reward)


def group_of(texts: Sequence[str]) -> Group:
    import numpy as np

    return Group(
        trajectories=tuple(
            Trajectory(
                task=task(),
                segments=(Segment(actor="policy", token_ids=np.arange(2), trained=True, text=text),),
                stop_reason="stop",
            )
            for text in texts
        )
    )


def scores(reward: Reward, *texts: str) -> Sequence[Score]:
    return asyncio.run(reward.score(group_of(texts), RewardContext()))


SIGNED = Match(right=1.0, wrong=-1.0, missing=-1.0)


def test_a_right_answer_in_a_wrong_form_is_a_failure() -> None:
    gated = Gated(reward=SIGNED, gate={"form": Format(), "repetition": Repetition(words=2, times=3)}, otherwise=-1.0)
    right, wrong = "<think>2+2=4</think><answer>4</answer>", "<think>2+2=5</think><answer>5</answer>"
    bare, empty = "4", "<think></think><answer>4</answer>"
    loop = "<think>" + "so 2 and 2 and 2 and 2 and 4" + "</think><answer>4</answer>"
    found = scores(gated, right, wrong, bare, empty, loop)
    assert [score.value for score in found] == [1, -1, -1, -1, -1]
    assert [score.status for score in found] == ["ok", "wrong", "wrong", "wrong", "wrong"]
    assert found[0].parts.keys() == {"form", "repetition", "reward"} and found[2].parts.keys() == {"form", "repetition"}
    assert "form: needs <think>" in found[2].explanation and "repetition: repeats 4 times" in found[4].explanation


def test_only_what_passes_is_scored_by_the_other_reward() -> None:
    seen = []

    class Counting(Match):
        async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
            seen.append([t.completion for t in group])
            return await super().score(group, context)

    gated = Gated(reward=Counting(), gate={"form": Format()})
    scores(gated, "4", "<think>so</think><answer>4</answer>")
    scores(gated, "4", "5")
    assert seen == [["<think>so</think><answer>4</answer>"]]


def test_a_gate_that_cannot_score_is_an_error_and_no_failure() -> None:
    class Broken(Format):
        async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
            return [failure("no grader") for _ in group]

    (found,) = scores(Gated(reward=Match(), gate={"form": Broken()}), "4")
    assert found.status == "error" and "gate 'form' failed: no grader" in found.explanation


def test_a_gate_by_its_value() -> None:
    gated = Gated(
        reward=Match(), gate={"length": ShapedLength(correct=Match(), limit=20)}, threshold=0.5, otherwise=-1.0
    )
    assert [score.value for score in scores(gated, "4", "because #### 4", "5")] == [1.0, -1.0, -1.0]
    assert [score.value for score in scores(replace(gated, threshold=0.2), "4", "because #### 4", "5")] == [
        1.0,
        1.0,
        -1.0,
    ]


def test_a_gate_that_does_not_apply_is_left_out() -> None:
    class Elsewhere(Format):
        async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
            return [replace(failure("not for this row"), applies=False) for _ in group]

    for threshold in (None, 0.5):
        gated = Gated(reward=Match(), gate={"form": Elsewhere()}, threshold=threshold)
        assert [score.status for score in scores(gated, "4", "5")] == ["ok", "wrong"]


def test_it_has_what_its_parts_need() -> None:
    gated = Gated(reward=Match(), gate={"form": Format()})
    assert gated.needs_answer and not gated.roles and not gated.runs
    with pytest.raises(ValueError, match="at least 1 item"):
        Gated(reward=Function(path="mine.py:score"), gate={})


def test_one_gate_needs_no_name() -> None:
    gated = REWARDS.validate_python({"kind": "gated", "gate": "format", "reward": "match", "otherwise": -1})
    assert gated == Gated(reward=Match(), gate={"gate": Format()}, otherwise=-1.0)
    assert [score.value for score in scores(gated, "<think>so</think><answer>4</answer>", "4")] == [1.0, -1.0]


def test_a_gate_is_not_named_as_the_other_reward() -> None:
    """Their states and parts would be one."""
    with pytest.raises(ValueError, match="a gate cannot be named 'reward'"):
        Gated(reward=Match(), gate={"reward": Format()})


@pytest.mark.parametrize(("old", "new"), [("of", "reward"), ("gates", "gate"), ("failed", "otherwise")])
def test_old_fields_are_refused_with_the_new_ones(old: str, new: str) -> None:
    with pytest.raises(ValueError, match=f"Gated.{old} was renamed: write {new}"):
        REWARDS.validate_python({"kind": "gated", "gate": "format", "reward": "match", old: "match"})


def test_tasks_are_checked_by_the_other_reward_and_by_the_gates() -> None:
    for gated in (
        Gated(reward=Routed(parts={"x": Match()}), gate={"form": Format()}),
        Gated(reward=Match(), gate={"kind_of_row": Routed(parts={"x": Match()})}),
    ):
        with pytest.raises(UserError, match="has no part for it"):
            gated.check([task()])
