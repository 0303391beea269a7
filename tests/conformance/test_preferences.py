"""Laws of the preference losses, for every member on arrival."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from posttrain.components.preferences import Pairs, PreferenceLoss
from posttrain.components.preferences.dpo import DPO
from posttrain.components.preferences.rpo import RPO
from tests.conformance._members import each, members

READING = (DPO(target=1.0), DPO(growth=2.0), RPO(loss=DPO(growth=0.5), times_beta=False))
"""Losses that read a number of each pair, which none does by default."""

every_member = pytest.mark.parametrize("loss", [*members(PreferenceLoss), *READING])


def random_pairs(loss: PreferenceLoss, seed: int = 0, *, count: int = 7, gap: float = 1.0) -> Pairs:
    """Log-probabilities of whole completions; other models' are about `gap` nats away, 0 is where training begins."""
    generator = torch.Generator().manual_seed(seed)
    logp_P2 = -20 * torch.rand(count, 2, generator=generator, dtype=torch.float64)
    return Pairs(
        logp_P2=logp_P2.clone().requires_grad_(),
        length_P2=torch.randint(1, 30, (count, 2), generator=generator),
        reference_logp_P2={
            need: logp_P2 + gap * torch.randn(count, 2, generator=generator, dtype=torch.float64)
            for need in sorted(loss.needs)
        },
        fields={
            name: torch.randn(count, generator=generator, dtype=torch.float64).abs() for name in sorted(loss.reads)
        },
    )


def taken(pairs: Pairs, order: list[int]) -> Pairs:
    return Pairs(
        logp_P2=pairs.logp_P2[order],
        length_P2=pairs.length_P2[order],
        reference_logp_P2={need: logp_P2[order] for need, logp_P2 in pairs.reference_logp_P2.items()},
        fields={name: number_P[order] for name, number_P in pairs.fields.items()},
    )


def gradient(loss: PreferenceLoss, pairs: Pairs) -> Tensor:
    (found,) = torch.autograd.grad(loss(pairs).loss_P.sum(), pairs.logp_P2)
    return found


@every_member
@each(count=[0, 1, 7])
def test_one_loss_a_pair(loss: PreferenceLoss, count: int) -> None:
    pairs = random_pairs(loss, count=count)
    result = loss(pairs)
    assert result.loss_P.shape == (count,)
    assert result.loss_P.requires_grad and result.loss_P.isfinite().all()
    for name, values in result.metrics.items():
        assert values.shape == (count,), name
        assert values.isfinite().all() and not values.requires_grad, name


@every_member
def test_needs_are_exact(loss: PreferenceLoss) -> None:
    pairs = random_pairs(loss)
    for need in loss.needs:
        others = {name: x for name, x in pairs.reference_logp_P2.items() if name != need}
        with pytest.raises(KeyError):
            loss(replace(pairs, reference_logp_P2=others))
    for name in loss.reads:
        with pytest.raises(KeyError):
            loss(replace(pairs, fields={other: x for other, x in pairs.fields.items() if other != name}))


@every_member
def test_numbers_of_a_pair_have_no_gradient(loss: PreferenceLoss) -> None:
    pairs = random_pairs(loss)
    fields = {name: number_P.requires_grad_() for name, number_P in pairs.fields.items()}
    loss(replace(pairs, fields=fields)).loss_P.sum().backward()
    assert all(number_P.grad is None for number_P in fields.values())


@every_member
def test_a_pair_depends_on_no_other(loss: PreferenceLoss) -> None:
    pairs, order = random_pairs(loss), [4, 1, 6]
    assert torch.equal(loss(taken(pairs, order)).loss_P, loss(pairs).loss_P[order])


@every_member
@each(gap=[200.0, -200.0, 1e5, -1e5])
def test_finite_at_extreme_margins(loss: PreferenceLoss, gap: float) -> None:
    pairs = random_pairs(loss)
    far = torch.tensor([0.0, -abs(gap)] if gap > 0 else [-abs(gap), 0.0]).repeat(7, 1)
    pairs = replace(
        pairs,
        logp_P2=far.requires_grad_(),
        reference_logp_P2=dict.fromkeys(loss.needs, far.detach().flip(1)),
    )
    assert loss(pairs).loss_P.isfinite().all()
    assert gradient(loss, pairs).isfinite().all()


@every_member
def test_training_begins_by_raising_the_chosen_and_lowering_the_rejected(loss: PreferenceLoss) -> None:
    found = gradient(loss, random_pairs(loss, gap=0.0))
    assert (found[:, 0] < 0).all() and (found[:, 1] > 0).all()


@every_member
def test_nothing_is_written(loss: PreferenceLoss) -> None:
    pairs, untouched = random_pairs(loss), random_pairs(loss)
    loss(pairs)
    assert torch.equal(pairs.logp_P2, untouched.logp_P2)
    assert all(torch.equal(x, untouched.reference_logp_P2[need]) for need, x in pairs.reference_logp_P2.items())


@every_member
def test_orders_the_arms_of_a_bandit(loss: PreferenceLoss) -> None:
    """Four arms, every two of them a pair; at first, and in the reference, the worst arm is the likeliest."""
    start_A = torch.tensor([-1.0, -0.5, 0.0, 0.5], dtype=torch.float64)
    pair_P2 = torch.combinations(torch.arange(4), 2)
    logits_A = start_A.clone().requires_grad_()
    optimizer = torch.optim.Adam([logits_A], lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        pairs = Pairs(
            logp_P2=logits_A.log_softmax(0)[pair_P2],
            length_P2=torch.ones_like(pair_P2),
            reference_logp_P2=dict.fromkeys(loss.needs, start_A.log_softmax(0)[pair_P2]),
            fields=dict.fromkeys(loss.reads, (pair_P2[:, 1] - pair_P2[:, 0]).double()),
        )
        loss(pairs).loss_P.mean().backward()
        optimizer.step()
    ordered = logits_A.argsort(descending=True).tolist() == [0, 1, 2, 3]
    assert ordered == ("bandit" not in loss.exceptions), logits_A


@every_member
def test_exceptions_are_laws(loss: PreferenceLoss) -> None:
    assert loss.exceptions <= {"bandit"}
