import numpy as np
import pytest

from posttrain.components.advantages.gigpo import GiGPO
from posttrain.components.advantages.group_mean import GroupMean
from posttrain.types import Batch, Group, Segment, Task, Trajectory
from tests.builders import batch, random_batch, score

Turn = tuple[str | None, float]
"""State and reward of a turn of two tokens."""


def attempt(task: Task, sample: int, *turns: Turn) -> Trajectory:
    segments = [Segment(actor="prompt", token_ids=np.arange(3))]
    for number, (state, _) in enumerate(turns):
        if number:
            segments.append(Segment(actor="environment", token_ids=np.arange(4), turn=number))
        segments.append(
            Segment(
                actor="policy",
                token_ids=np.arange(2),
                trained=True,
                logp=np.full(2, -1.0, np.float32),
                turn=number,
                state_key=state,
            )
        )
    return Trajectory(task=task, segments=tuple(segments), stop_reason="stop", sample=sample, score=score(0.0))


def made(*groups: list[list[Turn]]) -> Batch:
    """A batch from the turns of each rollout of each group; a turn's reward is that of its last token."""
    built, rewards = [], []
    for g, attempts in enumerate(groups):
        task = Task(key=f"task-{g}", prompt="?")
        built.append(Group(key=task.key, trajectories=tuple(attempt(task, i, *ts) for i, ts in enumerate(attempts))))
        rewards += [np.array([x for _, r in turns for x in (0.0, r)], np.float32) for turns in attempts]
    return Batch(groups=tuple(built), token_rewards=tuple(rewards))


def credit(member: GiGPO, given: Batch) -> list[list[float]]:
    """One number a turn; both tokens of a turn must have it."""
    _, result = member({}, given)
    for advantage in result.advantages:
        assert (advantage[::2] == advantage[1::2]).all()
    return [advantage[::2].tolist() for advantage in result.advantages]


TWO = made([[("start", 0.0), ("left", 1.0)], [("start", 0.0), ("right", 0.0)]])


def test_two_rollouts_that_part_at_a_common_state() -> None:
    """Returns at the start are 0.5 and 0, their mean 0.25; whole rollouts 1 and 0, their mean 0.5. The states where
    each was alone give nothing.
    """
    assert credit(GiGPO(gamma=0.5, omega=2.0), TWO) == [[0.5 + 2 * 0.25, 0.5], [-0.5 - 2 * 0.25, -0.5]]


def test_in_units_of_a_std() -> None:
    """Of 1 and 0, and of 0.5 and 0: both are 1/sqrt(2) from the mean in units of the unbiased std."""
    (first, second) = credit(GiGPO(gamma=0.5, scale="group"), TWO)
    assert first == pytest.approx([2 / np.sqrt(2), 1 / np.sqrt(2)], abs=1e-5)
    assert second == pytest.approx([-2 / np.sqrt(2), -1 / np.sqrt(2)], abs=1e-5)


def test_a_rollout_that_returns_to_a_state_is_there_twice() -> None:
    """Gamma 1/2, rewards 0, 0, 1: returns 1/4, 1/2, 1. At x: 1/4, 1/2 and, of the other rollout, 0: mean 1/4."""
    loop = made([[("x", 0.0), ("x", 0.0), ("y", 1.0)], [("x", 0.0)]])
    turns = credit(GiGPO(gamma=0.5), loop)
    assert turns == [[0.5 + 0.0, 0.5 + 0.25, 0.5], [-0.5 - 0.25]]


def test_a_long_rollout_counts_for_more_where_turns_are_counted() -> None:
    """Totals 1, 1, 1 (three turns) and 0 (one turn): the mean over turns is 3/4, over rollouts 1/2."""
    uneven = made([[("a", 0.0), ("b", 0.0), ("c", 1.0)], [("d", 0.0)]])
    assert credit(GiGPO(omega=0.0, episodes="turns"), uneven) == [[0.25] * 3, [-0.75]]
    assert credit(GiGPO(omega=0.0), uneven) == [[0.5] * 3, [-0.5]]
    scaled = credit(GiGPO(omega=0.0, episodes="turns", scale="group"), uneven)
    assert scaled[0][0] == pytest.approx(0.25 / 0.5, abs=1e-5), "the deviation of 1, 1, 1, 0 is 1/2"


@pytest.mark.parametrize("scale", ["group", "none"])
@pytest.mark.parametrize("seed", range(4))
def test_without_omega_it_is_grpo(scale: str, seed: int) -> None:
    given = random_batch(seed)
    _, ours = GiGPO(omega=0.0, scale=scale)({}, given)  # type: ignore[arg-type]
    _, grpo = GroupMean(scale=scale)({}, given)  # type: ignore[arg-type]
    for a, b in zip(ours.advantages, grpo.advantages, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("salt", [None, "own"])
def test_states_that_nobody_shares_give_nothing(salt: str | None) -> None:
    """Salted keys, or none at all: omega does not matter."""
    salted = made(
        *[[[(salt and f"{salt}-{g}-{i}-{t}", float(t == i)) for t in range(3)] for i in range(3)] for g in range(2)]
    )
    assert credit(GiGPO(omega=1.0), salted) == credit(GiGPO(omega=0.0), salted)


def test_states_of_other_tasks_are_other_states() -> None:
    apart = made([[("x", 1.0)]], [[("x", 0.0)]])
    assert credit(GiGPO(), apart) == [[0.0], [0.0]]


@pytest.mark.parametrize("scale", ["group", "none"])
@pytest.mark.parametrize("seed", range(4))
def test_each_state_sums_to_zero(scale: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    given = made(
        *[
            [[(f"s{rng.integers(3)}", float(rng.normal())) for _ in range(rng.integers(1, 6))] for _ in range(5)]
            for _ in range(3)
        ]
    )
    with_states = credit(GiGPO(scale=scale), given)  # type: ignore[arg-type]
    without = credit(GiGPO(scale=scale, omega=0.0), given)  # type: ignore[arg-type]
    sums: dict[tuple[int, str | None], float] = {}
    for i, t in enumerate(given.trajectories):
        keys = [s.state_key for s in t.segments if s.trained]
        for key, a, b in zip(keys, with_states[i], without[i], strict=True):
            place = (int(given.group_N[i]), key)
            sums[place] = sums.get(place, 0.0) + a - b
    assert len(sums) > 5
    assert list(sums.values()) == pytest.approx([0.0] * len(sums), abs=1e-5)


def test_equal_returns_give_exact_zeros() -> None:
    same = made([[("x", 0.25), ("y", 0.5)]] * 3)
    assert credit(GiGPO(scale="group"), same) == [[0.0, 0.0]] * 3


def test_rollouts_of_one_turn_without_a_state() -> None:
    given = batch([[1.0, 0.0], [1.0]])
    _, result = GiGPO()({}, given)
    assert [a.tolist() for a in result.advantages] == [[0.5, 0.5], [-0.5, -0.5], [0.0, 0.0]]
    assert result.metrics == {"gigpo/shared_states": 0.0}


def test_the_share_of_turns_in_a_shared_state_is_reported() -> None:
    _, result = GiGPO()({}, TWO)
    assert result.metrics == {"gigpo/shared_states": 0.5}
