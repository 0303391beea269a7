"""Learned weights of an auxiliary reward: the inner fixed point and its derivative, and where learning ends."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics._outer_level import Outer, bandit, corridor, finite_differences, implicit
from posttrain.components.diagnostics.reward_weights import RewardWeights, heuristic
from posttrain.errors import UserError


def found(*names: str, **settings: Any) -> dict[str, Any]:
    def unused(*_: Any) -> Any:
        raise AssertionError("no model is loaded")

    subjects = [Subject(name=name, load=unused, serve=unused) for name in names]
    return dict(RewardWeights(**{"seeds": 2, **settings}).examine(*subjects).values["found"])


def arms(*extra: float) -> Outer:
    return Outer(mdp=bandit(np.array([1.0, 0.9, 0.0])), extra_SA=np.array([extra, (0.0,) * 3]), decay=0.1)


def weights(*given: float) -> torch.Tensor:
    return torch.tensor([*given, 2.0], dtype=torch.float64)


def test_the_update_by_hand() -> None:
    """At uniform logits each arm moves by its advantage over three, less decay times its logit."""
    theta = torch.zeros(2, 3, dtype=torch.float64)
    theta[1, 0] = 5.0  # the end of the episode only decays
    moved = arms(0.0, 1.0, 0.2).update(theta, weights(0.5, 2.0, 1.0))
    # rewards .5 + (2, 2.8, .2): mean 2.1667 with the constant, which cancels
    assert moved[0].tolist() == pytest.approx([(2 - 5 / 3) / 3, (2.8 - 5 / 3) / 3, (0.2 - 5 / 3) / 3])
    assert moved[1].tolist() == pytest.approx([-0.5, 0.0, 0.0])


def test_the_fixed_point_of_two_arms() -> None:
    """With two arms x = theta_0 - theta_1 solves p (1 - p) gap = decay x / 2."""
    outer = Outer(mdp=bandit(np.array([1.0, 0.0])), extra_SA=np.zeros((2, 2)), decay=0.1)
    theta = outer.settle(weights(0.0, 1.0, 0.0), close=1e-12)
    gap = float(theta[0, 0] - theta[0, 1])
    p = 1 / (1 + np.exp(-gap))
    assert p * (1 - p) == pytest.approx(0.1 * gap / 2, abs=1e-9) and float(outer.value(theta)) == pytest.approx(p)
    assert float(outer.update(theta, weights(0.0, 1.0, 0.0)).abs().max()) < 1e-11


@pytest.mark.parametrize("outer", [replace(arms(0.0, 1.0, 0.2), decay=0.4), pytest.param(None, marks=pytest.mark.slow)])
def test_the_outer_gradient_equals_finite_differences(outer: Outer | None) -> None:
    if outer is None:
        mdp = corridor(4)
        outer = Outer(mdp=mdp, extra_SA=heuristic(mdp, 0.5, np.random.default_rng(1))[0], decay=0.1)
    at = weights(0.1, 1.0, 0.5)
    theta = outer.settle(at, close=1e-11)
    by_rule, by_steps = implicit(outer, at, theta), finite_differences(outer, at, theta)
    assert float((by_rule - by_steps).abs().max()) < 1e-6 * max(1.0, 10 * float(by_rule.abs().max()))
    assert float(by_rule[1:3].abs().min()) > 1e-4
    few = implicit(outer, at, theta, doublings=2)  # a few terms: the same direction, shorter
    assert float(few @ by_rule) > 0.0 and float(few.norm()) < float(by_rule.norm())


def test_a_constant_auxiliary_reward_changes_nothing() -> None:
    outer = arms(1.0, 1.0, 1.0)
    theta = outer.settle(weights(0.0, 1.0, 0.0), close=1e-11)
    slope = implicit(outer, weights(0.0, 1.0, 0.0), theta)
    assert slope[[0, 2]].tolist() == pytest.approx([0.0, 0.0], abs=1e-12)  # not identified: they stay
    assert float(slope[1]) > 0.0 and float(slope[3]) == 0.0  # one step: the discount does not matter


def test_a_misleading_bonus_ends_harmless_from_the_primary_reward_and_stays_from_the_sum() -> None:
    row = found("misleading", steps=15, rate=20.0)["misleading"]
    assert row["sum"]["return"] == pytest.approx(0.851, abs=1e-3)
    assert row["learned from primary"]["return"] > 0.95 and row["learned from primary"]["weights"][2] < 0.0
    # gradients are local: only mass of the third arm is moved, and the weight of the bonus grows
    assert row["learned from sum"]["return"] == pytest.approx(0.879, abs=3e-3)
    assert row["learned from sum"]["weights"][2] > 1.0 and row["learned from sum"]["optimal"] < 0.1


def test_the_discount_is_smaller_where_it_costs() -> None:
    row = found("[0.5, 0, 0]", steps=5, discount_cost=1.0)["[0.5, 0, 0]"]["learned from primary"]
    assert row["discount"] < 0.89 and row["weights"][2] > 0.0


def test_a_heuristic_and_its_potential() -> None:
    mdp = corridor(4)
    bonus, potential = heuristic(mdp, 0.0, np.random.default_rng(0))
    # nearness 0, 1/3, 2/3 and 0 at the end; each step is rewarded with that of the next cell
    assert bonus.ravel().tolist() == pytest.approx([0, 1 / 3, 0, 2 / 3, 1 / 3, 0, 0, 0])
    assert potential[1].tolist() == pytest.approx([-1 / 3, 0.95 * 2 / 3 - 1 / 3])
    turned = heuristic(mdp, 1.0, np.random.default_rng(0))[0]
    assert turned == pytest.approx(-bonus)
    rows = found("half_wrong", "none", process="corridor", steps=1)
    row, control = rows["half_wrong"], rows["none"]
    assert control["sum"]["return"] == control["primary"]["return"] == control["potential"]["return"]
    assert row["sum"]["return"] < row["potential"]["return"] and row["sum"]["interval"] is not None


def test_finite_differences_and_a_process_of_ones_own(tmp_path: Path) -> None:
    mdp = bandit(np.array([1.0, 0.0]))
    given = {"transitions": mdp.move_SAS.tolist(), "reward": mdp.reward_SA.tolist(), "start": [1, 0]}
    given |= {"terminal": [1], "gamma": 0.5, "designs": {"mine": [[0, 2], [0, 0]]}}
    (tmp_path / "mine.json").write_text(json.dumps(given))
    own = {"process": str(tmp_path / "mine.json"), "steps": 2}
    first = found("mine", **own)["mine"]["learned from primary"]
    second = found("mine", hypergradient="finite_differences", **own)["mine"]["learned from primary"]
    assert first["weights"] == pytest.approx(second["weights"], abs=1e-5) and first["weights"][2] < 0.0
    with pytest.raises(UserError, match="designs has mine, no 'other'"):
        found("other", **own)
    with pytest.raises(UserError, match="'worst' is no auxiliary reward of the bandit"):
        found("worst")
    with pytest.raises(UserError, match="no heuristic 'mine', only none, right, half_wrong, wrong"):
        found("mine", process="corridor")
