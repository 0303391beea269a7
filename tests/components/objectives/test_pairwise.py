import math
from dataclasses import replace
from typing import Literal

import pytest
import torch

from posttrain.components.objectives.pairwise import Pairwise
from posttrain.components.preferences.dpo import DPO
from posttrain.signals import OLD_LOGP, logp_of
from posttrain.types import Tokens
from tests.builders import gradients, numerical_gradient, random_tokens, tokens

LOSS = DPO(beta=0.5, reference=None)


def log_loss(margin: float) -> float:
    return math.log1p(math.exp(-0.5 * margin))


def of_three(advantages: list[float], group_N: list[int]) -> Tokens:
    """Whole completions of log-probability -3, -1 and -2."""
    return tokens(
        [[-1.0, -2.0], [-1.0], [-0.5, -0.5, -1.0]],
        advantage=[[a] * n for a, n in zip(advantages, (2, 1, 3), strict=True)],
        group_N=group_N,
    )


def test_a_pair_by_hand() -> None:
    """Both completions of a pair carry its loss; the third has nobody to be compared with."""
    result = Pairwise(loss=LOSS)(of_three([1.0, 5.0, -1.0], [0, 1, 0]))
    pair = log_loss(-3.0 - -2.0)
    assert result.loss_T.tolist() == pytest.approx([pair, pair, 0.0, pair, pair, pair])
    assert result.metrics["pair_margin"].tolist() == [-0.5]


def test_a_larger_group_counts_the_mean_of_its_pairs() -> None:
    result = Pairwise(loss=LOSS)(of_three([1.0, 0.0, -1.0], [4, 4, 4]))
    mean = (log_loss(-3.0 - -1.0) + log_loss(-3.0 - -2.0) + log_loss(-1.0 - -2.0)) / 3
    assert result.loss_T.tolist() == pytest.approx([mean] * 6)
    assert len(result.metrics["pair_margin"]) == 3


@pytest.mark.parametrize(
    ("advantages", "margin"),
    [
        ([1.0, 0.0, -1.0], -3.0 - -2.0),
        ([0.0, -1.0, 1.0], -2.0 - -1.0),
        ([1.0, 1.0, 0.0], -3.0 - -2.0),
        ([1.0, 0.0, 0.0], -3.0 - -1.0),
    ],
)
def test_or_only_its_best_and_worst_are_compared_the_first_of_equals(advantages: list[float], margin: float) -> None:
    these = of_three(advantages, [4, 4, 4])
    result = Pairwise(loss=LOSS, pairs="extremes")(these)
    assert result.loss_T.tolist() == pytest.approx([log_loss(margin)] * 6)
    assert result.metrics["pair_margin"].tolist() == pytest.approx([0.5 * margin])


def test_extremes_are_those_of_each_group() -> None:
    """Groups 5 and 2 are mixed up, group 3 is a tie, group 7 is alone."""
    logp = [[-1.0], [-2.0], [-4.0], [-8.0], [-16.0], [-32.0], [-64.0], [-5.0], [-6.0], [-7.0]]
    advantage = [[0.0], [3.0], [2.0], [1.0], [1.0], [2.0], [-5.0], [1.0], [1.0], [9.0]]
    these = tokens(logp, advantage=advantage, group_N=[5, 2, 5, 2, 5, 2, 5, 3, 3, 7])
    result = Pairwise(loss=DPO(beta=1.0, reference=None), pairs="extremes")(these)
    assert result.metrics["pair_margin"].tolist() == [-2.0 + 8.0, -4.0 + 64.0]
    first, second = log_loss(2 * 6.0), log_loss(2 * 60.0)
    assert result.loss_T.tolist() == pytest.approx([second, first] * 3 + [second] + [0.0] * 3)


@pytest.mark.parametrize("pairs", ["all", "extremes"])
def test_a_tie_is_no_pair(pairs: Literal["all", "extremes"]) -> None:
    these = of_three([1.0, 1.0, 1.0], [0, 0, 0])
    result = Pairwise(loss=LOSS, pairs=pairs)(these)
    assert result.loss_T.tolist() == [0.0] * 6
    assert len(result.metrics["pair_margin"]) == 0
    assert not gradients(result.loss_T.sum(), these)["logp_T"].any()


def test_the_reference_may_be_the_policy_as_the_step_began() -> None:
    these = tokens([[-1.0], [-2.0]], advantage=[[1.0], [-1.0]], old_logp=[[-4.0], [-3.0]], group_N=[0, 0])
    result = Pairwise(loss=DPO(beta=0.5, reference="old"))(these)
    assert result.metrics["pair_margin"].tolist() == pytest.approx([0.5 * ((-1 + 4) - (-2 + 3))])
    assert Pairwise(loss=DPO(reference="old")).needs == {OLD_LOGP}


def test_gradient_by_finite_differences() -> None:

    objective, these = Pairwise(loss=DPO()), random_tokens(3, needs=(logp_of("reference"),), advantage_by="sequence")

    def total(logp_T: torch.Tensor) -> torch.Tensor:

        return objective(replace(these, logp_T=logp_T)).loss_T.sum()

    found = gradients(objective(these).loss_T.sum(), these)["logp_T"]
    torch.testing.assert_close(found, numerical_gradient(total, these.logp_T), atol=1e-7, rtol=1e-5)


def test_rewards_of_a_pair_may_have_to_be_further_apart() -> None:
    """Rewards 1, 0.9 and 0.5: with a gap of 0.2 the first two are no pair, with 0.5 none is more than that apart."""
    these = replace(of_three([3.0, 2.0, 1.0], [4, 4, 4]), reward_N=torch.tensor([1.0, 0.9, 0.5], dtype=torch.float64))
    found = Pairwise(loss=LOSS, gap=0.2)(these)
    assert found.loss_T.tolist() == pytest.approx([(log_loss(-3.0 - -2.0) + log_loss(-1.0 - -2.0)) / 2] * 6)
    assert Pairwise(loss=LOSS, gap=0.5)(these).loss_T.tolist() == [0.0] * 6
