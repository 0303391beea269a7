import math
from collections import Counter
from typing import Literal

import numpy as np
import pytest

from posttrain.components.curricula import State
from posttrain.components.curricula.bandit import Bandit
from posttrain.errors import UserError
from posttrain.types import Group, Score, Task
from tests.builders import trajectory

EASY, MIDDLE, HARD = "easy", "middle", "hard"
POOL = [Task(key=f"{domain}{i}", prompt="", domain=domain) for domain in (EASY, MIDDLE, HARD) for i in range(3)]


def attempts(domain: str, rewards: list[float]) -> Group:
    of = Task(key=domain, prompt="", domain=domain)
    return Group(key=domain, trajectories=tuple(trajectory(reward=r, of=of) for r in rewards))


def shares(bandit: Bandit, state: State, draws: int = 20_000) -> dict[str, float]:
    _, chosen = bandit.select(state, POOL, draws, seed=0, step=0)
    counts = Counter(pick.task.domain for pick in chosen)
    return {domain: counts[domain] / draws for domain in (EASY, MIDDLE, HARD)}


def test_payment_is_the_mean_absolute_group_normalised_advantage() -> None:
    # 1, 0, 0, 0: 0.75 and three times 0.25 from the mean, in units of 0.5: mean (1.5 + 3 * 0.5) / 4 = 0.75
    state = Bandit(rate=0.5).observe(Bandit().start(), [attempts(EASY, [1, 0, 0, 0])])
    assert state["q"][EASY] == pytest.approx(0.375, rel=1e-5)
    # 1, 0: 0.5 / sqrt(0.5) each; mean over rollouts, then (1 - 0.5) * 0.375 + 0.5 * 0.70711
    state = Bandit(rate=0.5).observe(state, [attempts(EASY, [1, 0])])
    assert state["q"][EASY] == pytest.approx(0.1875 + 0.3535534, rel=1e-5)


def test_the_mean_is_over_rollouts_not_over_tasks() -> None:
    # One task with six equal rewards, one with 1, 0: (6 * 0 + 2 * 0.70711) / 8
    state = Bandit(rate=1.0).observe(Bandit().start(), [attempts(EASY, [1] * 6), attempts(EASY, [1, 0])])
    assert state["q"][EASY] == pytest.approx(0.1767767, rel=1e-5)


@pytest.mark.parametrize("right", range(9))
def test_payment_of_binary_rewards_is_widest_at_half(right: int) -> None:
    """2 sqrt(p (1 - p)) sqrt((G - 1) / G), which is sqrt(7 / 8) at p = 1/2."""
    state = Bandit(rate=1.0).observe(Bandit().start(), [attempts(EASY, [1] * right + [0] * (8 - right))])
    p = right / 8
    assert state["q"][EASY] == pytest.approx(2 * math.sqrt(p * (1 - p) * 7 / 8), rel=1e-5)
    assert state["q"][EASY] <= math.sqrt(7 / 8)


def test_a_rollout_alone_is_compared_with_nothing() -> None:
    state = Bandit(rate=1.0).observe(Bandit().start(), [attempts(EASY, [-0.25])])
    assert state["q"][EASY] == pytest.approx(0.25, rel=1e-5)


@pytest.mark.parametrize(("unvisited", "kept"), [("keep", 0.4), ("decay", 0.3)])
def test_categories_that_were_not_seen(unvisited: Literal["keep", "decay"], kept: float) -> None:
    bandit = Bandit(rate=0.25, unvisited=unvisited)
    state = {"q": {EASY: 0.4, MIDDLE: 0.4}, "position": {EASY: 7}}
    after = dict(bandit.observe(state, [attempts(EASY, [1, 1])]))
    assert after.pop("seen") == {EASY: [1.0, 1.0]}
    assert after == {"q": {EASY: pytest.approx(0.3), MIDDLE: pytest.approx(kept)}, "position": {EASY: 7}}


def test_failed_scores_add_nothing_and_cost_nothing() -> None:
    failed = trajectory(of=Task(key="m", prompt="", domain=MIDDLE)).scored(Score(value=math.nan, status="error"))
    mixed = Group(trajectories=(*attempts(EASY, [1, 0]), failed))
    state = Bandit(rate=1.0).observe(Bandit().start(), [mixed, Group(trajectories=(failed,))])
    assert state["q"] == {EASY: pytest.approx(0.7071068, rel=1e-5)}


def test_shares_are_a_softmax_of_q() -> None:
    q = {EASY: 0.0, MIDDLE: 0.8, HARD: 0.2}
    weights = {domain: math.exp(value / 0.4) for domain, value in q.items()}
    drawn = shares(Bandit(temperature=0.4), {"q": q, "position": {}})
    for domain, weight in weights.items():
        assert drawn[domain] == pytest.approx(weight / sum(weights.values()), abs=0.015)


def test_a_low_temperature_does_not_overflow() -> None:
    assert shares(Bandit(temperature=1e-6), {"q": {MIDDLE: 0.9}, "position": {}}, 50)[MIDDLE] == 1.0


def play(bandit: Bandit, state: State, success: dict[str, float], steps: int, seed: int = 0) -> State:
    """Steps of 24 tasks with 8 rollouts each, successful with the probability of their category."""
    for step in range(steps):
        state, chosen = bandit.select(state, POOL, 24, seed=seed, step=step)
        rng = np.random.default_rng([seed, step, 17])
        domains = [pick.task.domain for pick in chosen]
        groups = [attempts(domain, (rng.random(8) < success[domain]).astype(float).tolist()) for domain in domains]
        state = bandit.observe(state, groups)
    return state


@pytest.mark.slow
def test_mass_goes_where_half_succeed_and_moves_when_that_changes() -> None:
    bandit = Bandit(rate=0.5, temperature=0.2)
    state = play(bandit, bandit.start(), {EASY: 1.0, MIDDLE: 0.5, HARD: 0.0}, 20)
    assert state["q"][EASY] == state["q"][HARD] == 0.0
    assert 0.7 < state["q"][MIDDLE] <= math.sqrt(7 / 8)
    floor = 1 / (2 + math.exp(state["q"][MIDDLE] / 0.2))
    assert shares(bandit, state)[HARD] == pytest.approx(floor, abs=0.01)
    moved = play(bandit, state, {EASY: 1.0, MIDDLE: 1.0, HARD: 0.5}, 40)
    assert moved["q"][HARD] > 0.7 and moved["q"][MIDDLE] < 0.05
    assert shares(bandit, moved)[HARD] > 0.9


def test_each_category_goes_through_its_own_tasks_without_replacement() -> None:
    bandit, state, keys = Bandit(), Bandit().start(), []
    for step in range(12):
        state, chosen = bandit.select(state, POOL, 5, seed=3, step=step)
        keys += [pick.task.key for pick in chosen]
    for domain in (EASY, MIDDLE, HARD):
        own = [key for key in keys if key.startswith(domain)]
        assert state["position"][domain] == len(own) > 6
        for begin in range(0, len(own) - 2, 3):
            assert len(set(own[begin : begin + 3])) == 3
    epochs = [tuple(own[begin : begin + 3]) for begin in range(0, len(own) - 2, 3)]
    assert len(set(epochs)) > 1, "a new order each time"


def test_categories_are_products_of_features() -> None:
    pool = [
        Task(key=f"{kind}{level}", prompt="", domain=kind, fields={"level": level}) for kind in "ab" for level in (1, 2)
    ]
    state, _ = Bandit(features=("domain", "level")).select(Bandit().start(), pool, 1, seed=0, step=0)
    assert sorted(state["q"]) == ["a / 1", "a / 2", "b / 1", "b / 2"]


def test_a_feature_that_tasks_lack_is_reported() -> None:
    pool = [Task(key="first", prompt="", fields={"level": 1})]
    with pytest.raises(UserError, match=r"names 'levle', but task first has no such field; did you mean 'level'"):
        Bandit(features=("levle",)).select(Bandit().start(), pool, 1, seed=0, step=0)


def test_tasks_of_one_category_are_noted() -> None:
    assert Bandit().notes(POOL) == []
    [note] = Bandit().notes(POOL[:3])
    assert note.startswith("curriculum bandit: all 3 tasks have the same category, 'easy', so that they are drawn unif")
