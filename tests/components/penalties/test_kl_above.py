"""Only tokens that became likelier than under the reference cost."""

import numpy as np

from posttrain.components.penalties.kl_above import KLAbove
from posttrain.signals import logp_of
from tests.builders import trajectory


def test_worked_example() -> None:
    """By hand: .2 times the differences .5, -1 and 0, of which the negative one is held at 0."""
    penalty = KLAbove(coefficient=0.2, role="teacher")
    assert penalty.needs == {logp_of("teacher")}
    signals = {logp_of("teacher"): np.array([-1.5, -1.0, -3.0], np.float32)}
    amount_T = penalty.in_reward(trajectory(logp=[-1.0, -2.0, -3.0]), signals)
    assert amount_T is not None
    np.testing.assert_allclose(amount_T, [-0.1, 0.0, 0.0], atol=1e-7)
    assert penalty.in_reward(trajectory(logp=[-1.0]), {logp_of("teacher"): np.array([np.nan], np.float32)}) == [0.0]
