import math

import pytest

from posttrain.components.controllers import Knobs, Measured
from posttrain.components.controllers.quantile import Quantile


def test_bounds_follow_the_quantile() -> None:
    """Where 90 % are within the bound and half should be, it falls by exp(-0.5 x 0.4); where 10 %, it grows as much."""
    first = Knobs(clips=[1.0, 2.0, 3.0], noise=1.5)
    controller = Quantile(quantile=0.5, rate=0.5)
    state = controller.observe(
        controller.start(first, 0), Measured(within=[0.9, 0.1, 0.5], loss=1.0, spent=0.1, cost=0.1)
    )
    found = controller.knobs(state, first)
    assert list(found.clips) == pytest.approx([math.exp(-0.2), 2 * math.exp(0.2), 3.0])
    assert found.noise == 1.5
