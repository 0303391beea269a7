"""CGPO's three rules: numbers by hand, and that a violator is never pushed up."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from posttrain.components.advantages.cgpo import CGPO
from posttrain.components.rewards.constraints import CALIBRATED
from posttrain.signals import logp_of
from posttrain.types import Batch, Score
from tests.builders import batch

Rule = Literal["crpg", "crraft", "codpo"]


def given(rewards: list[list[float]], kl: list[float], open_: list[float] | None = None) -> Batch:
    """Rollouts of two tokens with k as given, and the reward that a violator would have."""
    plain = batch(rewards)
    flat = iter(open_ or [r for row in rewards for r in row])
    groups = []
    for group in plain.groups:
        scored = [
            t.scored(replace(t.score, parts={CALIBRATED: Score(value=next(flat), status="ok")}))
            for t in group
            if t.score is not None
        ]
        groups.append(replace(group, trajectories=tuple(scored)))
    made = replace(plain, groups=tuple(groups))
    reference = tuple(
        (t.behavior_logp - np.float32(k / t.num_trained)).astype(np.float32)
        for t, k in zip(made.trajectories, kl, strict=True)
    )
    return replace(made, signals={logp_of("reference"): reference})


def advantages(rule: Rule, of: Batch, max_kl: float = 10.0) -> list[float]:
    return [float(a_T[0]) for a_T in CGPO(rule=rule, max_kl=max_kl)({}, of)[1].advantages]


def test_crpg_by_hand() -> None:
    # w = 0.8, 0.6 * (1 - 5 / 10), 0 and 0.5 (k < 0 counts as 0); the mean over both groups is 0.4
    found = advantages("crpg", given([[0.8, 0.6], [0.0, 0.5]], [0.0, 5.0, 0.0, -3.0]))
    assert found == pytest.approx([0.4, -0.1, -0.4, 0.1], abs=1e-5)
    assert advantages("crpg", given([[0.8, 0.6]], [12.0, 0.0])) == pytest.approx([-0.3, 0.3], abs=1e-5)


def test_crraft_imitates_the_best_that_is_near() -> None:
    found = advantages("crraft", given([[0.9, 0.7, 0.6], [0.0, 0.0, 0.3]], [11.0, 2.0, 0.0, 0.0, 0.0, 30.0]))
    assert found == pytest.approx([0.0, 0.7, 0.0, 0.0, 0.0, 0.0])


def test_codpo_pairs_the_best_that_passes_with_the_worst_that_does_not() -> None:
    of = given([[0.6, 0.4, 0.0, 0.0]], [0.0] * 4, [0.6, 0.4, 0.9, 0.7])
    assert advantages("codpo", of) == [1.0, 0.0, 0.0, -1.0]  # though .4 that passes is lower than .7 that does not
    assert advantages("codpo", given([[0.6, 0.4, 0.5]], [0.0] * 3)) == [1.0, -1.0, 0.0]
    assert advantages("codpo", given([[0.0, 0.0]], [0.0] * 2, [0.9, 0.1])) == [0.0, 0.0]
    assert advantages("codpo", given([[0.5, 0.5]], [0.0] * 2)) == [0.0, 0.0]


@pytest.mark.parametrize("rule", ["crpg", "crraft", "codpo"])
def test_a_violator_is_never_pushed_up(rule: Rule) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        c = rng.random((3, 4))
        kept = rng.random((3, 4)) < 0.5
        of = given((c * kept).tolist(), rng.normal(0, 8, 12).tolist(), c.reshape(-1).tolist())
        found = np.array(advantages(rule, of))
        assert (found[~kept.reshape(-1)] <= 0).all()
        if not kept.any():
            assert (found == 0).all()


def test_metrics() -> None:
    metrics = CGPO()({}, given([[0.5, 0.0]], [1.0, 3.0]))[1].metrics
    assert metrics == {"broken": 0.5, "kl_k1": pytest.approx(2.0, abs=1e-5)}
