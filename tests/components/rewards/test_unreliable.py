import asyncio

import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.unreliable import Unreliable
from posttrain.errors import UserError
from posttrain.recipes.overrides import override
from posttrain.settings.arithmetic import arithmetic
from tests.builders import group


def test_standard_deviations_by_hand() -> None:
    """On a scale from -1 to 1: 0 at the ends, `size` at 0, three quarters of it at -0.5; evenly, sqrt(8/15) of it."""
    reward = Unreliable(of=Match(), size=2.0, low=-1.0)
    assert [reward.std(x) for x in (-1, -0.5, 0, 1, 7)] == pytest.approx([0, 1.5, 2, 0, 0])
    even = Unreliable(of=Match(), size=2.0, even=True)
    assert [even.std(x) for x in (0.0, 0.3, 1.0)] == pytest.approx([1.4606] * 3, abs=1e-4)


def test_errors_are_of_the_answer_and_in_training_only() -> None:
    reward = Unreliable(of=Match(right=0.5, wrong=0.5), size=1.0)
    these = group([0.0, 0.0])
    plain = asyncio.run(reward.score(these, RewardContext()))
    assert [score.value for score in plain] == [0.5, 0.5]
    first, second = asyncio.run(reward.score(these, RewardContext(learning=True)))
    assert first.value == second.value != 0.5, "equal answers have equal errors"
    assert first.parts["true"].value == 0.5 and first.status == plain[0].status


def test_a_scale_without_length_is_refused() -> None:
    with pytest.raises(UserError, match="low must be below high"):
        override(arithmetic(), ["reward={kind: unreliable, of: match, low: 1}"])
