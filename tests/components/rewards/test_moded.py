"""The form, and the bonus for not thinking where it is no worse."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.moded import Moded
from posttrain.types import Group, Score, Segment, Task, Trajectory

ON, OFF = "<judge>easy, think on</judge><think>2+2={0}</think>\n#### {0}", "<judge>easy, think off</judge>\n#### {0}"


def scores(texts: Sequence[str], answer: str | None = "4", **settings: float) -> Sequence[Score]:
    task = Task(key="k", prompt="2+2", answer=answer, domain="easy")
    made = [
        Trajectory(
            task=task,
            segments=(Segment(actor="policy", token_ids=np.arange(len(text)), trained=True, text=text),),
            stop_reason="stop",
        )
        for text in texts
    ]
    reward = Moded(correct=Match(), **settings)
    return asyncio.run(reward.score(Group(trajectories=tuple(made)), RewardContext()))


def values(texts: Sequence[str], **settings: float) -> list[float]:
    return [score.value for score in scores(texts, **settings)]


def test_equal_modes_tip_to_not_thinking() -> None:
    """Means 1.2 and 1.2, gap 0: b = 0.012 for each that does not think."""
    assert values([ON.format(4), OFF.format(4), OFF.format(4)]) == pytest.approx([1.2, 1.212, 1.212])
    assert values([ON.format(4), OFF.format(4)], omega=0.0) == pytest.approx([1.2, 1.2])


def test_the_gap_may_be_up_to_b_and_not_below_0() -> None:
    """On 1.2, off (1.2 + 0.2) / 2 = 0.7: a gap of 0.5, allowed from omega 0.5 / 1.2 on; with off ahead, none."""
    texts = [ON.format(4), OFF.format(4), OFF.format(5)]
    assert values(texts, omega=0.4) == pytest.approx([1.2, 1.2, 0.2])
    assert values(texts, omega=0.5 / 1.2) == pytest.approx([1.2, 1.7, 0.7])
    assert values([ON.format(5), ON.format(4), OFF.format(4)]) == pytest.approx([0.2, 1.2, 1.2])


def test_one_mode_has_no_bonus() -> None:
    assert values([OFF.format(4), OFF.format(4)]) == pytest.approx([1.2, 1.2])
    assert values([ON.format(4)]) == pytest.approx([1.2])
    assert values([OFF.format(4), "#### 4"]) == pytest.approx([1.2, 1.0]), "no choice is thinking: off is ahead"


def test_what_is_recorded() -> None:
    on, off = scores([ON.format(4), OFF.format(4)])
    assert {name: part.value for name, part in on.parts.items()} == {
        "correct": 1.0,
        "form": 1.0,
        "thinks": 1.0,
        "bonus": 0.0,
        "thinks_easy": 1.0,
        "tokens_on": float(len(ON.format(4))),
    }
    assert off.parts["tokens_off"].value == len(OFF.format(4)) and off.parts["bonus"].value == pytest.approx(0.012)
    assert (on.status, off.status) == ("ok", "ok")


def test_what_could_not_be_scored_is_an_error_and_counts_in_no_mode() -> None:
    assert {score.status for score in scores([ON.format(4), OFF.format(4)], answer=None)} == {"error"}
