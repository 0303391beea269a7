import math
from collections import Counter

import numpy as np
import pytest

from posttrain.components.curricula._diversity import distinct, unlike
from posttrain.components.curricula.variance import Variance
from posttrain.types import Task
from tests.components.curricula.helpers import TableProbe, choose

POOL = [Task(key=f"t{i}", prompt="") for i in range(5)]


def rewards(task: Task) -> list[float]:
    """t0 none of four, t1 one, ... t4 all."""
    right = int(task.key[1:])
    return [1.0] * right + [0.0] * (4 - right)


def ids(text: str) -> np.ndarray:
    return np.array([ord(c) for c in text], np.int64)


def test_distinct_3_grams_over_all_texts() -> None:
    # aaaa: aaa twice; abcd: abc, bcd; so 3 of 4
    assert distinct([ids("aaaa"), ids("abcd")]) == 3 / 4
    assert distinct([ids("abc")] * 4) == 1 / 4, "1/N for equal texts without a repetition"
    assert distinct([ids("ab"), ids("")]) == 0.0


def test_one_minus_self_bleu() -> None:
    assert unlike([ids("abcd")] * 3) == pytest.approx(0.0)
    assert unlike([ids("abcd")]) == 0.0
    # abcd against abce: 3 of 4 letters, 2 of 3 pairs, 1 of 2 triples
    assert unlike([ids("abcd"), ids("abce")]) == pytest.approx(1 - (3 / 4 * 2 / 3 * 1 / 2) ** (1 / 3))
    # nothing in common: .1 of 3, of 2 and of 1
    assert unlike([ids("abc"), ids("xyz")]) == pytest.approx(1 - (0.1 / 3 * 0.1 / 2 * 0.1 / 1) ** (1 / 3))


def test_self_bleu_has_a_brevity_penalty() -> None:
    # ab against abcd: all n-grams match, exp(1 - 4 / 2); abcd against ab: 2/4, 1/3, .1/2, no penalty
    first, second = math.exp(-1.0), (2 / 4 * 1 / 3 * 0.1 / 2) ** (1 / 3)
    assert unlike([ids("ab"), ids("abcd")]) == pytest.approx(1 - (first + second) / 2)
    assert unlike([ids(""), ids("")]) == 0.0


def test_the_sign_is_that_of_diversity() -> None:
    assert unlike([ids("abcd"), ids("efgh")]) > unlike([ids("abcd"), ids("abce")]) > unlike([ids("abcd")] * 2)


@pytest.mark.parametrize("weighted", [1.0, 0.5, 0.0])
def test_draws_follow_the_scores(weighted: float) -> None:
    curriculum, count = Variance(beta=0.0, weighted=weighted), 40_000
    _, picks = choose(curriculum, curriculum.start(), POOL, count, TableProbe(rewards), step=0)
    assert len([pick for pick in picks if pick.reason == "variance"]) == int(weighted * count)
    by_score = np.array([p / 4 * (1 - p / 4) for p in range(5)])
    expected = weighted * by_score / by_score.sum() + (1 - weighted) / 5
    counts = Counter(pick.task.key for pick in picks)
    for i, share in enumerate(expected):
        error = math.sqrt(share * (1 - share) / count) or 1e-12
        assert abs(counts[f"t{i}"] / count - share) < 4 * error


def test_measured_only_in_the_steps_that_are_due() -> None:
    curriculum, probe = Variance(every=3, n=4), TableProbe(rewards)
    state = curriculum.start()
    for step in range(7):
        state, _ = choose(curriculum, state, POOL, 2, probe, step=step)
    assert [asked[2] for asked in probe.asked] == [4] * 3
    assert all(asked[1] == [task.key for task in POOL] for asked in probe.asked)


def test_rescaled_scores_never_draw_the_lowest() -> None:
    score_P = np.array([0.1, 0.2, 0.4])
    assert Variance().shares(score_P) == pytest.approx(score_P / 0.7)
    assert Variance(rescale=True).shares(score_P) == pytest.approx(np.array([0.0, 0.1, 0.3]) / 0.4)


@pytest.mark.parametrize("rescale", [True, False])
def test_where_all_scores_are_0_the_draw_is_uniform(rescale: bool) -> None:
    assert Variance(rescale=rescale).shares(np.zeros(4)).tolist() == [0.25] * 4
    curriculum = Variance(rescale=rescale, beta=0.0, weighted=1.0)
    probe = TableProbe(lambda task: [1.0])  # one rollout each: no variance
    _, picks = choose(curriculum, curriculum.start(), POOL, 1000, probe, step=0)
    assert len({pick.task.key for pick in picks}) == 5


def test_tasks_without_a_scored_rollout_are_counted() -> None:
    curriculum, probe = Variance(beta=0.0), TableProbe(lambda task: [] if task.key == "t2" else rewards(task))
    state, _ = choose(curriculum, curriculum.start(), POOL, 2, probe, step=0)
    assert curriculum.report(state)["unmeasured"] == 1.0 and state["score"][2] == 0.0


def test_the_uniform_half_may_go_through_epochs() -> None:
    curriculum = Variance(uniform="epochs", weighted=0.0)
    state, keys = curriculum.start(), list[str]()
    for step in range(5):
        state, picks = choose(curriculum, state, POOL, 2, TableProbe(rewards), step=step)
        keys += [pick.task.key for pick in picks]
    assert sorted(keys[:5]) == sorted(keys[5:]) == [task.key for task in POOL]
