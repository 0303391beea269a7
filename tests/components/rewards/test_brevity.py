"""The length reward within a group."""

from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rewards.brevity import Brevity
from posttrain.components.rewards.io_tests import IOTests
from posttrain.components.rewards.judge import Judge
from posttrain.components.rewards.match import Match
from posttrain.types import Segment, Task
from tests.components.rewards.judging import attempt, score_all

FULL = Brevity(correct=Match())


def said(length: int, answer: str = "42") -> str:
    """An answer of `length` words, each a token here: the number alone, or words, a sign for the end and the number."""
    return " ".join(["so"] * (length - 2)) + f"\n#### {answer}" if length > 1 else answer


def values(reward: Reward, *texts: str, progress: float = 0.0) -> list[float]:
    return [s.value for s in score_all(reward, *map(attempt, texts), context=RewardContext(progress=progress))]


def test_right_answers_from_shortest_to_longest() -> None:
    """Lengths 1, 2, 4 and 5: 0.5 - (length - 1) / 4."""
    assert values(FULL, *(said(n) for n in (1, 2, 4, 5))) == pytest.approx([1.5, 1.25, 0.75, 0.5])


def test_wrong_answers_are_never_rewarded_for_being_short_and_lose_by_being_long() -> None:
    """The shortest and longest of all count, wrong ones too: lengths 1, 3, 4 and 5, of which 1 and 4 are wrong."""
    texts = (said(1, "41"), said(3), said(4, "41"), said(5))
    assert values(FULL, *texts) == pytest.approx([0.0, 1.0, -0.25, 0.5])


def test_equally_long_answers_and_one_alone_get_nothing() -> None:
    assert values(FULL, said(3), said(3, "41"), said(3)) == [1.0, 0.0, 1.0]
    assert values(FULL, said(9)) == [1.0]


def test_the_weight_scales_it_and_what_is_scored_stays() -> None:
    scores = score_all(Brevity(correct=Match(right=2.0, wrong=-2.0), weight=0.2), attempt(said(1)), attempt(said(3)))
    assert [s.value for s in scores] == pytest.approx([2.1, 1.9])
    assert [(s.status, s.answer) for s in scores] == [("ok", "42")] * 2
    assert {name: part.value for name, part in scores[1].parts.items()} == {"correct": 2.0, "brevity": -0.5}
    assert scores[1].explanation.endswith("; 3 tokens among 1 to 3: -0.5, weight 0.2")


@pytest.mark.parametrize(("progress", "paid"), [(0.0, 1.0), (0.29, 1.0), (0.3, 1.5), (1.0, 1.5)])
def test_it_counts_from_its_start_on_and_is_recorded_before(progress: float, paid: float) -> None:
    late = Brevity(correct=Match(), begin=0.3)
    assert values(late, said(1), said(2), progress=progress)[0] == paid
    context = RewardContext(progress=progress)
    assert score_all(late, attempt(said(1)), attempt(said(2)), context=context)[0].parts["brevity"].value == 0.5


def test_what_the_environment_writes_is_not_long() -> None:
    """Two and four tokens of the policy's own, and forty of the environment's after the two."""
    short = attempt(said(2))
    world = Segment(actor="environment", token_ids=np.arange(40))
    scores = score_all(FULL, replace(short, segments=(*short.segments, world)), attempt(said(4)))
    assert [s.value for s in scores] == [1.5, 0.5]


def test_a_failed_score_stays_one_and_its_length_counts() -> None:
    bare = attempt(said(9), Task(key="bare", prompt="?"))
    scores = score_all(FULL, attempt(said(1)), attempt(said(5)), bare)
    assert [s.status for s in scores] == ["ok", "ok", "error"]
    assert [s.value for s in scores[:2]] == pytest.approx([1.5, 1.0])


def test_it_uses_and_runs_what_its_judge_does() -> None:
    assert Brevity(correct=IOTests()).runs == IOTests().runs != ""
    assert Brevity(correct=Judge()).roles == Judge().roles == {"judge"}
