import math

import pytest

from posttrain.components.corrections.dropped import Dropped
from tests.builders import tokens


def test_worked_example() -> None:
    """Ratios of a half, 1, 5 and 5.1: the last one is left out, and not cut to 5."""
    old = [-1.0 + math.log(r) for r in (0.5, 1.0, 4.999, 5.1)]
    factor_T = Dropped()(tokens([old], old_logp=[old], behavior_logp=[[-1.0] * 4]))
    assert factor_T.tolist() == pytest.approx([0.5, 1.0, 4.999, 0.0])


def test_tokens_that_nobody_sampled_count_once() -> None:
    factor_T = Dropped(cap=0.5)(tokens([[-1.0, -1.0]], old_logp=[[-1.0, -1.0]], behavior_logp=[[math.nan, -1.5]]))
    assert factor_T.tolist() == [1.0, 0.0]
