"""Outcome and steps in one advantage, by hand."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, sqrt

import numpy as np
import pytest

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.advantages.tango import Tango
from posttrain.components.rollouts import Verification
from posttrain.types import Batch
from tests.builders import batch


def verified(given: Batch, facts: Sequence[Verification | None], progress: float = 0.0) -> Batch:
    """The batch with what a rollout states of each trajectory."""
    said = iter(facts)
    groups = tuple(
        replace(group, trajectories=tuple(replace(t, facts=tuple(filter(None, [next(said)]))) for t in group))
        for group in given.groups
    )
    return replace(given, groups=groups, progress=progress)


def said(*verdicts: float, ends: Sequence[int]) -> Verification:
    return Verification(verdicts=verdicts, step_ends=tuple(ends))


def credit(tango: Tango, given: Batch) -> list[list[float]]:
    return [a.tolist() for a in tango(tango.start(), given)[1].advantages]


def test_a_token_gets_the_steps_from_its_own_on() -> None:
    """Verdicts 1, -1 and 1, 1: mean 0.5, squares 0.25 * 3 + 2.25 = 3, std sqrt(3 / 3) = 1."""
    given = verified(batch([[1, 1]], length=4), [said(1, -1, ends=[1, 4]), said(1, 1, ends=[3, 4])])
    # normalised: 0.5, -1.5 and 0.5, 0.5; tail sums: -1, -1.5 and 1, 0.5; outcomes are equal
    assert credit(Tango(alpha=1.0), given)[0] == pytest.approx([-1, -1.5, -1.5, -1.5], abs=1e-5)
    assert credit(Tango(alpha=1.0), given)[1] == pytest.approx([1, 1, 1, 0.5], abs=1e-5)
    half = credit(Tango(alpha=0.5), given)
    assert half[0] == pytest.approx([-0.5, -0.75, -0.75, -0.75], abs=1e-5), "equal outcomes leave the steps alone"


def test_both_parts_are_normalised_by_themselves_and_mixed() -> None:
    """Outcomes 1, 0: +-0.5 / sqrt(0.5); verdicts 1 and -1, one step each: +-1 / sqrt(2): the same numbers."""
    given = verified(batch([[1, 0]]), [said(-1, ends=[2]), said(1, ends=[2])])
    unit = 1 / sqrt(2)
    found = credit(Tango(alpha=0.25), given)
    assert found[0] == pytest.approx([0.75 * unit - 0.25 * unit] * 2, abs=1e-5)
    assert found[1] == pytest.approx([-0.75 * unit + 0.25 * unit] * 2, abs=1e-5)


def test_groups_do_not_mix() -> None:
    alone = verified(batch([[1, 0]]), [said(1, -1, ends=[1, 2]), said(-1, -1, ends=[1, 2])])
    both = verified(
        batch([[1, 0], [0, 0]]), [*(t.fact(Verification) for t in alone.trajectories), said(1, ends=[2]), None]
    )
    assert credit(Tango(), both)[:2] == credit(Tango(), alone)


def test_without_verdicts_there_is_no_second_part() -> None:
    given = verified(batch([[1, 0, 0]]), [said(1, ends=[2]), None, said(ends=[2])])
    bare = GroupMean()({}, given)[1].advantages
    half = credit(Tango(alpha=0.5), given)
    for own, plain in zip(half[1:], bare[1:], strict=True):
        assert own == pytest.approx(plain / 2)
    state, found = Tango(alpha=0.5)({}, given)
    assert found.metrics["verified"] == pytest.approx(1 / 3)
    assert state == {}


def test_equal_verdicts_say_nothing() -> None:
    given = verified(batch([[1, 1]]), [said(1, 1, ends=[1, 2]), said(1, ends=[2])])
    assert np.allclose(credit(Tango(alpha=1.0), given), 0.0)


def test_the_share_of_the_steps_decays_exponentially() -> None:
    given = verified(batch([[1, 0]]), [{}, {}], progress=0.5)
    _, found = Tango(alpha=0.4, decay=2.0)({}, given)
    assert found.metrics["alpha"] == pytest.approx(0.4 * exp(-1))
    grpo = GroupMean()({}, given)[1].advantages
    np.testing.assert_allclose(Tango(alpha=0.0)({}, given)[1].advantages, grpo)
