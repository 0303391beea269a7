"""The reward of a conversation."""

import asyncio
import math
from dataclasses import replace

import numpy as np

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.conversation import Conversation
from posttrain.components.rollouts import Exchange
from posttrain.types import Group, Score, Trajectory
from tests.builders import ScriptedSampler, task, trajectory

SILENT = Conversation(language=0.0, mute=4)


class Base(ScriptedSampler):
    """Every token has the same log-probability, and those of a text with an x a smaller one."""

    async def logp(self, token_ids: np.ndarray, **more: object) -> np.ndarray:  # type: ignore[override]
        nats = 2.0 if ord("x") in token_ids.tolist() else 0.5
        return np.full(len(token_ids) - 1, -nats, np.float32)


def talk(turns: tuple[str, ...], tokens: int, agreed: str = "4", **more: float) -> Trajectory:
    fact = Exchange(exchange=0, turns=turns, tokens=tokens, agreed=agreed, **more)
    return replace(trajectory(2, of=task()), facts=(fact,), score=None)


def scores(reward: Conversation, *talks: Trajectory) -> list[Score]:
    context = RewardContext(samplers={"base": Base("k")})
    return list(asyncio.run(reward.score(Group(key="t", trajectories=talks), context)))


def values(reward: Conversation, *talks: Trajectory) -> list[float]:
    return [round(s.value, 6) for s in scores(reward, *talks)]


def test_the_length_is_a_share_of_the_longest_of_the_task() -> None:
    pair = talk(("a", "b"), 50), talk(("a", "c"), 100, agreed="5")
    assert values(SILENT, *pair) == [0.7, -0.6]
    assert [s.status for s in scores(SILENT, *pair)] == ["ok", "wrong"]
    assert values(replace(SILENT, tokens=0.0), *pair) == [1.0, 0.0], "lambda 0 is the result alone"


def test_a_search_gives_the_length_to_compare_with_which_may_be_passed() -> None:
    assert values(SILENT, talk(("a",), 100, longest=50.0)) == [-0.2]


def test_mute_conversations_lose_one() -> None:
    assert values(SILENT, talk(("a",), 4), talk(("b",), 5)) == [0.0, 0.4]


def test_the_worst_turn_decides_how_natural_it_is() -> None:
    own = replace(SILENT, language=1.0, tokens=0.0)
    assert values(own, talk(("a", "b"), 9), talk(("a", "x"), 9)) == [1.0 + 1 / 0.5, 1.0 + 1 / 2.0]
    assert own.roles == {"base"} and SILENT.roles == frozenset()


def test_gates_of_the_language() -> None:
    own = replace(SILENT, language=1.0, tokens=0.0, endless=20)
    assert values(own, talk(("a", "a"), 9), talk(("a", "b"), 21), talk((), 0)) == [1.0, 0.0, 0.0]


def test_turns_with_several_names_have_no_reward_where_it_is_strict() -> None:
    mixed = talk(("Alice: a Bob: b",), 9)
    assert values(replace(SILENT, strict=True, tokens=0.0), mixed, talk(("Bob: a",), 9)) == [0.0, 1.0]
    assert scores(replace(SILENT, strict=True), mixed)[0].status == "wrong"
    assert values(replace(SILENT, tokens=0.0), mixed) == [1.0]


def test_no_answer_is_wrong_and_a_failed_grader_is_no_zero() -> None:
    assert scores(SILENT, talk(("a",), 9, agreed=""))[0].status == "wrong"
    without = replace(talk(("a",), 9), task=task(answer=None))
    [found] = scores(SILENT, without)
    assert found.status == "error" and math.isnan(found.value)


def test_other_rollouts_have_the_reward_of_the_task() -> None:
    [found] = scores(SILENT, replace(trajectory(2, of=task()), score=None))
    assert found.value in (0.0, 1.0)
