import math

import pytest

from posttrain.components.corrections.truncated_sequence import TruncatedSequence
from tests.builders import tokens


def test_worked_example() -> None:
    """Ratios 1/2 and 3 make 1.5 for both tokens; 2 and 2 make 4, which is cut to 2."""
    old = [[math.log(0.5), math.log(3.0)], [math.log(2.0), math.log(2.0)]]
    these = tokens(old, old_logp=old, behavior_logp=[[0.0, 0.0], [0.0, 0.0]])
    assert TruncatedSequence()(these).tolist() == pytest.approx([1.5, 1.5, 2.0, 2.0])
    assert TruncatedSequence(cap=10.0)(these).tolist() == pytest.approx([1.5, 1.5, 4.0, 4.0])


def test_tokens_that_nobody_sampled_count_once_and_are_not_in_the_product() -> None:
    old = [[math.log(0.5), -1.0]]
    these = tokens(old, old_logp=old, behavior_logp=[[0.0, math.nan]])
    assert TruncatedSequence()(these).tolist() == pytest.approx([0.5, 1.0])
