"""Completions of given pieces, and signals among allowed tokens."""

import numpy as np
import pytest
import torch

from posttrain.engines._pieces import Pieces, Vocabulary
from posttrain.errors import UserError
from posttrain.policies._signals import Compared, token_signals
from posttrain.signals import ENTROPY, LOGP, Signal

TOKENS = [b"", b"a", b"ab", b"b > c", b" > ", b"c", b"d"]
VOCABULARY = Vocabulary.from_bytes(TOKENS, frozenset({0}))


def after(text: str) -> list[str]:
    """``ab`` or ``abd`` first; after ``ab`` ``` > c``` or the end, and then the end."""
    return {"": ["ab", "abd"], "ab": [" > c", ""]}.get(text, [""])


def allowed(*token_ids: int) -> list[int]:
    matcher = Pieces(after, VOCABULARY).matcher()
    for token_id in token_ids:
        assert matcher.allowed()[token_id]
        matcher.push(token_id)
    return np.flatnonzero(matcher.allowed()).tolist()


def test_tokens_across_pieces_and_pieces_with_a_common_start() -> None:
    assert allowed() == [1, 2]
    assert allowed(1) == [3], "the rest of one piece and all of the next, in one token"
    assert allowed(2) == [0, 4, 6], "the piece may end here, or be the longer one"
    assert allowed(2, 6) == [0] and allowed(2, 4) == [5] and allowed(1, 3) == [0]


def test_the_allowed_tokens_of_a_completion() -> None:
    made = Pieces(after, VOCABULARY)
    assert made.allowed_of(np.array([2, 4, 5, 0])).tolist() == [2, 3, 1, 1, 1, 2, 0, 4, 6, 5, 0]


def test_a_text_that_nothing_may_follow_is_refused() -> None:
    with pytest.raises(UserError, match="no token may follow ''"):
        Pieces(lambda text: [], VOCABULARY).matcher().allowed()


def test_signals_among_allowed_tokens_by_hand_and_by_differences() -> None:
    """Logits 0, log 2, log 3 with the last one denied: probabilities 1/3 and 2/3."""
    weight = torch.tensor([[0.0], [2.0], [3.0]], dtype=torch.float64).log()
    weight[0] = 0.0
    ids, place = torch.tensor([0, 1]), torch.tensor([0, 0])
    other = Compared(
        logits_of=lambda h: h.new_zeros(len(h), 3),
        hidden_TD=torch.zeros(2, 1, dtype=torch.float64),
        needs=frozenset({Signal("reverse_kl", of="base"), Signal("forward_kl", of="base")}),
    )

    def signals(hidden_TD: torch.Tensor) -> dict[Signal, torch.Tensor]:
        return token_signals(
            lambda h: h @ weight.T,
            hidden_TD,
            torch.tensor([1, 2]),
            vocabulary_size=3,
            temperature=1.0,
            needs=frozenset({ENTROPY}) | other.needs,
            others=(other,),
            allowed=(ids, place),
        )

    one = torch.ones(2, 1, dtype=torch.float64)
    found = signals(one)
    assert found[LOGP].exp().tolist() == pytest.approx([2 / 3, 1 / 2], abs=1e-6), "the second token may be every one"
    h = -(np.log(1 / 3) / 3 + 2 * np.log(2 / 3) / 3)
    assert found[ENTROPY][0].item() == pytest.approx(h, abs=1e-6)
    assert found[Signal("reverse_kl", of="base")][0].item() == pytest.approx(np.log(2) - h, abs=1e-6)
    assert found[Signal("forward_kl", of="base")][0].item() == pytest.approx(
        -np.log(2) - (np.log(1 / 3) + np.log(2 / 3)) / 2, abs=1e-6
    )
    given = one.requires_grad_()
    found = signals(given)
    found[LOGP][0].backward()
    assert given.grad is not None and given.grad[0].item() == pytest.approx(np.log(2) / 3, abs=1e-5), "d log p(1) / dh"
