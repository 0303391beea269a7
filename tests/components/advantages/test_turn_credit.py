"""Scores of rollouts and credits of turns, by hand."""

import math

import numpy as np
import pytest

from posttrain.components.advantages.turn_credit import TurnCredit
from posttrain.types import Batch, Group, Segment, Task, Trajectory
from tests.builders import score

WIN, LATE, NONE = [1.0], [0.0, 0.0, 1.0], [0.0]


def rollout(rewards: list[float], tokens: int) -> Trajectory:
    turns = tuple(
        Segment(actor="policy", token_ids=np.arange(tokens), trained=True, turn=turn) for turn in range(len(rewards))
    )
    return Trajectory(task=Task(key="a", prompt=""), segments=turns, stop_reason="stop", score=score(0.0))


def made(*rollouts: list[float], tokens: int = 2) -> Batch:
    """One group; the reward of a turn is at its last token."""
    group = Group(key="a", trajectories=tuple(rollout(rewards, tokens) for rewards in rollouts))
    placed = tuple(
        np.array([x for r in rewards for x in [0.0] * (tokens - 1) + [r]], np.float32) for rewards in rollouts
    )
    return Batch(groups=(group,), token_rewards=placed)


def credit(member: TurnCredit, given: Batch) -> list[list[float]]:
    """The advantage of the first token of each turn."""
    _, found = member({}, given)
    return [[float(a_T[place]) for place in range(0, len(a_T), 2)] for a_T in found.advantages]


@pytest.mark.parametrize(("how", "late"), [("r2g", 0.64), ("mean", 1 / 3), ("sum", 1.0)])
def test_scores(how: str, late: float) -> None:
    """Scores are 1, `late` and 0, compared with ddof 1; equal credits give every token the score's advantage."""
    found = credit(TurnCredit(score=how), made(WIN, LATE, NONE))  # type: ignore[arg-type]
    mean = (1 + late) / 3
    std = math.sqrt(((1 - mean) ** 2 + (late - mean) ** 2 + mean**2) / 2)
    assert found[0] == pytest.approx([(1 - mean) / std], rel=1e-4)
    assert found[1] == pytest.approx([(late - mean) / std] * 3, rel=1e-4)
    assert found[2] == pytest.approx([-mean / std], rel=1e-4)


def test_reward_to_go_is_rescaled_to_the_advantage() -> None:
    """Credits .64, .8 and 1 have the mean .8133; alone in its group, a rollout keeps its score .64."""
    (found,) = credit(TurnCredit(credit="r2g"), made(LATE))
    assert found == pytest.approx([0.64 * c / (2.44 / 3) for c in (0.64, 0.8, 1.0)], rel=1e-4)
    assert np.mean(found) == pytest.approx(0.64, rel=1e-4)


def test_naive_credit_scales_up_the_turns_that_have_any() -> None:
    (found,) = credit(TurnCredit(credit="naive"), made([0.0, 0.5, 0.5]))
    total = 0.8 * 0.5 + 0.64 * 0.5
    assert found == pytest.approx([0.0, total, total], rel=1e-4)


def test_a_concave_credit_is_at_least_one_half() -> None:
    """0 gives .5, 1 gives 1, and .5 gives .5 + .5 (1 - e^-1) / (1 - e^-2) = .8655."""
    (found,) = credit(TurnCredit(credit="em", score="sum"), made([0.0, 1.0, 0.5]))
    mean = (0.5 + 1.0 + 0.86553) / 3
    assert found == pytest.approx([1.5 * c / mean for c in (0.5, 1.0, 0.86553)], rel=1e-4)


@pytest.mark.parametrize(("how", "learned"), [("equalized", True), ("em", True), ("r2g", False), ("naive", False)])
def test_failures_without_reward_are_learned_from_only_by_some(how: str, learned: bool) -> None:
    found = credit(TurnCredit(credit=how), made(WIN, NONE))  # type: ignore[arg-type]
    assert (found[1][0] < 0) == learned
    assert (found[1][0] == 0.0) == (not learned)


def test_equal_scores_give_nothing() -> None:
    assert credit(TurnCredit(), made(WIN, WIN)) == [[0.0], [0.0]]
