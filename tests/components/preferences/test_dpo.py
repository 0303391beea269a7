import math
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from posttrain.components.preferences import Pairs
from posttrain.components.preferences.dpo import DPO
from posttrain.signals import OLD_LOGP, logp_of


def pairs(logp: list[list[float]], reference: list[list[float]] | Tensor) -> Pairs:
    logp_P2 = torch.tensor(logp, dtype=torch.float64)
    return Pairs(
        logp_P2=logp_P2.requires_grad_(),
        length_P2=torch.ones_like(logp_P2, dtype=torch.int64),
        reference_logp_P2={logp_of("reference"): torch.as_tensor(reference, dtype=torch.float64)},
    )


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


WORKED = ([[-3.0, -5.0], [-4.0, -1.0]], [[-4.0, -4.0], [-4.0, -4.0]])
"""Margins h of 2 and -3 nats beside the reference."""


def test_the_loss_by_hand() -> None:
    result = DPO(beta=0.5)(pairs(*WORKED))
    assert result.loss_P.tolist() == pytest.approx([-math.log(sigmoid(1.0)), -math.log(sigmoid(-1.5))])
    assert {name: values.tolist() for name, values in result.metrics.items()} == {
        "pair_accuracy": [1.0, 0.0],
        "pair_margin": [1.0, -1.5],
        "chosen_reward": [0.5, 0.0],
        "rejected_reward": [-0.5, 1.5],
        "chosen_logp": [-3.0, -4.0],
        "rejected_logp": [-5.0, -1.0],
    }


def test_label_smoothing_by_hand() -> None:
    found = DPO(beta=0.5, label_smoothing=0.1)(pairs(*WORKED)).loss_P.tolist()
    expected = [-0.9 * math.log(sigmoid(m)) - 0.1 * math.log(sigmoid(-m)) for m in (1.0, -1.5)]
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_gradient_is_weighed_by_how_wrong_the_order_is(smoothing: float) -> None:
    these = pairs(*WORKED)
    (found,) = torch.autograd.grad(DPO(beta=0.5, label_smoothing=smoothing)(these).loss_P.sum(), these.logp_P2)
    weights = [-0.5 * ((1 - smoothing) * sigmoid(-m) - smoothing * sigmoid(m)) for m in (1.0, -1.5)]
    assert found.flatten().tolist() == pytest.approx([weights[0], -weights[0], weights[1], -weights[1]])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_finite_differences(smoothing: float) -> None:
    these = pairs(*WORKED)
    loss = DPO(beta=0.3, label_smoothing=smoothing)
    reference = these.reference_logp_P2

    def of(logp_P2: Tensor) -> Tensor:
        return loss(Pairs(logp_P2=logp_P2, length_P2=these.length_P2, reference_logp_P2=reference)).loss_P

    assert torch.autograd.gradcheck(of, these.logp_P2)


def test_where_the_policy_is_the_reference_nothing_is_preferred() -> None:
    result = DPO()(pairs([[-3.0, -5.0]], [[-3.0, -5.0]]))
    assert result.loss_P.item() == pytest.approx(math.log(2))
    assert result.metrics["pair_accuracy"].tolist() == [0.0]


def test_without_a_reference_every_completion_counts_as_equally_likely() -> None:
    free = DPO(reference=None)
    assert free.needs == frozenset()
    these = pairs([[-3.0, -5.0]], [[-7.0, -7.0]])
    assert free(these).loss_P.item() == pytest.approx(DPO()(these).loss_P.item())


def test_the_reference_is_the_role_that_it_names() -> None:
    assert DPO().needs == {logp_of("reference")}
    assert DPO(reference="old").needs == {OLD_LOGP}


@pytest.mark.parametrize("wrong", [{"beta": 0.0}, {"label_smoothing": 0.5}, {"label_smoothing": -0.1}])
def test_wrong_settings(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        DPO(**wrong)  # type: ignore[arg-type]


def test_the_optimum_is_the_reference_tilted_by_the_reward() -> None:
    """With labels drawn from a Bradley-Terry model, reference * exp(reward / beta) / Z (equation 4)."""
    reward_A, beta = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64), 0.5
    reference_A = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64).log()
    pair_P2 = torch.combinations(torch.arange(3), 2)
    pair_P2 = torch.cat([pair_P2, pair_P2.flip(1)])  # every pair both ways, weighed by how often it is labelled so
    weight_P = (reward_A[pair_P2[:, 0]] - reward_A[pair_P2[:, 1]]).sigmoid()
    logits_A = reference_A.clone().requires_grad_()
    optimizer = torch.optim.Adam([logits_A], lr=0.05)
    for _ in range(400):
        optimizer.zero_grad()
        these = Pairs(
            logp_P2=logits_A.log_softmax(0)[pair_P2],
            length_P2=torch.ones_like(pair_P2),
            reference_logp_P2={logp_of("reference"): reference_A[pair_P2]},
        )
        (weight_P * DPO(beta=beta)(these).loss_P).sum().backward()
        optimizer.step()
    expected_A = (reference_A + reward_A / beta).softmax(0)
    torch.testing.assert_close(logits_A.detach().softmax(0), expected_A, atol=1e-3, rtol=0)


def of_lengths(lengths: list[list[int]]) -> Pairs:
    worked = pairs(*WORKED)
    return replace(worked, length_P2=torch.tensor(lengths))


def test_by_length_each_sum_is_divided_by_its_own_length() -> None:
    """Ratios of 1 and -1 nats over 2 and 4 tokens, of 0 and 3 over 5 and 6: margins 5 (.5 + .25) and 5 (0 - .5)."""
    result = DPO(beta=5.0, by_length=True)(of_lengths([[2, 4], [5, 6]]))
    assert result.metrics["pair_margin"].tolist() == pytest.approx([3.75, -2.5])
    assert result.loss_P.tolist() == pytest.approx([-math.log(sigmoid(3.75)), -math.log(sigmoid(-2.5))])


def test_pairs_of_equal_length_are_dpo_with_beta_over_it() -> None:
    ours = DPO(beta=5.0, by_length=True)(of_lengths([[4, 4], [4, 4]]))
    assert torch.equal(ours.loss_P, DPO(beta=1.25)(pairs(*WORKED)).loss_P)


def test_finite_differences_by_length() -> None:
    read = of_lengths([[2, 4], [5, 6]])
    loss = DPO(beta=5.0, by_length=True)

    def total(logp_P2: Tensor) -> Tensor:
        return loss(replace(read, logp_P2=logp_P2)).loss_P.sum()

    assert torch.autograd.gradcheck(total, (read.logp_P2,))


def given(margins: list[float]) -> Pairs:
    """The worked pairs, with h of 2 and -3 nats, and a margin of each that was given with it."""
    return replace(pairs(*WORKED), fields={"margin": torch.tensor(margins, dtype=torch.float64)})


def test_a_target_is_subtracted_outside_beta() -> None:
    """Logits 0.5 * 2 - 1.6 and 0.5 * -3 - 0.1."""
    result = DPO(beta=0.5, target=1.0)(given([1.6, 0.1]))
    assert result.loss_P.tolist() == pytest.approx([-math.log(sigmoid(-0.6)), -math.log(sigmoid(-1.6))])
    assert result.metrics["pair_margin"].tolist() == pytest.approx([1.0, -1.5])
    at_reference = replace(given([1.6, 0.0]), logp_P2=torch.full((2, 2), -4.0, dtype=torch.float64))
    assert DPO(target=1.0)(at_reference).loss_P.tolist() == pytest.approx([math.log1p(math.exp(1.6)), math.log(2)])


def test_beta_of_each_pair_is_inside_the_sigmoid() -> None:
    """Beta 0.5 (1 + 2 (1 - exp(-0.5 * 4))) of the first; that of a negative margin stays 0.5."""
    result = DPO(beta=0.5, growth=2.0, rate=0.5)(given([4.0, -7.0]))
    beta = 0.5 * (1 + 2 * (1 - math.exp(-2.0)))
    assert result.metrics["pair_beta"].tolist() == pytest.approx([beta, 0.5])
    assert result.metrics["negative_margin"].tolist() == [0.0, 1.0]
    assert result.loss_P.tolist() == pytest.approx([-math.log(sigmoid(2 * beta)), -math.log(sigmoid(-1.5))])


@pytest.mark.parametrize(("margin", "beta"), [(0.0, 0.1), (1.0, 0.1 * (1 + 0.5 * (1 - math.exp(-0.5)))), (1e9, 0.15)])
def test_pairs_of_one_margin_are_dpo_with_that_beta(margin: float, beta: float) -> None:
    ours = DPO(growth=0.5)(given([margin, margin])).loss_P
    torch.testing.assert_close(ours, DPO(beta=beta)(pairs(*WORKED)).loss_P, rtol=1e-12, atol=0)


@pytest.mark.parametrize("loss", [DPO(beta=0.3, target=1.0), DPO(beta=0.3, growth=2.0, label_smoothing=0.1)])
def test_finite_differences_with_margins(loss: DPO) -> None:
    read = given([1.5, -0.4])

    def of(logp_P2: Tensor) -> Tensor:
        return loss(replace(read, logp_P2=logp_P2)).loss_P

    assert loss.reads == {"margin"} and not DPO().reads
    assert torch.autograd.gradcheck(of, (read.logp_P2,))


def test_under_a_target_gaps_follow_values_where_dpo_has_one_gap_for_all() -> None:
    """Two choices of a table, after as many steps: the one whose values are 1.6 apart moves further."""

    def gaps(loss: DPO) -> list[float]:
        logits_C2 = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.SGD([logits_C2], lr=0.3)
        for _ in range(400):
            optimizer.zero_grad()
            these = Pairs(
                logp_P2=logits_C2.log_softmax(1),
                length_P2=torch.ones(2, 2, dtype=torch.int64),
                reference_logp_P2={logp_of("reference"): torch.full((2, 2), math.log(0.5), dtype=torch.float64)},
                fields={"margin": torch.tensor([1.6, 0.1], dtype=torch.float64)},
            )
            loss(these).loss_P.sum().backward()
            optimizer.step()
        return (logits_C2[:, 0] - logits_C2[:, 1]).tolist()

    wide, narrow = gaps(DPO(beta=0.3, target=1.0))
    assert wide > narrow + 3
    plain = gaps(DPO(beta=0.3))
    assert plain[0] == pytest.approx(plain[1])


def test_by_length_it_is_trls_sigmoid_norm() -> None:
    """The same loss as TRL's trainer for given log-probabilities of completions of 2 and 4, and of 3 and 1 tokens."""
    pytest.importorskip("trl")
    from collections import defaultdict
    from types import SimpleNamespace

    from trl.trainer.dpo_trainer import DPOTrainer  # type: ignore[import-not-found, unused-ignore]

    lengths, logp = [2, 3, 4, 1], torch.tensor([-0.5, -1.0, -1.5, -2.5], dtype=torch.float64)
    mask = torch.tensor([[0, *([1] * n), *([0] * (4 - n))] for n in lengths])
    logp_NT = (mask[:, 1:] * logp[:, None]).requires_grad_()
    other = torch.tensor([-1.5, -2.0, -4.5, -3.0], dtype=torch.float64)
    gathered = SimpleNamespace(gather=lambda x: x, gather_for_metrics=lambda x: x, device=torch.device("cpu"))
    zero_NT = torch.zeros(4, 4)
    outputs = SimpleNamespace(log_probs=logp_NT, entropy=zero_NT, mean_logits=zero_NT, is_top1=zero_NT.bool())
    trainer = SimpleNamespace(
        model=SimpleNamespace(training=False), accelerator=gathered, aux_loss_enabled=False, ld_alpha=None,
        precompute_ref_logps=True, f_divergence_type="reverse_kl", loss_types=["sigmoid_norm"], loss_weights=[1.0],
        beta=5.0, use_weighting=False, _metrics=defaultdict(lambda: defaultdict(list)), _total_train_tokens=0,
    )  # fmt: skip
    inputs = {"input_ids": torch.zeros_like(mask), "attention_mask": torch.ones_like(mask), "completion_mask": mask,
              "ref_chosen_logps": other[:2], "ref_rejected_logps": other[2:]}  # fmt: skip
    expected = DPOTrainer._compute_loss(trainer, lambda **given: outputs, inputs, False)
    sums = logp_NT.detach().sum(1)
    these = Pairs(
        logp_P2=torch.stack([sums[:2], sums[2:]], 1).requires_grad_(),
        length_P2=torch.tensor([lengths[:2], lengths[2:]]).T,
        reference_logp_P2={logp_of("reference"): torch.stack([other[:2], other[2:]], 1)},
    )
    found = DPO(beta=5.0, by_length=True)(these).loss_P.mean()
    assert found.item() == pytest.approx(float(expected.detach()), rel=1e-6)
    [theirs] = torch.autograd.grad(expected, logp_NT)
    [ours] = torch.autograd.grad(found, these.logp_P2)
    assert theirs[:, 0].tolist() == pytest.approx(ours.T.flatten().tolist(), rel=1e-6)
