import math
from dataclasses import replace

import pytest
import torch

from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.types import PerToken
from tests.builders import gradients, numerical_gradient, random_tokens, tokens


def one_token(objective: PPOClip, advantage: float, ratio: float) -> tuple[float, float, PerToken]:
    """Loss of one token, its derivative with respect to the log-probability, and all that came back."""
    these = tokens([[-3.0 + math.log(ratio)]], old_logp=[[-3.0]], advantage=[[advantage]])
    result = objective(these)
    return result.loss_T.item(), gradients(result.loss_T.sum(), these)["logp_T"].item(), result


@pytest.mark.parametrize(
    ("advantage", "ratio", "loss", "slope"),
    [
        (1.0, 1.0, -1.0, -1.0),
        (1.0, 1.1, -1.1, -1.1),
        (1.0, 1.5, -1.2, 0.0),  # nothing more to gain
        (1.0, 0.5, -0.5, -0.5),  # far below: may come back
        (-1.0, 0.5, 0.8, 0.0),  # nothing more to gain
        (-1.0, 1.5, 1.5, 1.5),  # far above: may come back
        (-2.0, 0.9, 1.8, 1.8),
    ],
)
def test_equation_7(advantage: float, ratio: float, loss: float, slope: float) -> None:
    assert one_token(PPOClip(), advantage, ratio)[:2] == pytest.approx((loss, slope))


def test_bounds_are_separate() -> None:
    wider = PPOClip(clip_low=0.1, clip_high=0.28)
    assert one_token(wider, 1.0, 1.25)[:2] == pytest.approx((-1.25, -1.25))
    assert one_token(wider, 1.0, 1.3)[:2] == pytest.approx((-1.28, 0.0))
    assert one_token(wider, -1.0, 0.85)[:2] == pytest.approx((0.9, 0.0))


@pytest.mark.parametrize(
    ("advantage", "ratio", "loss", "slope"),
    [
        (-1.0, 4.0, 3.0, 0.0),  # the cost is bounded by c |A|
        (-2.0, 4.0, 6.0, 0.0),
        (-1.0, 2.5, 2.5, 2.5),
        (1.0, 4.0, -1.2, 0.0),  # positive advantages are not touched
        (-1.0, 0.5, 0.8, 0.0),
    ],
)
def test_dual_clip(advantage: float, ratio: float, loss: float, slope: float) -> None:
    assert one_token(PPOClip(dual_clip=3.0), advantage, ratio)[:2] == pytest.approx((loss, slope))


def test_metrics_say_which_tokens_were_stopped() -> None:
    these = tokens(
        [[math.log(1.5), math.log(1.5), math.log(0.5), math.log(4.0)]],
        old_logp=[[0.0] * 4],
        advantage=[[1.0, -1.0, 1.0, -1.0]],
    )
    metrics = PPOClip(dual_clip=3.0)(these).metrics
    assert metrics["ratio"].tolist() == pytest.approx([1.5, 1.5, 0.5, 4.0])
    assert metrics["clip_fraction"].tolist() == [1, 0, 0, 0]
    assert metrics["dual_clip_fraction"].tolist() == [0, 0, 0, 1]
    assert "dual_clip_fraction" not in PPOClip()(these).metrics


@pytest.mark.parametrize("objective", [PPOClip(), PPOClip(clip_low=0.1, clip_high=0.4, dual_clip=1.5)])
def test_finite_differences(objective: PPOClip) -> None:
    these = random_tokens(seed=3, gap=0.5, lengths=(40, 20, 30))

    def loss(logp_T: torch.Tensor) -> torch.Tensor:
        return objective(replace(these, logp_T=logp_T)).loss_T.sum()

    found = gradients(loss(these.logp_T), these)["logp_T"]
    torch.testing.assert_close(found, numerical_gradient(loss, these.logp_T), atol=1e-7, rtol=1e-6)
    assert 0 < found.count_nonzero() < len(found), "clipped and free tokens are both tried"


def test_ratios_beyond_e20_count_as_e20() -> None:
    loss, slope, result = one_token(PPOClip(), -1.0, math.exp(80))
    assert loss == pytest.approx(math.exp(20))
    assert slope == 0.0
    assert result.metrics["ratio"].item() == pytest.approx(math.exp(20))


@pytest.mark.parametrize(
    ("old", "new", "loss", "slope"),
    [
        (-0.5, -0.4, -math.exp(0.1), -math.exp(0.1)),
        (-3.0, -2.0, -1.0, 0.0),  # both beyond: no ratio, no gradient
        (-3.0, -0.9, -math.exp(0.1), -math.exp(0.1)),  # from -1 to -0.9
        (0.9, 3.0, -math.exp(0.1), 0.0),  # from 0.9 to 1, and no further
    ],
)
def test_bounded_log_probabilities(old: float, new: float, loss: float, slope: float) -> None:
    these = tokens([[new]], old_logp=[[old]], advantage=[[1.0]])
    result = PPOClip(bound=1.0)(these)
    assert result.loss_T.item() == pytest.approx(loss, rel=1e-6)
    assert gradients(result.loss_T.sum(), these)["logp_T"].item() == pytest.approx(slope, rel=1e-6)
