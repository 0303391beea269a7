"""NFT: values and slopes by hand, that it is Dr. GRPO and GRPO on policy, and what is held where."""

import math
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.objectives.nft import NFT
from posttrain.components.objectives.policy_gradient import PolicyGradient
from posttrain.types import Tokens
from tests.builders import batch, gradients, random_tokens, tokens

LOG2 = math.log(2.0)

Weight = Literal["one", "failures", "odds"]


def group_of(solved: list[bool], log_ratio: list[float], *, length: int = 1) -> Tokens:
    """Rollouts at one task of `length` tokens each, with these log-ratios to the old policy."""
    then = [[-2.0] * length for _ in solved]
    now = [[-2.0 + x] * length for x in log_ratio]
    return tokens(now, old_logp=then, reward_N=[float(right) for right in solved])


def slopes(objective: NFT, these: Tokens) -> list[float]:
    found: list[float] = gradients(objective(these).loss_T.sum(), these)["logp_T"].tolist()
    return found


def test_values_by_hand() -> None:
    """q = 1/4: R = 2, 1/2, 1, 2 give V = -, 7/6, 1, 2/3; log 2 is the loss of a right token whose R is 1/2."""
    these = group_of([True, False, False, False], [-LOG2, -LOG2, 0.0, LOG2])
    result = NFT(prompt_weight="one", floor=0.5)(these)
    assert result.loss_T.tolist() == pytest.approx([LOG2, -math.log(7 / 6), 0.0, -math.log(2 / 3)])
    assert result.metrics["ratio"].tolist() == pytest.approx([0.5, 0.5, 1.0, 2.0])
    assert result.metrics["floored"].tolist() == [0.0, 0.0, 0.0]
    held = NFT(prompt_weight="one")(these)
    assert held.loss_T.tolist() == pytest.approx([LOG2, -math.log(7 / 6), 0.0, 0.0])
    assert held.metrics["floored"].tolist() == [0.0, 0.0, 1.0], "of the wrong ones"


def test_slopes_by_hand() -> None:
    """-1 where it is right; where it is wrong q R / (1 - q) over V or the floor: (1/6) / (7/6), 1/3, (2/3) / 1."""
    these = group_of([True, False, False, False], [-LOG2, -LOG2, 0.0, LOG2])
    assert slopes(NFT(prompt_weight="one"), these) == pytest.approx([-1.0, 1 / 7, 1 / 3, 2 / 3])
    assert slopes(NFT(prompt_weight="one", floor=0.5), these) == pytest.approx([-1.0, 1 / 7, 1 / 3, 1.0])
    assert slopes(NFT(), these) == pytest.approx([-3 / 4, 3 / 28, 1 / 4, 1 / 2])
    root = math.sqrt(3.0)
    assert slopes(NFT(prompt_weight="odds"), these) == pytest.approx([-root, root / 7, root / 3, root * 2 / 3])
    assert slopes(NFT(prompt_weight="one", negative=0.0), these) == [-1.0, 0.0, 0.0, 0.0]
    assert slopes(NFT(prompt_weight="one", negative=0.5), these) == pytest.approx([-1.0, 1 / 14, 1 / 6, 1 / 3])


def test_beyond_the_floor_the_slope_is_kept_although_the_value_is_not() -> None:
    """q = 1/2, R = 4: V = -2; the slope is 4 over the floor, where clamping alone would give 0."""
    these = group_of([True, False], [0.0, 2 * LOG2])
    for floor in (1.0, 0.1, 0.01):
        objective = NFT(prompt_weight="one", floor=floor)
        assert objective(these).loss_T[1].item() == pytest.approx(-math.log(floor))
        assert slopes(objective, these)[1] == pytest.approx(4.0 / floor)


@pytest.mark.parametrize("ratio", ["token", "sequence"])
def test_finite_differences_where_nothing_is_held(ratio: Literal["token", "sequence"]) -> None:
    these = random_tokens(4, lengths=(3, 1, 4, 2, 5, 2), gap=0.1)
    objective = NFT(floor=1e-3, ratio=ratio)
    assert objective(these).metrics["floored"].sum() == 0.0

    def of(logp_T: Tensor) -> Tensor:
        return objective(replace(these, logp_T=logp_T)).loss_T

    assert torch.autograd.gradcheck(of, these.logp_T)


def on_policy(solved: list[bool]) -> tuple[Tokens, list[list[float]]]:
    """Rollouts of one to three tokens before any update, and the rewards of their group."""
    rewards = [float(right) for right in solved]
    return tokens([[-1.0] * (1 + i % 3) for i in range(len(solved))], reward_N=rewards), [rewards]


@pytest.mark.parametrize("right", [1, 3, 7])
def test_on_policy_it_is_dr_grpo_or_grpo(right: int) -> None:
    """The advantage of GRPO has the unbiased std here, which is sqrt(8 / 7) of the population's."""
    these, rewards = on_policy([True] * right + [False] * (8 - right))
    pairs: list[tuple[Weight, GroupMean, float]] = [
        ("failures", GroupMean(scale="none"), 1.0),
        ("odds", GroupMean(epsilon=1e-12), math.sqrt(8 / 7)),
    ]
    for weight, estimator, factor in pairs:
        _, credit = estimator({}, batch(rewards, length=1))
        advantage_N = torch.from_numpy(np.concatenate(credit.advantages)).double()
        given = replace(these, advantage_T=factor * advantage_N[these.sequence_T])
        expected = gradients(PolicyGradient()(given).loss_T.sum(), given)["logp_T"]
        for ratio in ("token", "sequence"):
            found = slopes(NFT(prompt_weight=weight, ratio=ratio), these)
            assert found == pytest.approx(expected.tolist(), rel=1e-6)


def test_the_advantage_is_not_inspected() -> None:
    these = random_tokens(1)
    other = replace(these, advantage_T=-3.0 * these.advantage_T)
    assert torch.equal(NFT()(these).loss_T, NFT()(other).loss_T)


def test_a_sequence_shares_the_loss_of_its_whole_ratio() -> None:
    """Two tokens with R = 2 and 4: together 8; q = 1/2, V = -6, floor 1: the slope is 8 for each token, the loss 0."""
    these = tokens(
        [[-1.0, -1.0], [-2.0, -2.0]],
        old_logp=[[-1.0 + LOG2, -1.0 + 2 * LOG2], [-2.0 - LOG2, -2.0 - 2 * LOG2]],
        reward_N=[1.0, 0.0],
    )
    result = NFT(prompt_weight="one", ratio="sequence")(these)
    assert result.loss_T.tolist() == pytest.approx([1.5 * LOG2, 1.5 * LOG2, 0.0, 0.0]), "3 log 2, in two parts"
    assert result.metrics["ratio"].tolist() == pytest.approx([1 / 8, 8.0])
    assert slopes(NFT(prompt_weight="one", ratio="sequence"), these) == pytest.approx([-1.0, -1.0, 8.0, 8.0])
    assert slopes(NFT(prompt_weight="one"), these) == pytest.approx([-1.0, -1.0, 2.0, 4.0])


def test_shares_of_correct_rollouts_are_held_within_two_in_a_hundred() -> None:
    """All wrong counts as 0.02: slope 0.02 / 0.98 times 0.98. All right as 0.98: slope -0.02."""
    assert slopes(NFT(), group_of([False, False], [0.0, 0.0])) == pytest.approx([0.02, 0.02])
    assert slopes(NFT(), group_of([True], [0.0])) == pytest.approx([-0.02])
    rare = group_of([True] + [False] * 99, [0.0] * 100)
    assert slopes(NFT(), rare)[:2] == pytest.approx([-0.98, 0.02])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_ratio_of_e_to_the_ten_is_the_largest(dtype: torch.dtype) -> None:
    """Beyond it there is no gradient; just before it a wrong token's slope is q R / ((1 - q) floor), e^10 here."""
    then = [[-200.0]] * 3
    these = tokens([[-1.0], [-189.9], [-190.1]], old_logp=then, reward_N=[1.0, 0.0, 0.0], dtype=dtype)
    these = replace(these, group_solved_N=torch.full((3,), 0.5, dtype=dtype))
    result = NFT(prompt_weight="one")(these)
    assert result.loss_T.tolist() == pytest.approx([-10.0, 0.0, 0.0])
    assert slopes(NFT(prompt_weight="one"), these) == pytest.approx([0.0, 0.0, math.exp(9.9)], rel=1e-3)


def test_a_far_lower_ratio_still_teaches_a_right_token_and_no_wrong_one() -> None:
    these = group_of([True, False], [-300.0, -300.0])
    assert NFT(prompt_weight="one")(these).loss_T.tolist() == pytest.approx([300.0, -LOG2])
    assert slopes(NFT(prompt_weight="one"), these) == pytest.approx([-1.0, 0.0])


@pytest.mark.parametrize("wrong", [{"floor": 0.0}, {"negative": -1.0}, {"prompt_weight": "two"}])
def test_wrong_settings(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        NFT(**wrong)  # type: ignore[arg-type]
