from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

from posttrain.components.objectives.by_origin import ByOrigin
from posttrain.components.objectives.intuitive import Intuitive
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.types import Tokens
from tests.builders import gradients, numerical_gradient, random_tokens, tokens


def test_by_hand() -> None:
    """Losses 1 2 3 with gamma .5: S = 1 + 1 + .75, 2 + 1.5, 3 = 2.75 3.5 3, so w = 3 S / 9.25; one token has 1."""
    these = tokens([[-1.0, -2.0, -3.0], [-4.0]])
    result = Intuitive(gamma=0.5)(these)
    weight = [3 * s / 9.25 for s in (2.75, 3.5, 3.0)]
    assert result.metrics["intuition"].tolist() == pytest.approx([*weight, 1.0])
    assert result.loss_T.tolist() == pytest.approx([weight[0], 2 * weight[1], 3 * weight[2], 4.0])
    assert these.sequence_mean(result.loss_T).tolist() == pytest.approx([(2.75 + 7 + 9) / 9.25, 4.0])


def test_equal_losses_have_falling_weights_and_gamma_0_equal_ones() -> None:
    these = tokens([[-1.0] * 6])
    weight_T = Intuitive()(these).metrics["intuition"]
    assert (weight_T[:-1] > weight_T[1:]).all() and float(weight_T.mean()) == pytest.approx(1.0)
    assert Intuitive(gamma=0.0)(these).loss_T.tolist() == [1.0] * 6
    plain = Intuitive(gamma=1.0)(tokens([[-1.0, -2.0, -3.0]])).metrics["intuition"]
    assert plain.tolist() == pytest.approx([3 * s / 14 for s in (6, 5, 3)]), "sums of what is left"


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.95, 1.0])
def test_finite_differences_also_through_the_weights(gamma: float) -> None:
    these = random_tokens()
    objective = Intuitive(gamma=gamma)

    def loss(logp_T: torch.Tensor) -> torch.Tensor:
        return objective(replace(these, logp_T=logp_T)).loss_T.sum()

    found = gradients(loss(these.logp_T), these)["logp_T"]
    torch.testing.assert_close(found, numerical_gradient(loss, these.logp_T), atol=1e-7, rtol=1e-6)


def test_detached_weights_give_another_gradient_of_the_same_loss() -> None:
    these = random_tokens()

    def loss_and_slope(objective: Intuitive) -> tuple[torch.Tensor, torch.Tensor]:
        loss_T = objective(these).loss_T
        return loss_T.detach(), gradients(loss_T.sum(), these)["logp_T"]

    (attached_T, slope_T), (detached_T, other_T) = (loss_and_slope(Intuitive(detached=d)) for d in (False, True))
    torch.testing.assert_close(attached_T, detached_T)
    torch.testing.assert_close(other_T, -Intuitive()(these).metrics["intuition"])
    assert not torch.allclose(slope_T, other_T)


def test_losses_of_0_are_guarded_and_the_loss_scales_with_them() -> None:
    zero = Intuitive()(tokens([[0.0, 0.0], [-1.0]]))
    assert zero.loss_T.tolist() == pytest.approx([0.0, 0.0, 1.0])
    one, ten = (Intuitive()(tokens([[-1.0 * k, -2.0 * k]])) for k in (1, 10))
    torch.testing.assert_close(10 * one.loss_T, ten.loss_T)
    torch.testing.assert_close(one.metrics["intuition"], ten.metrics["intuition"])


def test_it_cannot_be_a_part_since_both_parts_have_one_forward_pass() -> None:
    with pytest.raises(ValidationError, match="foresight"):
        ByOrigin(sampled=PPOClip(), demonstrated=Intuitive())
    assert isinstance(ByOrigin(sampled=PPOClip(), demonstrated=Intuitive(mixing=0.0))(mixed()).loss_T, torch.Tensor)


def mixed() -> Tokens:
    these = random_tokens()
    return replace(these, behavior_logp_T=these.behavior_logp_T.masked_fill(these.sequence_T == 1, float("nan")))
