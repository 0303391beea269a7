import math
from dataclasses import replace
from typing import Literal

import pytest
import torch

from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.objectives.sequence_clip import SequenceClip
from tests.builders import gradients, numerical_gradient, random_tokens, tokens


def test_equation_7_by_hand() -> None:
    """Ratios 2 and 1/2 of a sequence have the mean 1; ratios 1.21 and 1 the mean 1.1, beyond 1.05: clipped."""
    these = tokens(
        [[math.log(2.0), math.log(0.5)], [math.log(1.21), 0.0]],
        old_logp=[[0.0, 0.0], [0.0, 0.0]],
        advantage=[[1.0, 1.0], [2.0, 2.0]],
    )
    result = SequenceClip(clip_low=0.05, clip_high=0.05)(these)
    assert result.loss_T.tolist() == pytest.approx([-1.0, -1.0, -2.1, -2.1])
    assert result.metrics["ratio"].tolist() == pytest.approx([1.0, 1.0, 1.1, 1.1])
    assert result.metrics["clip_fraction"].tolist() == [0.0, 0.0, 1.0, 1.0]


def test_the_gradient_of_a_sequence_is_shared_by_its_tokens() -> None:
    """Equation 10: s A / |y| for each token's log-probability; nothing where the sequence is clipped."""
    logp = [[math.log(1.21), 0.0], [math.log(4.0)]]
    these = tokens(logp, old_logp=[[0.0, 0.0], [0.0]], advantage=[[1.0, 1.0], [1.0]])
    loss_T = SequenceClip(clip_low=0.5, clip_high=0.5)(these).loss_T
    weight_T = torch.tensor([0.5, 0.5, 1.0], dtype=loss_T.dtype)  # each sequence once
    assert gradients((loss_T * weight_T).sum(), these)["logp_T"].tolist() == pytest.approx([-0.55, -0.55, 0.0])


def test_the_ratio_of_a_whole_text_is_a_product() -> None:
    """Ratios 1.21 and 1.1 have the product 1.331, beyond 1.1; with a negative advantage it has its gradient."""
    these = tokens(
        [[math.log(1.21), math.log(1.1)], [math.log(1.21), math.log(1.1)]],
        old_logp=[[0.0, 0.0], [0.0, 0.0]],
        advantage=[[1.0, 1.0], [-1.0, -1.0]],
    )
    result = SequenceClip(clip_low=0.1, clip_high=0.1, ratio="product")(these)
    assert result.loss_T.tolist() == pytest.approx([-1.1, -1.1, 1.331, 1.331])
    assert result.metrics["clip_fraction"].tolist() == [1.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("ratio", ["mean", "product"])
@pytest.mark.parametrize("seed", range(3))
def test_finite_differences(seed: int, ratio: Literal["mean", "product"]) -> None:
    these = random_tokens(seed)
    objective = SequenceClip(clip_low=0.3, clip_high=0.3, ratio=ratio)
    exact = gradients(objective(these).loss_T.sum(), these)["logp_T"]
    expected = numerical_gradient(lambda logp_T: objective(replace(these, logp_T=logp_T)).loss_T.sum(), these.logp_T)
    torch.testing.assert_close(exact, expected, rtol=1e-5, atol=1e-7)


def test_with_one_token_a_sequence_it_is_ppo() -> None:
    one = tokens([[0.1], [-0.4], [0.3]], old_logp=[[0.0], [0.0], [0.0]], advantage=[[1.0], [-1.0], [-2.0]])
    ours, theirs = SequenceClip(clip_low=0.2, clip_high=0.2)(one), PPOClip()(one)
    assert ours.loss_T.tolist() == pytest.approx(theirs.loss_T.tolist())
