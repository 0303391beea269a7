import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from posttrain.engines._truncation import Rules, choose, invert, truncate

Row = tuple[float, int, float, float]
"""temperature, top_k, top_p, min_p."""


def rules(*rows: Row) -> Rules:
    temperature, top_k, top_p, min_p = zip(*rows, strict=True)
    return Rules(
        temperature_B=torch.tensor(temperature, dtype=torch.float64),
        top_k_B=torch.tensor(top_k),
        top_p_B=torch.tensor(top_p, dtype=torch.float64),
        min_p_B=torch.tensor(min_p, dtype=torch.float64),
    )


def kept(logits: list[float], row: Row) -> list[int]:
    """Ids that can be drawn."""
    weights = ((torch.tensor([logits], dtype=torch.float64) - max(logits)) / row[0]).exp()
    return truncate(weights, rules(row))[0].nonzero()[:, 0].tolist()


def slow(logits: list[float], row: Row, draw: float) -> tuple[int, float]:
    """One row, in plain Python. Leaves out cases in which rounding decides."""
    temperature, top_k, top_p, min_p = row
    scaled = [x / (temperature or 1.0) for x in logits]
    total = math.fsum(math.exp(x - max(scaled)) for x in scaled)
    p = [math.exp(x - max(scaled)) / total for x in scaled]
    ranked = sorted(range(len(p)), key=lambda i: (-p[i], i))
    if temperature == 0:
        return ranked[0], math.log(p[ranked[0]])
    if top_k:
        ranked = ranked[:top_k]
    if top_p < 1:
        share = [p[i] / math.fsum(p[j] for j in ranked) for i in ranked]
        before = [math.fsum(share[:r]) for r in range(len(share))]
        assume(all(abs(b - top_p) > 1e-12 for b in before))
        ranked = [i for i, b in zip(ranked, before, strict=True) if b < top_p]
    assume(all(abs(p[i] - min_p * max(p)) > 1e-12 for i in ranked) or not min_p)
    ranked = [i for i in ranked if p[i] >= min_p * max(p)]
    mass, reached = math.fsum(p[i] for i in ranked), 0.0
    for i in sorted(ranked):
        reached += p[i]
        assume(abs(reached / mass - draw) > 1e-12 or i == max(ranked))
        if reached / mass > draw or i == max(ranked):
            return i, math.log(p[i])
    raise AssertionError


row_settings = st.tuples(
    st.sampled_from([0.0, 0.3, 0.7, 1.0, 2.5]),
    st.integers(0, 12),
    st.sampled_from([1.0, 0.95, 0.9, 0.5, 0.1, 1e-6]),
    st.sampled_from([0.0, 0.02, 0.1, 0.5, 0.99]),
)
logit = st.integers(-12 * 1024, 12 * 1024).map(lambda i: i / 1024) | st.sampled_from([0.0, 1.0, 2.0])
draws = st.floats(0, 1, exclude_max=True)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.integers(1, 9), st.data())
def test_a_mixed_batch_equals_the_slow_reference_row_by_row(vocabulary: int, data: st.DataObject):
    n = data.draw(st.integers(1, 4))
    logits = [data.draw(st.lists(logit, min_size=vocabulary, max_size=vocabulary)) for _ in range(n)]
    rows, draw = [data.draw(row_settings) for _ in range(n)], [data.draw(draws) for _ in range(n)]
    wanted = [slow(*row) for row in zip(logits, rows, draw, strict=True)]
    token, logp, entropy = choose(torch.tensor(logits), rules(*rows), torch.tensor(draw, dtype=torch.float64))
    assert token.tolist() == [i for i, _ in wanted]
    assert logp.tolist() == pytest.approx([x for _, x in wanted], abs=1e-12)
    by = torch.tensor([[row[0] or 1.0] for row in rows], dtype=torch.float64)
    logp_BV = (torch.tensor(logits, dtype=torch.float64) / by).log_softmax(1)
    assert entropy.tolist() == pytest.approx((-logp_BV.exp() * logp_BV).sum(1).tolist(), abs=1e-9)


# exp of these logits relative to the first: 1, 1/2, 1/4, 1/4 of the likeliest; probabilities 1/2, 1/4, 1/8, 1/8.
HALVES = [0.0, math.log(0.5), math.log(0.25), math.log(0.25)]


def test_the_order_is_top_k_then_top_p_of_what_is_left_then_min_p():
    assert kept(HALVES, (1.0, 0, 0.74, 0.0)) == [0, 1]  # 1/2 < 0.74 <= 3/4
    assert kept(HALVES, (1.0, 2, 0.66, 0.0)) == [0]  # of the two that top-k keeps, the first has 2/3
    assert kept(HALVES, (1.0, 0, 1.0, 0.2)) == [0, 1, 2, 3]
    assert kept(HALVES, (1.0, 3, 1.0, 0.2)) == [0, 1, 2]
    assert kept(HALVES, (1.0, 3, 1.0, 0.3)) == [0, 1]


def test_temperature_comes_first():
    assert kept(HALVES, (0.5, 0, 0.75, 0.0)) == [0, 1]  # 8/11, 2/11, ...: 8/11 < 0.75
    assert kept(HALVES, (0.5, 0, 0.72, 0.0)) == [0]
    assert kept(HALVES, (0.5, 0, 1.0, 0.24)) == [0, 1]  # the second is a quarter as likely now
    assert kept(HALVES, (0.5, 0, 1.0, 0.26)) == [0]


def test_ties_go_to_the_lower_id_and_edges_are_exact():
    assert kept([0.0] * 4, (1.0, 2, 1.0, 0.0)) == [0, 1]
    assert kept([0.0, 1.0, 1.0, 1.0], (1.0, 2, 1.0, 0.0)) == [1, 2]
    assert kept([0.0] * 4, (1.0, 0, 0.5, 0.0)) == [0, 1]  # reached exactly: the third is not needed
    assert kept([0.0] * 4, (1.0, 0, 0.5000001, 0.0)) == [0, 1, 2]
    assert kept([0.0] * 4, (1.0, 0, 1e-9, 0.0)) == [0]  # one token always stays
    assert kept([0.0] * 4, (1.0, 0, 1.0, 0.999)) == [0, 1, 2, 3]
    weights = torch.tensor([[1.0, 0.5, 0.25, 0.25]], dtype=torch.float64)
    assert truncate(weights, rules((1.0, 0, 1.0, 0.25))).tolist() == weights.tolist()
    assert truncate(weights, rules((1.0, 0, 0.75, 0.25))).tolist() == [[1.0, 0.5, 0.0, 0.0]]
    token, logp, _ = choose(torch.tensor([[1.0, 3.0, 3.0]]), rules((0.0, 0, 1.0, 0.0)), torch.zeros(1).double())
    assert token.tolist() == [1]
    assert logp.item() == pytest.approx(-math.log(2 + math.exp(-2)), abs=1e-15)


@pytest.mark.parametrize("row", [(1.0, 0, 1.0, 0.0), (1.0, 4, 1.0, 0.0), (1.0, 7, 1.0, 0.0)])
def test_settings_that_keep_everything_change_nothing(row: Row):
    assert kept([0.0, -50.0, -700.0, 3.0], row) == [0, 1, 2, 3]


def test_the_draw_is_inverted_in_the_order_of_the_ids():
    def token(draw: float, row: Row = (1.0, 0, 1.0, 0.0)) -> int:
        return choose(torch.zeros(1, 4), rules(row), torch.tensor([draw], dtype=torch.float64))[0].item()

    assert [token(x) for x in (0.0, 0.2499, 0.25, 0.5, 0.75, 1 - 2**-53)] == [0, 0, 1, 2, 3, 3]
    assert [token(x, (1.0, 2, 1.0, 0.0)) for x in (0.0, 0.4999, 0.5, 1 - 2**-53)] == [0, 0, 1, 1]


def test_the_ends_never_pick_an_impossible_token():
    weights = torch.tensor([[0.0, 0.0, 3.0, 0.0, 5.0, 0.0]], dtype=torch.float64)
    ends = [invert(weights, torch.tensor([u], dtype=torch.float64)).item() for u in (0.0, 1 - 2**-53, 3 / 8)]
    assert ends == [2, 4, 4]


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e3) | st.just(0.0), min_size=1, max_size=20), draws | st.just(1 - 2**-53))
def test_what_is_drawn_has_weight(weights: list[float], draw: float):
    assume(sum(weights) > 1e-300)
    weight_BV = torch.tensor([weights], dtype=torch.float64)
    assert weight_BV[0, invert(weight_BV, torch.tensor([draw], dtype=torch.float64)).item()] > 0


def test_a_sum_that_is_not_monotone_is_repaired(monkeypatch: pytest.MonkeyPatch):
    weights = torch.tensor([[1.0, 0.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    uneven = torch.tensor([[1.0, 1.1, 1.1, 2.0, 2.1]], dtype=torch.float64)  # as if rounding had added to empty places
    monkeypatch.setattr(Tensor, "cumsum", lambda self, dim: uneven)
    drawn = [invert(weights, torch.tensor([u], dtype=torch.float64)).item() for u in (0.1, 0.5, 0.999)]
    assert drawn == [0, 3, 3]


def test_the_log_probability_is_that_of_the_whole_vocabulary_at_the_temperature():
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    _, logp, _ = choose(logits, rules((0.5, 1, 0.5, 0.9)), torch.tensor([0.99], dtype=torch.float64))
    assert logp.item() == pytest.approx((logits[0].double() / 0.5).log_softmax(0)[0].item(), abs=1e-15)


def test_the_entropy_is_that_of_the_whole_vocabulary_at_the_temperature():
    """Shares of 4, 2, 1, 1 eighths, and at half the temperature those of their squares."""
    for row, shares in (
        ((1.0, 0, 1.0, 0.0), [1 / 2, 1 / 4, 1 / 8, 1 / 8]),
        ((1.0, 1, 0.5, 0.9), [1 / 2, 1 / 4, 1 / 8, 1 / 8]),
        ((0.0, 0, 1.0, 0.0), [1 / 2, 1 / 4, 1 / 8, 1 / 8]),
        ((0.5, 0, 1.0, 0.0), [16 / 22, 4 / 22, 1 / 22, 1 / 22]),
    ):
        _, _, entropy = choose(torch.tensor([HALVES]).double(), rules(row), torch.tensor([0.6]).double())
        assert entropy.item() == pytest.approx(-sum(p * math.log(p) for p in shares), abs=1e-7)


def test_masked_tokens_are_possible_input_and_never_drawn():
    logits = torch.tensor([[-math.inf, 0.0, -math.inf]])
    for row in [(1.0, 0, 1.0, 0.0), (1.0, 2, 0.9, 0.1), (0.0, 0, 1.0, 0.0)]:
        token, logp, entropy = choose(logits, rules(row), torch.tensor([0.9], dtype=torch.float64))
        assert (token.item(), logp.item(), entropy.item()) == (1, 0.0, 0.0)


def test_a_tiny_temperature_is_greedy_and_finite():
    token, logp, entropy = choose(
        torch.tensor([[5.0, 6.0]]), rules((1e-310, 0, 1.0, 0.0)), torch.tensor([0.0]).double()
    )
    assert (token.item(), logp.item(), entropy.item()) == (1, 0.0, 0.0)


@pytest.mark.parametrize("bad", [[math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf]])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_broken_logits_give_nan_for_their_row_alone(bad: list[float], temperature: float):
    logits = torch.tensor([bad, [0.0, 0.0]])
    _, logp, entropy = choose(logits, rules(*[(temperature, 0, 1.0, 0.0)] * 2), torch.tensor([0.2, 0.2]).double())
    assert logp.isnan().tolist() == entropy.isnan().tolist() == [True, False]
    assert entropy[1].item() == pytest.approx(math.log(2))


def test_logits_of_low_precision_are_not_changed_in_place():
    logits = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    choose(logits, rules((0.5, 1, 1.0, 0.0)), torch.tensor([0.5]).double())
    assert logits.tolist() == [[1.0, 2.0]]


def test_drawn_tokens_follow_the_truncated_distribution():
    n, logits = 20_000, torch.tensor([0.5, 1.5, 0.0, 1.0, -2.0])
    draw = torch.from_numpy(np.random.default_rng(0).random(n))
    token, _, _ = choose(logits.expand(n, 5), rules(*[(0.8, 4, 0.9, 0.05)] * n), draw)
    p = (logits.double() / 0.8).softmax(0)  # ranks: 1, 3, 0, 2, 4; top-k drops 4, top-p drops 2
    p[[2, 4]] = 0
    expected = (p / p.sum() * n).numpy()
    counts = np.bincount(token.numpy(), minlength=5)
    assert counts[[2, 4]].tolist() == [0, 0]
    possible = expected > 0
    assert ((counts - expected)[possible] ** 2 / expected[possible]).sum() < 20  # 2 degrees of freedom: p < 5e-5


@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", [261, 32769])
def test_a_row_is_the_same_to_the_bit_in_any_company(vocabulary: int) -> None:
    """Rows that drop tokens, rows that do not, and greedy ones, each by itself and beside all others."""
    kinds: list[Row] = [
        (1.0, 0, 1.0, 0.0),
        (0.7, 0, 0.9, 0.0),
        (0.0, 0, 1.0, 0.0),
        (1.0, 5, 1.0, 0.0),
        (2.5, 0, 1.0, 0.1),
    ]
    rows = kinds * 6
    made = torch.Generator().manual_seed(1)
    logits_BV = torch.randn(len(rows), vocabulary, generator=made) * 3
    uniform_B = torch.rand(len(rows), generator=made, dtype=torch.float64)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        together = choose(logits_BV, rules(*rows), uniform_B)
        alone = [choose(logits_BV[i : i + 1], rules(row), uniform_B[i : i + 1]) for i, row in enumerate(rows)]
    finally:
        torch.set_num_threads(threads)
    for i, numbers in enumerate(together):
        assert numbers.tolist() == [row[i].item() for row in alone]
