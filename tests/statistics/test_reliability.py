import numpy as np
import pytest

from posttrain.statistics.reliability import RULES, chances, reliability


def test_chances_of_each_rule() -> None:
    rewards = [0.3, 0.9, -1.0, 0.5]
    assert chances(rewards, "none").tolist() == [0.25] * 4
    assert chances(rewards, "best").tolist() == [0, 1, 0, 0]
    assert chances(rewards, "best_random").tolist() == pytest.approx([1 / 6, 1 / 2, 1 / 6, 1 / 6])
    assert chances(rewards, "best_worst").tolist() == [0, 0.5, 0.5, 0]


@pytest.mark.parametrize("rule", RULES)
def test_one_rollout_is_drawn_for_certain(rule: str) -> None:
    assert chances([7.0], rule).tolist() == [1.0]  # type: ignore[arg-type]
    assert chances([1.0, 1.0, 1.0], rule).sum() == pytest.approx(1)  # type: ignore[arg-type]


def test_of_equals_the_first_is_the_best_and_the_last_the_worst() -> None:
    assert chances([1.0, 1.0, 1.0], "best_worst").tolist() == [0.5, 0, 0.5]


def test_r_squared_by_hand() -> None:
    """Rewards 0 1 2, scores 0 0 2. All: covariance 2/3, variances 2/3 and 8/9: 3/4. Best and worst: two points.

    Best and random, weights 1/4 1/4 1/2 about means 5/4 and 1: covariance 3/4, variances 11/16 and 1: 9/11.
    """
    rewards, scores = [[0.0, 1.0, 2.0]], [[0.0, 0.0, 2.0]]
    assert reliability(rewards, scores, "none", None) == pytest.approx(3 / 4)
    assert reliability(rewards, scores, "best_random", None) == pytest.approx(9 / 11)
    assert reliability(rewards, scores, "best_worst", None) == pytest.approx(1.0)
    assert reliability(rewards, scores, "best", None) is None, "a single point has no line"


def test_bins_by_hand() -> None:
    """Six rollouts in three bins: means 0.5 2.5 4.5 and 0 2 1; R^2 = 2^2 / (8 * 2) = 1/4. Order does not matter."""
    rewards, scores = [[5.0, 0.0, 2.0], [1.0, 3.0, 4.0]], [[0.0, -1.0, 1.0], [1.0, 3.0, 2.0]]
    assert reliability(rewards, scores, "none", 3) == pytest.approx(1 / 4)
    assert reliability(rewards[::-1], scores[::-1], "none", 3) == pytest.approx(1 / 4)


def test_a_rollout_may_lie_across_a_border() -> None:
    """Three rollouts in two bins: the middle one has a half in either. Two points make a line, where they differ."""
    assert reliability([[0.0, 1.0, 2.0]], [[1.0, 5.0, 0.0]], "none", 2) == pytest.approx(1.0)
    assert reliability([[0.0, 1.0, 2.0]], [[0.0, 5.0, 0.0]], "none", 2) is None, "both means are 5/3"


def test_what_does_not_vary_is_not_defined() -> None:
    assert reliability([], [], "none") is None
    assert reliability([[1.0, 1.0]], [[0.0, 1.0]], "none", None) is None
    assert reliability([[0.0, 1.0]], [[1.0, 1.0]], "none", None) is None


def drawn(size: float, *, even: bool = False) -> dict[str, float]:
    """R^2 by rule for true scores in [0, 1] and errors that are large in the middle, or the same everywhere."""
    rng = np.random.default_rng(0)
    true = rng.random((2000, 5))
    spread = np.full_like(true, 0.7) if even else 4 * true * (1 - true)
    rewards = true + size * spread * rng.normal(size=true.shape)
    found = {rule: reliability(list(rewards), list(true), rule, None) for rule in RULES}
    return {rule: value for rule, value in found.items() if value is not None}


def test_rules_rank_as_they_should_where_the_reward_errs_in_the_middle() -> None:
    found = drawn(0.25)
    assert found["best_worst"] > found["none"] + 0.03, "a reward is most often right at its ends"
    assert found["best"] < min(found["none"], found["best_random"]) - 0.2


def test_a_reward_that_errs_too_much_is_not_repaired_by_keeping_its_ends() -> None:
    """With errors as large as the scale the ends of the reward are errors too."""
    found = drawn(1.0)
    assert found["best_worst"] < found["none"] + 0.01
