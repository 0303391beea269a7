"""The contrastive loss: InfoNCE by hand, rows that count, gradients through the denominator, the released form."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from posttrain.components.penalties.contrast import Contrast
from posttrain.signals import EMBEDDING, IN_SHOWN, SCORE, SHOWN, SHOWN_ONLY
from posttrain.types import Tokens
from tests.builders import having, random_tokens, tokens

NEEDS = Contrast(negatives=True).needs


def given(
    embedding: Any, shown: Any, *, score: Any = None, rewards: Any = (1.0, 0.0), lengths: Any = (1, 1), **more: Any
) -> Tokens:
    """Sequences of these lengths with embeddings of two numbers."""
    these = tokens([[-1.0] * n for n in lengths], reward_N=rewards, group_N=range(len(lengths)))
    rows = torch.tensor(embedding, dtype=torch.float64).requires_grad_()
    known = {
        EMBEDDING: rows,
        SCORE: torch.tensor(score or [0.0] * len(rows), dtype=torch.float64).requires_grad_(),
        SHOWN: torch.tensor(shown, dtype=torch.float64)[these.sequence_T],
    }
    return having(
        these, known | {name: torch.tensor(x, dtype=torch.float64) for name, x in more.pop("also", {}).items()}
    )


def total(term: Contrast, these: Tokens) -> Tensor:
    """The loss with a reducer of sequences."""
    found = term.in_loss(these)
    assert found is not None
    return these.sequence_mean(found.loss_T).mean()


def test_one_correct_rollout_by_hand() -> None:
    """The demonstration has the cosines 0.6 and 0.8 with the rollouts; the wrong one stands in the denominator only."""
    these = given([[0.6, 0.8], [0.8, -0.6]], [[1.0, 0.0], [0.0, 1.0]])
    found = -math.log(math.exp(0.6 / 0.2) / (math.exp(0.6 / 0.2) + math.exp(0.8 / 0.2)))
    assert total(Contrast(coefficient=0.1), these).item() == pytest.approx(0.1 * found)
    term = Contrast().in_loss(these)
    assert term is not None
    assert term.metrics["cosine_right"].tolist() == pytest.approx([0.6])
    assert term.metrics["cosine_wrong"].tolist() == pytest.approx([-0.6])


def test_an_embedding_is_weighted_by_the_softmax_of_scores() -> None:
    """Weights 3/4 and 1/4, so that the embedding is (3, 1) / 4."""
    these = given(
        [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]], score=[math.log(3.0), 0.0, 9.0], lengths=(2, 1)
    )
    term = Contrast().in_loss(these)
    assert term is not None
    assert term.metrics["cosine_right"].item() == pytest.approx(3 / math.sqrt(10))


def test_beyond_the_limit_the_numerator_stops() -> None:
    these = given([[1.0, 0.01], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]])
    (gradient,) = torch.autograd.grad(
        total(Contrast(form="released", coefficient=1.0), these), these.signals[EMBEDDING]
    )
    assert gradient[0].abs().max() == 0.0, "the denominator has none as released, and the numerator stops at 0.9"
    (gradient,) = torch.autograd.grad(total(Contrast(coefficient=1.0), these), these.signals[EMBEDDING])
    assert gradient.abs().min() > 0.0 or gradient[1].abs().max() > 0.0


def test_rows_count_by_row_and_as_released_all_or_none() -> None:
    rows = [[0.6, 0.8], [0.8, -0.6], [0.0, 1.0]]
    these = given(rows, [[1.0, 0.0]] * 3, rewards=(1.0, 0.0, 1.0), lengths=(1, 1, 1))
    one_by_one = [
        -math.log(math.exp(c / 0.2) / sum(math.exp(d / 0.2) for d in (0.6, 0.8, 0.0))) for c in (0.6, 0.8, 0.0)
    ]
    assert total(Contrast(coefficient=1.0), these).item() == pytest.approx((one_by_one[0] + one_by_one[2]) / 2)
    assert total(Contrast(coefficient=1.0, form="released"), these).item() == pytest.approx(sum(one_by_one))
    wrong = given(rows, [[1.0, 0.0]] * 3, rewards=(0.0, 0.0, 0.0), lengths=(1, 1, 1))
    for form in ("rows", "released"):
        assert total(Contrast(form=form), wrong).item() == 0.0  # type: ignore[arg-type]


def test_without_a_demonstration_a_rollout_is_a_candidate_only() -> None:
    nan = float("nan")
    these = given([[0.6, 0.8], [0.8, -0.6]], [[1.0, 0.0], [nan, nan]], rewards=(1.0, 1.0))
    found = -math.log(math.exp(0.6 / 0.2) / (math.exp(0.6 / 0.2) + math.exp(0.8 / 0.2)))
    assert total(Contrast(coefficient=1.0), these).item() == pytest.approx(found)


def test_incorrect_rollouts_by_their_parts() -> None:
    """One incorrect rollout of two tokens, the first of which is shared: candidates are both of its parts."""
    also = {IN_SHOWN: [1.0, 0.0, 0.0], SHOWN_ONLY: [[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]}
    these = given(
        [[0.6, 0.8], [1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]], rewards=(0.0, 1.0), lengths=(2, 1), also=also
    )
    positive = Contrast(coefficient=1.0)
    shares = [1.0, 0.6, 0.8]  # cosines of the shared part with itself and with the rest of either rollout
    negative = -math.log(math.exp(0.8 / 0.2) / sum(math.exp(c / 0.2) for c in shares))
    both = total(replace(positive, negatives=True), these).item()
    assert both == pytest.approx(0.5 * (total(positive, these).item() + negative))


@pytest.mark.parametrize("negatives", [False, True])
def test_gradients_are_those_of_finite_differences(negatives: bool) -> None:
    """Also through the denominators, for embeddings and for the scores that weigh them."""
    term = Contrast(negatives=negatives, limit=2.0)
    these = random_tokens(3, needs=NEEDS)

    def loss(embedding: Tensor, score: Tensor) -> Tensor:
        return total(term, having(these, {EMBEDDING: embedding, SCORE: score}))

    inputs = (these.signals[EMBEDDING], these.signals[SCORE])
    assert torch.autograd.gradcheck(loss, inputs, atol=1e-7)
    assert loss(*inputs).item() != 0.0


def test_the_whole_update_is_compared() -> None:
    assert Contrast().whole_batch and not Contrast().whole_groups
