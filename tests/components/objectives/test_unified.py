"""The slots reproduce published gradients: autograd of each loss, not a formula copied from the component."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from posttrain.components.objectives.likelihood import Likelihood
from posttrain.components.objectives.policy_gradient import PolicyGradient
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.objectives.unified import DFT, LUFFY, PPO, REINFORCE, SFT, SRFT, Unified
from posttrain.types import Tokens
from tests.builders import gradients, random_tokens, tokens


def slope(loss: Tensor, these: Tokens) -> Tensor:
    return gradients(loss.sum(), these)["logp_T"]


def far_apart() -> Tokens:
    """Ratios well inside and well outside the clip range, on both sides, advantages of both signs and 0."""
    these = random_tokens(lengths=(60, 60), gap=0.6)
    with torch.no_grad():
        these.advantage_T[::7] = 0.0
    ratio = (these.logp_T - these.old_logp_T).detach().exp()
    assert (ratio > 1.2).sum() > 10 and (ratio < 0.8).sum() > 10 and ((ratio - 1).abs() < 0.2).sum() > 10
    return these


def shaped(these: Tokens) -> Tensor:
    probability_T = these.logp_T.exp()
    return -these.advantage_T * probability_T / (probability_T + 0.1)


PUBLISHED: dict[str, tuple[Unified, Callable[[Tokens], Tensor]]] = {
    "SFT": (SFT, lambda t: Likelihood()(t).loss_T),
    "REINFORCE": (REINFORCE, lambda t: PolicyGradient()(t).loss_T),
    "PPO": (PPO, lambda t: PPOClip()(t).loss_T),
    "PPO with other bounds": (
        Unified(mask="ppo", denominator="old", clip_low=0.1, clip_high=0.3),
        lambda t: PPOClip(clip_low=0.1, clip_high=0.3)(t).loss_T,
    ),
    "unclipped ratio": (Unified(denominator="old"), lambda t: -t.advantage_T * (t.logp_T - t.old_logp_T).exp()),
    "SRFT": (SRFT, lambda t: -t.advantage_T * t.logp_T.exp()),
    "DFT": (DFT, lambda t: -t.logp_T.exp()),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_slots_give_the_published_gradient(name: str) -> None:
    filled, published = PUBLISHED[name]
    these = far_apart()
    torch.testing.assert_close(
        slope(filled(these).loss_T, these), slope(published(these), these), rtol=1e-12, atol=1e-12
    )


def test_luffy_shapes_the_likelihood_of_demonstrations() -> None:
    """With 1 as the denominator the gradient is that of A f(p), f(p) = p / (p + 0.1)."""
    these = far_apart()
    torch.testing.assert_close(slope(LUFFY(these).loss_T, these), slope(shaped(these), these), rtol=1e-12, atol=1e-12)


def test_by_hand() -> None:
    """One token of probability 1/2, twice as likely as before, advantage 3."""
    half = float(torch.tensor(0.5).log())
    these = tokens([[half]], old_logp=[[half - float(torch.tensor(2.0).log())]], advantage=[[3.0]])
    expected = {"SFT": 1.0, "REINFORCE": 3.0, "PPO": 0.0, "unclipped ratio": 6.0, "SRFT": 1.5, "DFT": 0.5}
    for name, coefficient in expected.items():
        result = PUBLISHED[name][0](these)
        assert result.metrics["coefficient"].item() == pytest.approx(coefficient)
        assert slope(result.loss_T, these).item() == pytest.approx(-coefficient)
        assert result.loss_T.item() == pytest.approx(-coefficient * half)
    assert slope(LUFFY(these).loss_T, these).item() == pytest.approx(-3.0 * 0.5 * 0.1 / 0.36)


def test_the_mask_states_what_it_keeps() -> None:
    log2 = float(torch.tensor(2.0).log())
    these = tokens([[-1.0] * 4], old_logp=[[-1.0 - log2, -1.0 - log2, -1.0 + log2, -1.0 + log2]],
                   advantage=[[1.0, -1.0, 1.0, -1.0]])  # fmt: skip
    assert PPO(these).metrics["kept"].tolist() == [0.0, 1.0, 1.0, 0.0]
    assert "kept" not in REINFORCE(these).metrics
