"""A learned mixture of rewards: Adam's step by hand, its slope by finite differences, unknown labels, and a bandit."""

import json
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from posttrain.components.advantages.mixed import Mixed, slopes
from posttrain.errors import UserError
from posttrain.types import Batch, Score
from tests.builders import batch


def given(groups: list[int], **parts: list[float | None]) -> Batch:
    """Groups of these sizes, with the value of each part; None where it does not apply."""
    plain = batch([[0.0] * size for size in groups])
    found, place = [], 0
    for group in plain.groups:
        scored = []
        for trajectory in group:
            own = {
                name: Score(value=float(values[place] or 0.0), status="ok", applies=values[place] is not None)
                for name, values in parts.items()
            }
            assert trajectory.score is not None
            scored.append(trajectory.scored(replace(trajectory.score, parts=own)))
            place += 1
        found.append(replace(group, trajectories=tuple(scored)))
    return replace(plain, groups=tuple(found))


def credited(advantage: Mixed, state: object, own: Batch) -> list[float]:
    _, credit = advantage(state, own)  # type: ignore[arg-type]
    return [float(a[0]) for a in credit.advantages]


def test_a_step_by_hand() -> None:
    """y = -.5, .5 and x = -1, 1 less 0.1 x: the slope is .4 > 0, and the first step of Adam is the rate."""
    advantage = Mixed(primary="correct", weights={"a": 0.1}, own=0.0, rate=0.05)
    own = given([2], correct=[0.0, 1.0], a=[0.0, 2.0])
    assert slopes(np.array([0.1]), np.array([0.0, 1.0]), np.array([[0.0, 2.0]]), own) == pytest.approx([0.4])
    state, credit = advantage(advantage.start(), own)
    assert state["weights"] == pytest.approx([0.15]) and state["updates"] == 1
    assert [float(a[0]) for a in credit.advantages] == pytest.approx([-0.15, 0.15])
    # left (.5 - .15)^2 of .5^2
    assert credit.metrics == pytest.approx({"weight/a": 0.15, "explained": 1 - 0.35**2 / 0.5**2})
    assert credited(Mixed(primary="correct", weights={"a": 0.1}, rate=0.0, own=2.0), state, own) == pytest.approx(
        [-1.15, 1.15]
    )


def test_the_slope_is_that_of_half_the_squared_difference() -> None:
    rng = np.random.default_rng(5)
    sizes = [3, 1, 4, 2]
    y = rng.normal(size=10)
    y[[1, 7]] = np.nan
    x = rng.normal(size=(3, 10))
    own, weights = given(sizes, correct=[0.0] * 10), rng.normal(size=3)

    def loss(at: np.ndarray) -> float:
        total, count, place = 0.0, 0, 0
        for size in sizes:
            rows = [i for i in range(place, place + size) if not np.isnan(y[i])]
            place += size
            gap = y[rows] - at @ x[:, rows]
            total, count = total + 0.5 * float(np.sum((gap - gap.mean()) ** 2)), count + len(rows)
        return total / count

    found = slopes(weights, y, x, own)
    assert found is not None
    for k in range(3):
        step = np.eye(3)[k] * 1e-5
        assert found[k] == pytest.approx(-(loss(weights + step) - loss(weights - step)) / 2e-5, abs=1e-8)


def test_without_a_pair_of_labels_nothing_moves_and_the_mixture_is_learned_from() -> None:
    advantage = Mixed(primary="correct", weights={"a": 0.5, "b": -1.0}, own=0.0, rate=0.3, decay=0.1)
    own = given([2, 2], correct=[1.0, None, None, 0.0], a=[1.0, 0.0, None, 1.0], b=[0.0, 0.0, 1.0, 0.0])
    state, credit = advantage(advantage.start(), own)
    assert state == advantage.start() and credit.metrics == {"weight/a": 0.5, "weight/b": -1.0}
    assert [float(a[0]) for a in credit.advantages] == pytest.approx([0.25, -0.25, -0.5, 0.5])


def test_a_session_that_is_saved_goes_on_to_the_bit() -> None:
    rng = np.random.default_rng(7)
    steps = [given([4], correct=[*rng.integers(0, 2, 4)], a=[*rng.normal(size=4)]) for _ in range(20)]
    advantage = Mixed(primary="correct", weights={"a": 0.3}, decay=0.01, nonnegative=True)
    whole = saved = advantage.start()
    for own in steps:
        whole, credit = advantage(whole, own)
        saved, again = advantage(json.loads(json.dumps(saved)), own)
        assert whole == saved and credit.metrics == again.metrics


RIGHT = np.array([1.0, 0.9, 0.0])
MISLEADING = np.array([0.0, 1.0, 0.2])
HELPFUL = np.array([0.5, 0.0, 0.0])


def trained(advantage: Mixed, seed: int, labelled: float) -> tuple[float, dict[str, float]]:
    """Probability of a right answer after 400 steps on three arms, and the weights at the end."""
    rng = np.random.default_rng([seed, 188])
    theta, state = np.zeros(3), advantage.start()
    metrics: dict[str, float] = {}
    for _ in range(400):
        p = np.exp(theta) / np.exp(theta).sum()
        arms = rng.choice(3, 64, p=p)
        right = rng.random(64) < RIGHT[arms]
        labels = [float(r) if known else None for r, known in zip(right, rng.random(64) < labelled, strict=True)]
        own = given([64], correct=labels, bonus=[*MISLEADING[arms]], hint=[*HELPFUL[arms]])
        state, credit = advantage(state, own)
        metrics = dict(credit.metrics)
        gain = np.array([float(a[0]) for a in credit.advantages])
        theta = theta + 1.0 * (np.bincount(arms, gain, 3) / 64 - p * gain.mean()) - 0.01 * theta
    p = np.exp(theta) / np.exp(theta).sum()
    return float(p @ RIGHT), metrics


@pytest.mark.slow
def test_a_misleading_part_does_no_harm_where_a_tenth_is_labelled() -> None:
    both = {"bonus": 1.0, "hint": 1.0}
    fixed, _ = trained(Mixed(primary="correct", weights=both, own=0.0, rate=0.0), 0, 0.1)
    learned, metrics = trained(Mixed(primary="correct", weights=both, own=0.0), 0, 0.1)
    labels, _ = trained(Mixed(primary="correct", weights={"hint": 0.0}, rate=0.0), 0, 0.1)
    assert labels < fixed < 0.9 < 0.95 < learned, "the sum of both prefers the second arm, and labels are few"
    assert metrics["weight/hint"] > metrics["weight/bonus"]


def test_the_reward_itself_is_the_primary_part_by_default() -> None:
    own = batch([[1.0, 0.0]])
    state, credit = Mixed()(Mixed().start(), own)
    assert [float(a[0]) for a in credit.advantages] == [0.5, -0.5] and state["weights"] == []


def test_names_that_cannot_be() -> None:
    with pytest.raises(ValidationError, match="the primary part 'correct' explains itself"):
        Mixed(primary="correct", weights={"correct": 1.0})
    with pytest.raises(ValidationError, match="the part 'correct' needs weights of other parts"):
        Mixed(primary="correct")
    advantage = Mixed(primary="corect", weights={"a": 1.0})
    with pytest.raises(UserError, match="reads the part 'corect', and scores have the parts correct, a"):
        advantage(advantage.start(), given([2], correct=[0.0, 1.0], a=[0.0, 2.0]))
