"""Errors of a verifier: how often, for whom, only in training."""

from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.rewards import RewardContext, failure
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.noisy import Noisy
from posttrain.types import Score, Task
from tests.components.rewards.judging import attempt, score_all

TRAINING = RewardContext(learning=True, seed=3, step=7)


def outcomes(reward: Noisy, tasks: int, *texts: str, context: RewardContext = TRAINING) -> list[list[Score]]:
    """For each of many tasks, whose answer is 1, the scores of these completions."""
    asked = [Task(key=f"task {n}", prompt=f"What is question {n}?", answer="1") for n in range(tasks)]
    return [
        score_all(reward, *(replace(attempt(text, task), sample=i) for i, text in enumerate(texts)), context=context)
        for task in asked
    ]


@pytest.mark.slow
def test_the_share_of_flips_is_within_its_interval_and_the_mean_is_as_derived() -> None:
    """E[r'] = (1 - 2p) r + p: with p = 0.3, 0.7 for a correct rollout and 0.3 for a wrong one; 4 stds of 2,000."""
    found = outcomes(Noisy(of=Match(), false_positive=0.3, false_negative=0.3, per="rollout"), 2000, "1", "2")
    right, wrong = (np.array([scores[i].value for scores in found]) for i in range(2))
    bound = 4 * (0.3 * 0.7 / 2000) ** 0.5
    assert abs(right.mean() - 0.7) < bound and abs(wrong.mean() - 0.3) < bound
    flipped = np.array([[s.parts["flipped"].value for s in scores] for scores in found])
    assert (flipped[:, 0] == 1 - right).all() and (flipped[:, 1] == wrong).all()
    assert abs(np.corrcoef(flipped.T)[0, 1]) < 0.1, "each rollout has a draw of its own"


def test_a_draw_for_a_task_flips_all_its_rollouts() -> None:
    found = outcomes(Noisy(of=Match(), false_positive=0.5, false_negative=0.5), 200, "1", "2", "1")
    values = {tuple(score.value for score in scores) for scores in found}
    assert values == {(1.0, 0.0, 1.0), (0.0, 1.0, 0.0)}


def test_false_positives_and_negatives_are_apart() -> None:
    only_missed = outcomes(Noisy(of=Match(), false_positive=0.0, false_negative=1.0, wrong=-1.0), 5, "1", "2")
    assert {tuple((s.value, s.status) for s in scores) for scores in only_missed} == {((-1.0, "wrong"), (0.0, "wrong"))}
    only_found = outcomes(Noisy(of=Match(), false_positive=1.0, false_negative=0.0, right=2.0), 5, "1", "2")
    assert {tuple((s.value, s.status) for s in scores) for scores in only_found} == {((1.0, "ok"), (2.0, "ok"))}
    assert only_found[0][1].parts["of"].value == 0.0 and "flipped" in only_found[0][1].explanation


def test_only_training_has_errors() -> None:
    reward = Noisy(of=Match(), false_positive=1.0, false_negative=1.0)
    assert [s.value for s in outcomes(reward, 1, "1", "2", context=RewardContext())[0]] == [1.0, 0.0]
    assert [s.value for s in outcomes(reward, 1, "1", "2")[0]] == [0.0, 1.0]


def test_draws_are_functions_of_seed_step_task_and_rollout() -> None:
    reward = Noisy(of=Match(), false_positive=0.5, false_negative=0.5, per="rollout")
    texts = ("1",) * 8

    def values(context: RewardContext) -> list[list[float]]:
        return [[s.value for s in scores] for scores in outcomes(reward, 20, *texts, context=context)]

    first = values(TRAINING)
    assert values(TRAINING) == first and first[0] != first[1]
    assert values(replace(TRAINING, step=8)) != first and values(replace(TRAINING, seed=4)) != first


def test_a_rollout_without_an_answer_may_be_spared_and_an_error_stays_one() -> None:
    reward = Noisy(of=Match(), false_positive=1.0, spare_unanswered=True)
    assert [s.value for s in outcomes(reward, 1, "", "2")[0]] == [0.0, 1.0]
    assert [s.value for s in outcomes(replace(reward, spare_unanswered=False), 1, "", "2")[0]] == [1.0, 1.0]
    (failed,) = score_all(reward, attempt("1", Task(key="bare", prompt="?")), context=TRAINING)
    assert (
        failed.status == "error"
        and failed.explanation == score_all(Match(), attempt("1", Task(key="bare", prompt="?")))[0].explanation
    )
    assert failure("why").status == "error"


def test_flipping_a_group_negates_its_normalized_advantages() -> None:
    """The fact behind the sheet's (1 - 2p): the same group, flipped, has the opposite advantages."""
    from posttrain.components.advantages.group_mean import GroupMean
    from tests.builders import batch

    plain, flipped = ([[1.0, 0.0, 0.0, 1.0, 0.0]], [[0.0, 1.0, 1.0, 0.0, 1.0]])
    (_, one), (_, other) = GroupMean()({}, batch(plain)), GroupMean()({}, batch(flipped))
    for a, b in zip(one.advantages, other.advantages, strict=True):
        assert np.allclose(a, -b, atol=1e-6) and abs(a).max() > 0.5
