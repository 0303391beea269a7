"""The learner with known difficulties: its gradient, its best tasks, and what curricula lose against them."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

from posttrain.cli._component import part_named
from posttrain.components.curricula.bandit import Bandit
from posttrain.components.curricula.uniform import Uniform
from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics._simulated import POOLS, Learner, expected_size
from posttrain.components.diagnostics.curriculum import CurriculumChoices
from posttrain.errors import UserError


def learner(world: str = "one_skill", *, size: int = 60, divide: Any = "all", seed: int = 0) -> Learner:
    pool = POOLS[world](size, np.random.default_rng(seed))
    return Learner(pool=pool, n=8, rate=0.25, divide=divide, rng=np.random.default_rng(seed))


def found(*names: str, **settings: Any) -> dict[str, Any]:
    def unused(*_: Any) -> Any:
        raise AssertionError("no model is loaded")

    subjects = [Subject(name=n, load=unused, serve=unused, component=partial(part_named, name=n)) for n in names]
    given = {"tasks": 96, "seeds": 3, "steps": 40, **settings}
    return dict(CurriculumChoices(**given).examine(*subjects).values["found"])


def test_expected_size_by_hand() -> None:
    # n = 2: sqrt(s (1 - s)) is 1/2 where one of two is correct, which has probability 2 p (1 - p)
    assert expected_size(np.array([0.0, 0.25, 0.5, 1.0]), 2) == pytest.approx([0.0, 0.1875, 0.25, 0.0])


def test_the_step_is_the_exact_gradient_of_group_normalized_rewards() -> None:
    """Mean of A d log p / d theta over a group with two of eight correct; A divides by the population's std."""
    of = learner()
    p, s = 0.3, 2 / 8
    reward_N = np.array([1.0] * 2 + [0.0] * 6)
    slope_N = reward_N - p  # of the log-likelihood of a Bernoulli in its logit
    gradient = float(((reward_N - s) / reward_N.std() * slope_N).mean())
    of.learn(np.array([0]), np.array([s]))
    assert of.theta_K[0] == pytest.approx(0.25 * gradient) == pytest.approx(0.25 * math.sqrt(s * (1 - s)))


@pytest.mark.parametrize(("divide", "count"), [("all", 4), ("spread", 2)])
def test_what_the_step_is_divided_by(divide: str, count: int) -> None:
    of = learner(divide=divide)
    of.learn(np.arange(4), np.array([0.5, 1.0, 0.0, 0.5]))
    assert of.theta_K[0] == pytest.approx(0.25 * (0.5 + 0.5) / count)


def test_with_one_skill_the_largest_gains_lead_to_the_highest_accuracy() -> None:
    """No other choice of two tasks in each of two steps has a higher expected skill, checked over all of them."""
    of = learner(size=8, seed=3)
    start = of.pool.difficulty_P

    def gain(theta: float, pair: tuple[int, int]) -> float:
        p_P = 1 / (1 + np.exp(start - theta))
        return float(expected_size(p_P, 8)[list(pair)].mean())

    pairs = [(i, j) for i in range(8) for j in range(i)]
    ends = {}
    for first in pairs:
        theta = 0.25 * gain(0.0, first)
        for second in pairs:
            ends[first, second] = theta + 0.25 * gain(theta, second)
    greedy_first = max(pairs, key=lambda pair: gain(0.0, pair))
    theta = 0.25 * gain(0.0, greedy_first)
    greedy = theta + 0.25 * max(gain(theta, pair) for pair in pairs)
    assert greedy == pytest.approx(max(ends.values()))


def test_transfer_and_what_cannot_be_learned() -> None:
    of = learner("domains")
    of.learn(np.array([0]), np.array([0.5]))
    assert of.theta_K.tolist() == pytest.approx([0.125, 0.03125, 0.03125, 0.03125, 0.03125, 0.03125])
    before = of.rate_P
    of.learn(np.array([45]), np.array([0.5]))
    assert of.pool.tasks[45].domain == "coin flip" and of.rate_P.tolist() == before.tolist()
    assert of.gain_P[40:].max() == 0.0


def test_the_oracle_loses_nothing_and_every_curriculum_loses_more() -> None:
    rows = found("uniform", "{kind: bandit, temperature: 0.2}", "pcl")
    assert rows["oracle"]["regret"]["mean"] == 0.0
    for name in ("{kind: bandit, temperature: 0.2}", "pcl"):
        assert 0.0 < rows[name]["regret"]["mean"] < rows["uniform"]["regret"]["mean"]
        assert rows["oracle"]["spread"]["mean"] > rows[name]["spread"]["mean"] > rows["uniform"]["spread"]["mean"]
    assert rows["uniform"]["probes"]["mean"] == 0.0
    assert rows["oversampled"]["probes"]["mean"] == pytest.approx(1 - 96 / (8 * 16) / 6, abs=0.1)


@pytest.mark.slow
def test_a_value_model_with_nothing_to_predict_by_is_no_better_than_uniform() -> None:
    settings = {"tasks": 256, "seeds": 6, "steps": 40}
    shuffled, uniform = found("pcl", shuffled=True, **settings)["pcl"], found("uniform", **settings)["uniform"]
    assert shuffled["regret"]["mean"] > uniform["regret"]["mean"] - 3 * uniform["regret"]["standard_error"]
    assert found("pcl", **settings)["pcl"]["regret"]["mean"] < 0.8 * uniform["regret"]["mean"]


@pytest.mark.slow
def test_angles_that_follow_difficulty_move_with_the_learner_and_a_random_order_does_not() -> None:
    settings = {"tasks": 256, "seeds": 4, "steps": 40}
    uniform = found("uniform", **settings)["uniform"]["regret"]
    assert found("angles", **settings)["angles"]["regret"]["mean"] < 0.7 * uniform["mean"]
    shuffled = found("angles", shuffled=True, **settings)["angles"]["regret"]["mean"]
    assert shuffled > uniform["mean"] - 3 * uniform["standard_error"]


def test_rollouts_of_probes_count() -> None:
    rows = found("vas", steps=36)
    # 96 tasks x 8 rollouts in steps 0 and 35, beside 36 x 16 x 8
    assert rows["vas"]["probes"]["mean"] == pytest.approx(2 * 96 / (2 * 96 + 36 * 16))


@pytest.mark.slow
def test_a_coin_flip_takes_a_bandit_in() -> None:
    rows = found("{kind: bandit, temperature: 0.2}", "uniform", world="domains", steps=80, tasks=96)
    assert rows["uniform"]["shares"]["coin flip"] == pytest.approx(1 / 6, abs=0.02)
    assert rows["{kind: bandit, temperature: 0.2}"]["shares"]["coin flip"] > 2 / 6
    assert rows["oracle"]["shares"].get("coin flip", 0.0) == 0.0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("unifrom", "'unifrom' is no curriculum .did you mean 'uniform'"),
        ("sft", "the recipe 'sft' has no curriculum"),
        ("{temperature: 1}", "write {kind: KIND, setting: value}"),
    ],
)
def test_names_that_are_no_curriculum(text: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        found(text)


def test_a_name_is_a_kind_settings_or_a_recipe() -> None:
    from posttrain.components.curricula import Curriculum

    assert part_named(Curriculum, "uniform") == Uniform()
    assert part_named(Curriculum, "{kind: bandit, temperature: 0.2}") == Bandit(temperature=0.2)
    assert part_named(Curriculum, "sec") == Bandit(rate=0.5, temperature=0.4)
