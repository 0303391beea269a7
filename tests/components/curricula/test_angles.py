"""Ranks by angles: cosines by hand, the window and how it moves, and draws far beyond the last task."""

import asyncio
from typing import Any

import numpy as np
import pytest

from posttrain.components.curricula.angles import (
    Angles,
    log_weights,
    mean_cosine,
    scores,
    shared,
    without_replacement,
)
from posttrain.types import Task
from tests.builders import ScriptedSampler
from tests.components.curricula.helpers import TableProbe, group

POOL = [Task(key=f"t{i}", prompt=f"Q: {i}+{i}\nA:") for i in range(30)]


def test_mean_cosine_by_hand() -> None:
    """L orthogonal tokens: L ones in L (L + 1) / 2 places, so that the mean is 2 / (L + 1)."""
    assert mean_cosine(np.eye(4), 0) == pytest.approx(2 / 5)
    assert mean_cosine(np.eye(4), 1) == pytest.approx(4 / 13), "the superdiagonal has three more places"
    same = np.array([[1.0, 0.0], [3.0, 0.0]])
    assert mean_cosine(same, 0) == pytest.approx(1.0), "lengths do not count"
    assert mean_cosine(np.array([[1.0, 0.0], [-2.0, 0.0]]), 0) == pytest.approx(1 / 3)
    assert mean_cosine(np.zeros((2, 2)), 1) == 0.0


def test_scores_by_hand() -> None:
    """Tokens 7 7 are the context, 9 the end. The question's states: e1 e1, and e1 e2."""
    prompts = [np.array([7, 7, 1, 2, 9]), np.array([7, 7, 3, 2, 9])]
    e1, e2 = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    states = [np.array([e1, e2, e1, e1, e2]), np.array([e1, e2, e1, e2, e2])]
    assert shared(prompts) == 2 and shared([ids[::-1] for ids in prompts]) == 2
    # The last two tokens are shared: the question is one token, whose C_intra is 1; C_inter is 1/2 for both.
    assert scores(states, prompts, 8.0).tolist() == pytest.approx([5.0, 5.0])
    prompts[1][3] = 4
    assert scores(states, prompts, 8.0).tolist() == pytest.approx([1 + 8 / 2, 2 / 3 + 8 / 2])
    assert scores(states, prompts, 0.0).tolist() == pytest.approx([1.0, 2 / 3])


def test_equal_prompts_and_a_single_one_have_a_score() -> None:
    ids = np.array([1, 2])
    assert scores([np.eye(2)] * 2, [ids, ids], 1.0) == pytest.approx([1.0, 1.0])
    assert scores([np.eye(2)], [ids], 1.0) == pytest.approx([2 / 3])


@pytest.mark.parametrize(
    ("acc", "angle", "moved"),
    [
        (0.5, 0.0, 0.0),
        (1.0, 0.0, 10 * 0.761594),
        (0.0, 0.5, 0.0),
        (1.0, 2.0, 10 * 0.761594 * 2),
        (0.5, 1.0, 10 * 0.462117),
    ],
)
def test_moves_by_hand(acc: float, angle: float, moved: float) -> None:
    """n = 10 of 100 tasks; tanh 1 = .761594, tanh .5 = .462117; it never moves back."""
    assert Angles(pace=0.1).move(acc, angle, 100) == pytest.approx(moved, abs=1e-4)


def test_draws_follow_the_gaussian_and_reach_the_last_tasks_from_far_beyond() -> None:
    rng = np.random.default_rng(0)
    drawn = np.concatenate([without_replacement(log_weights(100, 30.0, 5.0), 1, rng) for _ in range(4000)])
    assert drawn.mean() == pytest.approx(30.0, abs=0.4) and drawn.std() == pytest.approx(5.0, abs=0.3)
    far = without_replacement(log_weights(100, 1e5, 5.0), 10, rng)
    assert far.tolist() == list(range(90, 100)), "weights underflow, their logarithms do not"


class Looking(TableProbe):
    """A model whose states point the more in one direction the shorter the prompt."""

    @property
    def samplers(self) -> dict[str, Any]:
        return {"policy": ScriptedSampler("policy")}


def states(ids: Any) -> Any:
    own = np.zeros((len(ids), 2))
    own[:, 0], own[::2, 1] = 1.0, len(ids) / 10
    return own


def test_the_window_stays_while_nothing_is_solved_and_moves_on_with_success() -> None:
    for rewards, moves in (([0.0, 0.0], False), ([1.0, 1.0], True)):
        curriculum, probe = Angles(gamma=0.001), Looking(states=states)
        state = curriculum.start()
        for step in range(4):
            state = asyncio.run(curriculum.look(state, POOL, probe, 4, seed=0, step=step))
            state, picks = curriculum.select(state, POOL, 4, seed=0, step=step)
            ranks = [pick.weight or 0.0 for pick in picks]
            assert ranks == sorted(ranks) and len({pick.task.key for pick in picks}) == 4
            state = curriculum.observe(state, [group(pick.task, rewards) for pick in picks])
        assert (state["mu"] > 0.0) == moves and sorted(state["order"].tolist()) == list(range(30))
        assert curriculum.report(state)["acc"] == rewards[0]
        assert probe.asked[0][1] == [str(len(probe.samplers["policy"].prompt(t).token_ids)) for t in POOL]


def test_a_subset_serves_several_steps() -> None:
    curriculum, probe = Angles(subset=8), Looking(states=states)
    state = asyncio.run(curriculum.look(curriculum.start(), POOL, probe, 4, seed=0, step=0))
    assert len(state["left"]) == 8
    state, first = curriculum.select(state, POOL, 4, seed=0, step=0)
    state = asyncio.run(curriculum.look(state, POOL, probe, 4, seed=0, step=1))
    state, second = curriculum.select(state, POOL, 4, seed=0, step=1)
    assert len({pick.task.key for pick in (*first, *second)}) == 8 and not state["left"]
    assert max(p.weight or 0 for p in first) < min(p.weight or 0 for p in second), "in the order of their ranks"
