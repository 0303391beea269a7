from dataclasses import replace

from posttrain.components.rewards.episode import Episode
from posttrain.types import Trajectory
from tests.components.rewards.judging import attempt, score_all


def paid(*rewards: float) -> Trajectory:
    made = attempt("x")
    return replace(made, segments=(made.segments[0], *(replace(made.segments[1], reward=r) for r in rewards)))


def test_turns_were_rewarded_already() -> None:
    good, bad = score_all(Episode(solved_at=1.0), paid(0.75, 0.5), paid(0.25))
    assert (good.value, good.status, bad.value, bad.status) == (0.0, "ok", 0.0, "wrong")
    assert good.parts["return"].value == 1.25 and bad.parts["return"].value == 0.25


def test_an_evaluation_takes_the_sum() -> None:
    (score,) = score_all(Episode(value="return"), paid(0.75, -1.0))
    assert score.value == -0.25 and score.status == "wrong"
