"""Scales of classes, by hand."""

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from posttrain.components.advantages.class_balanced import ClassBalanced
from posttrain.components.advantages.group_mean import GroupMean
from posttrain.types import Batch
from tests.builders import batch


def labelled(given: Batch, labels: Sequence[str]) -> Batch:
    own = iter(labels)
    groups = tuple(
        replace(g, trajectories=tuple(replace(t, task=replace(t.task, answer=next(own))) for t in g))
        for g in given.groups
    )
    return replace(given, groups=groups)


def test_the_rarer_class_is_scaled_up_by_the_root_of_the_counts() -> None:
    given = labelled(batch([[1, 0, 0, 0, 0, 0, 0, 0, 1, 1]]), ["+"] + ["-"] * 9)
    balanced, plain = ClassBalanced(), GroupMean()
    state, credit = balanced(balanced.start(), given)
    bare = plain({}, given)[1].advantages
    scale = [float(a[0] / b[0]) for a, b in zip(credit.advantages, bare, strict=True)]
    assert scale[0] / scale[1] == pytest.approx(3.0), "sqrt(9 / 1)"
    assert scale[0] == pytest.approx(sqrt(10 / 2)) and scale[1] == pytest.approx(sqrt(10 / 18))
    assert state["scales"] == pytest.approx({"+": sqrt(5), "-": sqrt(5 / 9)})
    assert credit.metrics["scale/+"] == pytest.approx(sqrt(5))


def test_equal_classes_change_nothing() -> None:
    given = labelled(batch([[1, 0, 1, 0]]), ["+", "+", "-", "-"])
    credit = ClassBalanced()(ClassBalanced().start(), given)[1]
    np.testing.assert_allclose(credit.advantages, GroupMean()({}, given)[1].advantages)


def test_scales_move_slowly_and_a_missing_class_keeps_its_own() -> None:
    balanced = ClassBalanced(momentum=0.75)
    first = labelled(batch([[1, 0, 1, 0]]), ["+", "+", "-", "-"])
    state, _ = balanced(balanced.start(), first)
    assert state["scales"] == {"+": 1.0, "-": 1.0}
    state, _ = balanced(state, labelled(batch([[1, 0, 1, 0, 0]]), ["+", "-", "-", "-", "-"]))
    # now sqrt(5 / 2) and sqrt(5 / 8)
    assert state["scales"] == pytest.approx({"+": 0.75 + 0.25 * sqrt(2.5), "-": 0.75 + 0.25 * sqrt(0.625)})
    kept = state["scales"]["+"]
    state, _ = balanced(state, labelled(batch([[1, 0]]), ["-", "-"]))
    assert state["scales"]["+"] == kept
    # one class is missing, but two are known: sqrt(2 / (2 * 2)) = sqrt(0.5)
    assert state["scales"]["-"] == pytest.approx(0.75 * (0.75 + 0.25 * sqrt(0.625)) + 0.25 * sqrt(0.5))


def test_it_needs_what_it_scales() -> None:
    assert ClassBalanced().needs == GroupMean().needs
