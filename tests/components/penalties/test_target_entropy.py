"""The sign of the term follows the side of the target, and its size is that of the distance."""

import numpy as np
import pytest
import torch

from posttrain.components.penalties.target_entropy import TargetEntropy
from posttrain.signals import ENTROPY, OLD_ENTROPY
from posttrain.types import Batch
from tests.builders import batch, gradients, having, tokens


def entropies(*rows: list[float]) -> Batch:
    return batch([[0.0] * len(rows)], token_rewards=[[0.0] * len(row) for row in rows], signals={OLD_ENTROPY: rows})


def test_the_term_is_the_distance_of_the_mean_over_tokens() -> None:
    """Five tokens with a mean of 0.3, and 0.25 below the target; the mean of sequences would be 0.35."""
    rows = [[0.5], [0.25, 0.25, 0.25, 0.25]]
    penalty = TargetEntropy(coefficient=0.1)
    penalty = penalty.at(penalty.observe(penalty.start(), entropies(*rows)))
    these = tokens([[-1.0], [-1.0] * 4], entropy=rows)
    these = having(these, {OLD_ENTROPY: these[ENTROPY].detach()})
    loss_T = penalty.in_loss(these).loss_T
    assert loss_T.mean().item() == pytest.approx(0.1 * abs(0.3 - 0.55))
    assert gradients(loss_T.mean(), these)[ENTROPY].tolist() == pytest.approx([-0.1 / 5] * 5)


@pytest.mark.parametrize(("entropy", "slope"), [(0.1, -0.001), (1.5, 0.001), (0.55, 0.0)])
def test_below_the_target_it_raises_and_above_it_lowers(entropy: float, slope: float) -> None:
    penalty = TargetEntropy(target=float(np.float32(0.55)))
    state = penalty.observe(penalty.start(), entropies([entropy] * 3))
    these = having(tokens([[-1.0]], entropy=[[entropy]]), {OLD_ENTROPY: torch.tensor([entropy])})
    assert gradients(penalty.at(state).in_loss(these).loss_T.sum(), these)[ENTROPY].item() == pytest.approx(slope)


def test_a_batch_without_tokens_changes_nothing() -> None:
    penalty = TargetEntropy()
    state = penalty.observe(penalty.start(), entropies([0.1]))
    assert state == {"side": -1.0} and penalty.observe(state, entropies([])) == state


@pytest.mark.parametrize("start", [[3.0, 0.0, 0.0, 0.0, 0.0], [0.1, 0.0, 0.0, 0.0, 0.0]])
def test_a_distribution_goes_to_the_target_from_both_sides(start: list[float]) -> None:
    """Five choices: 0.75 nats at the first start, nearly log 5 = 1.61 at the other."""
    logits = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    penalty = TargetEntropy(coefficient=1.0, target=1.0)
    for _ in range(400):
        logp = logits.log_softmax(0)
        entropy = -(logp.exp() * logp).sum()
        state = penalty.observe(penalty.start(), entropies([entropy.item()]))
        these = having(tokens([[-1.0]]), {ENTROPY: entropy.reshape(1), OLD_ENTROPY: entropy.detach().reshape(1)})
        (slope,) = torch.autograd.grad(penalty.at(state).in_loss(these).loss_T.sum(), logits)
        with torch.no_grad():
            logits -= 0.05 * slope
    assert entropy.item() == pytest.approx(1.0, abs=0.02)
