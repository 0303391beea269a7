import numpy as np
import pytest
from pydantic import ValidationError

from posttrain.components.curricula import State
from posttrain.components.curricula.thompson import Thompson
from posttrain.errors import UserError
from posttrain.types import Task
from tests.components.curricula.helpers import failed, group

POOL = [Task(key=f"t{i}", prompt="") for i in range(40)]


def visited(curriculum: Thompson, rewards: list[list[float]]) -> tuple[float, float]:
    """Posterior of the only task after these steps."""
    state: State = curriculum.start()
    for step, own in enumerate(rewards):
        state, _ = curriculum.select(state, POOL[:1], 1, seed=0, step=step)
        state = curriculum.observe(state, [group(POOL[0], own)])
    return float(state["a"][0]), float(state["b"][0])


@pytest.mark.parametrize(
    ("keep", "rewards", "posterior"),
    [
        (1.0, [[1, 1, 1, 0]], (1 + 3, 1 + 1)),
        (1.0, [[1, 1, 1, 0], [1, 0, 0, 0]], (1 + 3 + 1, 1 + 1 + 3)),
        # .5 (1 + 3) + .5 + 1 and .5 (1 + 1) + .5 + 3, after .5 + .5 + 3 and .5 + .5 + 1
        (0.5, [[1, 1, 1, 0], [1, 0, 0, 0]], (0.5 * 4 + 0.5 + 1, 0.5 * 2 + 0.5 + 3)),
        (0.0, [[1, 1, 1, 0], [1, 0, 0, 0]], (1 + 1, 1 + 3)),  # the prior and the last step
        (1.0, [[1]] * 5, (6.0, 1.0)),
        (1.0, [[0]] * 5, (1.0, 6.0)),  # k is 1, not 8 as in the release
    ],
)
def test_posterior_by_hand(keep: float, rewards: list[list[float]], posterior: tuple[float, float]) -> None:
    assert visited(Thompson(keep=keep), rewards) == pytest.approx(posterior)


def test_stored_rollouts_are_the_start() -> None:
    pool = [Task(key="a", prompt="", fields={"stored": [2, 1]}), Task(key="b", prompt="", fields={"stored": [0, 0]})]
    state, _ = Thompson(warm="stored").select(Thompson().start(), pool, 1, seed=0, step=0)
    assert state["a"].tolist() == [1 + 3 * 2, 1] and state["b"].tolist() == [1 + 3 * 1, 1]
    with pytest.raises(UserError, match=r"warm names 'stord', but task a has no such field; did you mean 'stored'"):
        Thompson(warm="stord").check(pool, 1)
    with pytest.raises(UserError, match=r"is \[1\]; it must be \[successes, failures\]"):
        Thompson(warm="stored").check([Task(key="c", prompt="", fields={"stored": [1]})], 1)


def known(means: list[float], size: float = 1e9) -> State:
    """A state whose posteriors leave nothing to chance."""
    mean_P = np.array(means)
    return {"position": 0, "asked": {}, "a": size * mean_P, "b": size * (1 - mean_P), "seen": np.ones(len(means))}


def picked(curriculum: Thompson, means: list[float], count: int) -> set[str]:
    _, picks = curriculum.select(known(means), POOL[: len(means)], count, seed=0, step=0)
    return {pick.task.key for pick in picks}


def test_the_nearest_to_the_target_are_taken() -> None:
    means = [0.05, 0.4, 0.95, 0.55, 0.7]
    assert picked(Thompson(), means, 2) == {"t3", "t1"}
    assert picked(Thompson(target=0.9), means, 2) == {"t2", "t4"}


def test_a_band_is_filled_at_random_and_topped_up_with_the_nearest() -> None:
    means = [0.05, 0.4, 0.95, 0.55, 0.72]
    assert picked(Thompson(band=(0.3, 0.7)), means, 3) == {"t1", "t3", "t4"}
    seen = set()
    for step in range(20):
        _, picks = Thompson(band=(0.3, 0.7)).select(known(means), POOL[:5], 1, seed=0, step=step)
        seen |= {pick.task.key for pick in picks}
    assert seen == {"t1", "t3"}
    with pytest.raises(ValidationError, match=r"goes from 0\.7 to 0\.3; write the lower rate first"):
        Thompson(band=(0.7, 0.3))


def test_candidates_are_distinct_and_an_epoch_has_every_task() -> None:
    curriculum, state, seen = Thompson(candidates=2), Thompson().start(), list[str]()
    for step in range(5):
        state, picks = curriculum.select(state, POOL, 4, seed=1, step=step)
        keys = [pick.task.key for pick in picks]
        assert len(set(keys)) == 4
        seen += keys
    assert state["position"] == 40, "five steps of eight candidates are an epoch"
    assert len(set(seen)) == 20, "each task was a candidate once"


def test_a_task_that_is_not_chosen_keeps_its_posterior() -> None:
    curriculum = Thompson(keep=0.5)
    state, picks = curriculum.select(known([0.5] * 8, size=10.0), POOL[:8], 2, seed=0, step=0)
    after = curriculum.observe(state, [group(pick.task, [1, 0]) for pick in picks])
    chosen = [int(pick.task.key[1:]) for pick in picks]
    assert all(after["a"][i] == 5.0 for i in range(8) if i not in chosen)
    assert all(after["a"][i] == 0.5 * 5 + 0.5 + 1 for i in chosen)


def test_what_could_not_be_scored_is_neither_right_nor_wrong() -> None:
    state, picks = Thompson().select(Thompson().start(), POOL[:1], 1, seed=0, step=0)
    after = Thompson().observe(state, [failed(picks[0].task)])
    assert (after["a"][0], after["b"][0], after["seen"][0]) == (1.0, 1.0, 0)


def test_rewards_between_are_counted_and_thresholded() -> None:
    state, picks = Thompson().select(Thompson().start(), POOL[:1], 1, seed=0, step=0)
    after = Thompson().observe(state, [group(picks[0].task, [0.9, 1.0, 1.5, 0.0])])
    assert (after["a"][0], after["b"][0]) == (3.0, 3.0)
    assert Thompson().report(after)["between_0_and_1"] == 1.0
    after = Thompson(success="reward").observe(state, [group(picks[0].task, [0.9, 0.5])])
    assert (after["a"][0], after["b"][0]) == pytest.approx((1 + 1.4, 1 + 0.6))


def test_a_posterior_finds_the_difficulties_of_tasks_that_stay() -> None:
    """Rank correlation of prediction and outcome above one half once each task was seen a few times."""
    curriculum, state, rng = Thompson(candidates=1), Thompson().start(), np.random.default_rng(0)
    rate_P = np.linspace(0.02, 0.98, len(POOL))
    correlations = []
    for step in range(60):
        state, picks = curriculum.select(state, POOL, 16, seed=0, step=step)
        solved = [(rng.random(8) < rate_P[int(p.task.key[1:])]).astype(float).tolist() for p in picks]
        state = curriculum.observe(state, [group(p.task, own) for p, own in zip(picks, solved, strict=True)])
        correlations.append(curriculum.report(state).get("prediction_correlation", 0.0))
    assert np.mean(correlations[-10:]) > 0.5 > np.mean(correlations[:2])


@pytest.mark.slow
def test_two_hundred_thousand_tasks_have_a_state_of_five_megabytes() -> None:
    pool = [Task(key=str(i), prompt="") for i in range(200_000)]
    state, picks = Thompson().select(Thompson().start(), pool, 256, seed=0, step=0)
    assert len(picks) == 256
    assert sum(x.nbytes for x in state.values() if isinstance(x, np.ndarray)) <= 5e6
