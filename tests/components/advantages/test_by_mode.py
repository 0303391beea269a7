"""Two normalisations of one reward, by hand."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.advantages.by_mode import ByMode
from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.rollouts import Spans
from posttrain.types import Batch, Segment
from tests.builders import batch

ON, OFF = "<judge>think on</judge>", "<judge>think off</judge>"


def moded(groups: Sequence[Sequence[tuple[str, float]]], *, tagged: bool = True) -> Batch:
    """Rollouts of four tokens, the first two of which choose."""
    made = batch([[reward for _, reward in group] for group in groups], length=4)
    texts = iter([text for group in groups for text, _ in group])

    def with_text(group):  # type: ignore[no-untyped-def]
        found = []
        for t in group:
            own = replace(t.segments[-1], text=next(texts))
            assert isinstance(own, Segment)
            facts = (Spans(ranges={"judge": ((0, 2),) if tagged else ()}),)
            found.append(replace(t, segments=(*t.segments[:-1], own), facts=facts))
        return replace(group, trajectories=tuple(found))

    return replace(made, groups=tuple(map(with_text, made.groups)))


def credit(these: Batch, **settings: float) -> list[list[float]]:
    return [own.tolist() for own in ByMode(**settings)({}, these)[1].advantages]


def test_hand_worked() -> None:
    """On 1 and 1, off 1 and 0: m = .75, s = .5, m_on = 1, m_off = .5, s_on = 0, s_off = sqrt(.5)."""
    found = credit(moded([[(ON, 1), (ON, 1), (OFF, 1), (OFF, 0)]]))
    choosing = [0.5 + 0.3 * 0.5, 0.5 + 0.3 * 0.5, -0.5 + 0.3 * 0.5, -0.5 - 0.3 * 1.5]
    answering = [0.0, 0.0, 0.5 / np.sqrt(0.5), -0.5 / np.sqrt(0.5)]
    for own, first, second in zip(found, choosing, answering, strict=True):
        assert own == pytest.approx([first, first, second, second], abs=1e-5)


def test_a_correct_answer_in_the_worse_mode_has_credit_for_the_answer_alone() -> None:
    """The reward of modes acts on the tokens of the choice only."""
    correct = credit(moded([[(ON, 1), (ON, 1), (OFF, 1), (OFF, 0)]]), gamma=0.0)[2]
    assert correct[0] < 0 < correct[2]


def test_with_one_mode_it_is_grpo_and_the_choice_has_gamma() -> None:
    these = moded([[(OFF, 1), (OFF, 0), (OFF, 0)], [(ON, 0), (ON, 1)]])
    _, plain = GroupMean()({}, these)
    for own, before in zip(credit(these), plain.advantages, strict=True):
        assert own[2:] == pytest.approx(before[2:].tolist())
        assert own[:2] == pytest.approx((0.3 * before[:2]).tolist())


def test_equal_rewards_and_single_rollouts_are_0() -> None:
    assert credit(moded([[(ON, 1), (OFF, 1)], [(ON, 1)]])) == [[0.0] * 4] * 3


def test_without_the_tags_all_tokens_answer_and_it_counts_as_thinking() -> None:
    these = moded([[("#### 4", 1), ("#### 5", 0)]], tagged=False)
    assert credit(these)[0] == pytest.approx([np.sqrt(0.5)] * 4, abs=1e-5)
    _, found = ByMode()({}, these)
    assert found.metrics == {"thinking": 1.0, "tokens_on": 4.0}


def test_groups_are_apart_and_lengths_are_by_mode() -> None:
    these = moded([[(ON, 1), (OFF, 0)], [(ON, 0), (OFF, 1)]])
    own = credit(these, gamma=0.0)
    assert own[0][0] == pytest.approx(-own[2][0]) and own[0][0] > 0
    assert ByMode()({}, these)[1].metrics == {"thinking": 0.5, "tokens_on": 4.0, "tokens_off": 4.0}
