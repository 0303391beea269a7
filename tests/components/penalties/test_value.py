"""The value loss in the policy's own loss."""

import math

import pytest

from posttrain.components.penalties.value import Value
from posttrain.signals import VALUE
from tests.builders import gradients, tokens


def test_half_the_larger_of_the_squared_errors() -> None:
    """Values 0.5 and 1, old 0.2, clip 0.2, targets 1: both are held at 0.4, where the error is 0.36."""
    these = tokens(
        [[-1.0, -1.0, -1.0]], value=[[0.5, 1.0, 9.0]], old_value=[[0.2, 0.2, 0.2]], value_target=[[1.0, 1.0, math.nan]]
    )
    term = Value().in_loss(these)
    assert term is not None
    assert term.loss_T[:2].tolist() == pytest.approx([2.5 * 0.36, 2.5 * 0.36])
    plain = Value(coefficient=1.0, clip=None).in_loss(these)
    assert plain is not None
    assert plain.loss_T.tolist() == pytest.approx([0.125, 0.0, 0.0])
    assert gradients(plain.loss_T.sum(), these)[VALUE].tolist() == pytest.approx([-0.5, 0.0, 0.0])
