import math

import pytest

from posttrain.components.curricula.predicted import Predicted
from posttrain.errors import UserError
from posttrain.types import Task
from tests.components.curricula.helpers import TableProbe, choose, failed, group

POOL = [Task(key=f"t{i}", prompt="") for i in range(40)]


def rate(task: Task) -> float:
    return (int(task.key[1:]) + 0.5) / 40


def logit(task: Task) -> float:
    return math.log(rate(task) / (1 - rate(task)))


def test_the_nearest_of_four_times_as_many_are_taken() -> None:
    curriculum, probe = Predicted(), TableProbe(scores=logit)
    _, picks = choose(curriculum, curriculum.start(), POOL, 4, probe, step=0)
    [(_, candidates, role)] = probe.asked
    assert role == "difficulty" and len(set(candidates)) == 16
    distances = sorted(abs((int(key[1:]) + 0.5) / 40 - 0.5) for key in candidates)
    assert [abs(rate(pick.task) - 0.5) for pick in picks] == pytest.approx(distances[:4])
    assert [pick.weight for pick in picks] == pytest.approx([rate(pick.task) for pick in picks], abs=1e-6)


def test_candidates_differ_from_step_to_step_and_after_a_refill() -> None:
    curriculum, probe = Predicted(), TableProbe(scores=logit)
    for step in range(3):
        choose(curriculum, curriculum.start(), POOL, 4, probe, step=step)
    assert len({tuple(asked[1]) for asked in probe.asked}) == 3
    first, again = (curriculum.select({}, POOL, 4, seed=0, step=0, refill=refill)[1] for refill in (0, 1))
    assert first != again and all(pick.reason == "uniform" for pick in first), "without a look it is uniform"


def test_scores_may_be_taken_as_they_are() -> None:
    curriculum, probe = Predicted(squash=False, target=20.0), TableProbe(scores=lambda task: float(task.key[1:]))
    _, picks = choose(curriculum, curriculum.start(), POOL, 10, probe, step=0)
    # all 40 are candidates; of 10 and 30, at the same distance, neither is among the ten nearest
    assert all(15 <= int(pick.task.key[1:]) <= 25 for pick in picks)


def test_the_model_learns_the_mean_reward_of_what_was_chosen() -> None:
    curriculum = Predicted()
    state, picks = choose(curriculum, curriculum.start(), POOL, 3, TableProbe(scores=logit), step=0)
    a, b, c = (pick.task for pick in picks)
    groups = [group(a, [1, 0, 0, 0]), group(b, [1, 1]), failed(c)]
    state = curriculum.observe(state, groups)
    assert [(target.task.key, target.value) for target in curriculum.targets(state, groups)] == [
        (a.key, 0.25),
        (b.key, 1.0),
    ]
    report = curriculum.report(state)
    assert report["bias"] == pytest.approx((rate(a) + rate(b) - 1.25) / 2, abs=1e-5)
    assert report["candidates"] != report["predicted"], "all candidates, and those that were chosen"


def test_without_more_tasks_than_a_step_takes_there_is_no_choice() -> None:
    with pytest.raises(UserError, match=r"40 tasks, of which a step takes 40: no candidates are left"):
        Predicted().check(POOL, 40)
    Predicted().check(POOL, 39)
