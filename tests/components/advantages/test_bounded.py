import numpy as np
import pytest

from posttrain.components.advantages.bounded import Bounded
from posttrain.components.advantages.gae import GAE
from posttrain.components.advantages.group_mean import GroupMean
from posttrain.signals import OLD_VALUE
from tests.builders import batch


def test_clamped_then_scaled() -> None:
    member = Bounded(of=GroupMean(scale="none"), clamp=2.0, largest=1.0)
    _, credit = member(member.start(), batch([[9.0, 0.0, 0.0], [1.0, 0.0, 2.0]], length=1))
    # Differences 6, -3, -3 and 0, -1, 1: held within 2, then halved.
    assert np.concatenate(credit.advantages).tolist() == pytest.approx([1.0, -1.0, -1.0, 0.0, -0.5, 0.5])


def test_it_needs_what_the_estimator_needs_and_keeps_its_targets() -> None:
    member = Bounded(of=GAE(whiten=False))
    assert member.needs == {OLD_VALUE}
    given = batch([[1.0]], length=1, signals={OLD_VALUE: [[0.5]]})
    _, credit = member(member.start(), given)
    assert credit.value_targets[0].tolist() == [1.0]
    assert credit.advantages[0].tolist() == pytest.approx([0.1])
