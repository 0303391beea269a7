"""Sampling from logits: temperature, top-k, top-p, min-p, then one uniform draw.

Tokens are ranked by probability, likeliest first, and by id where probabilities tie.

1. temperature   divides the logits; 0 takes the first-ranked token, and the rest of this list does not apply
2. top-k         keeps the first k ranks: exactly k, also where probabilities tie
3. top-p         keeps a rank while the ranks before it hold less than top-p of what top-k kept: the shortest list that
                 reaches top-p, the token that reaches it included
4. min-p         keeps what is at least min-p times as likely as the likeliest token
5. draw          the first token, in the order of the ids, at which the cumulative share of what is kept exceeds it

The returned log-probability and entropy are those of step 1: over the whole vocabulary, at temperature 1 for a greedy
row. All steps are computed in float64 on weights relative to the likeliest token, so that ties and equal shares are
exact.

B rows, V vocabulary.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from posttrain import kernels
from posttrain.kernels import choosing, paged


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Sampling settings of each row; see `posttrain.engines.Sampling`. Tensors on the host, where they are read without
    waiting for a GPU.
    """

    temperature_B: Tensor
    """float64."""
    top_k_B: Tensor
    """int64."""
    top_p_B: Tensor
    """float64."""
    min_p_B: Tensor
    """float64."""

    def keep_all(self, vocabulary: int) -> Tensor:
        """Bool [B]: rows that drop no token."""
        all_ranks_B = (self.top_k_B == 0) | (self.top_k_B >= vocabulary)
        return all_ranks_B & (self.top_p_B >= 1) & (self.min_p_B <= 0)

    def of(self, rows: Tensor) -> "Rules":
        """Those of some rows."""
        return Rules(
            temperature_B=self.temperature_B[rows],
            top_k_B=self.top_k_B[rows],
            top_p_B=self.top_p_B[rows],
            min_p_B=self.min_p_B[rows],
        )


def choose(logits_BV: Tensor, rules: Rules, uniform_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sample a token for each row. Returns int64 [B], its log-probability and the entropy of the distribution in nats,
    both float64 [B], on the device of the logits.

    Rules and draws are on the host. A row with NaN or positive infinity among its logits, or without a finite one, has
    NaN for both. The kernel of a row depends on its own rules only, never on those of other rows, since two
    kernels differ in the last bit.
    """
    fast = kernels.choose if kernels.usable(logits_BV) else choosing.choose if paged.usable(logits_BV) else None
    if fast is None:
        return _choose(logits_BV, rules, uniform_B)
    kept_B = rules.keep_all(logits_BV.shape[1])
    if bool(kept_B.all()):
        return fast(logits_BV, rules.temperature_B, uniform_B)
    if not bool(kept_B.any()):
        return _choose(logits_BV, rules, uniform_B)
    token_B = torch.empty(len(logits_BV), dtype=torch.int64, device=logits_BV.device)
    logp_B, entropy_B = (torch.empty_like(token_B, dtype=torch.float64) for _ in range(2))
    for row_B, chosen in (
        (kept_B, lambda logits, own, uniform: fast(logits, own.temperature_B, uniform)),
        (~kept_B, _choose),
    ):
        rows = row_B.nonzero()[:, 0]
        there = _there(rows, logits_BV)
        token_B[there], logp_B[there], entropy_B[there] = chosen(logits_BV[there], rules.of(rows), uniform_B[rows])
    return token_B, logp_B, entropy_B


def _choose(logits_BV: Tensor, rules: Rules, uniform_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """As `choose`, by operations of torch."""
    greedy_B, all_greedy = _there(rules.temperature_B == 0, logits_BV), bool((rules.temperature_B == 0).all())
    temperature_B = _there(rules.temperature_B, logits_BV)
    scaled_BV = logits_BV.to(torch.float64, copy=True)
    best_B1, argmax_B1 = scaled_BV.max(dim=1, keepdim=True)
    scaled_BV -= best_B1  # before the division, so that a tiny temperature gives minus infinity, not NaN
    scaled_BV /= torch.where(greedy_B, 1.0, temperature_B)[:, None]
    weight_BV = scaled_BV.exp()
    total_B1 = _row_sums(weight_BV)
    log_total_B1 = total_B1.log()
    energy_B1 = _row_sums((weight_BV * scaled_BV).where(weight_BV != 0, 0.0))
    token_B1 = argmax_B1
    if not all_greedy:
        drawn_B1 = invert(truncate(weight_BV, rules), _there(uniform_B, logits_BV))
        token_B1 = torch.where(greedy_B[:, None], argmax_B1, drawn_B1)
    logp_B1 = scaled_BV.gather(1, token_B1) - log_total_B1
    entropy_B1 = log_total_B1 - energy_B1 / total_B1
    return token_B1[:, 0], logp_B1[:, 0], entropy_B1[:, 0]


def log_totals(logits_BV: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """[B, 1] the largest logit and the log of the sum of all weights, float64, at a positive temperature."""
    scaled_BV = logits_BV.to(torch.float64, copy=True)
    largest_B1 = scaled_BV.max(dim=1, keepdim=True).values
    scaled_BV -= largest_B1
    scaled_BV /= temperature
    return largest_B1, _row_sums(scaled_BV.exp()).log()


def _row_sums(weight_BV: Tensor) -> Tensor:
    """[B, 1]. One long row by itself would be added by several threads, which rounds differently: it gets a twin."""
    alone = weight_BV if len(weight_BV) != 1 else weight_BV.repeat(2, 1)
    return alone.sum(dim=1, keepdim=True)[: len(weight_BV)]


def _there(given_B: Tensor, like: Tensor) -> Tensor:
    """A host tensor on the device of another one. The copy is asynchronous; an unpinned source may be changed
    afterwards.
    """
    return given_B.to(like.device, non_blocking=True)


def truncate(weight_BV: Tensor, rules: Rules) -> Tensor:
    """Weights with zeros for the tokens that each row's rules drop. The largest weight of a row is 1."""
    vocabulary = weight_BV.shape[1]
    top_k_B = torch.where(rules.top_k_B == 0, vocabulary, rules.top_k_B.clamp(max=vocabulary))
    ranked_B = (rules.temperature_B > 0) & ((top_k_B < vocabulary) | (rules.top_p_B < 1))
    kept_BV = weight_BV
    if bool(ranked_B.any()):
        row = ranked_B.nonzero()[:, 0]
        rows, top_k, top_p = (_there(given, weight_BV) for given in (row, top_k_B[row], rules.top_p_B[row]))
        kept_BV = weight_BV.index_copy(0, rows, _truncate_ranks(weight_BV[rows], top_k, top_p))
    if bool((rules.min_p_B > 0).any()):
        kept_BV = kept_BV.where(weight_BV >= _there(rules.min_p_B, weight_BV)[:, None], 0.0)
    return kept_BV


def _truncate_ranks(weight_BV: Tensor, top_k_B: Tensor, top_p_B: Tensor) -> Tensor:
    """Weights with zeros outside of top-k and top-p."""
    ranked_BV, order_BV = weight_BV.sort(dim=1, descending=True, stable=True)
    rank_V = torch.arange(weight_BV.shape[1], device=weight_BV.device)
    ranked_BV = ranked_BV.where(rank_V < top_k_B[:, None], 0.0)
    reached_BV = ranked_BV.cumsum(dim=1)
    before_BV = F.pad(reached_BV[:, :-1], (1, 0))
    short_BV = (before_BV < top_p_B[:, None] * reached_BV[:, -1:]) | (top_p_B[:, None] == 1)
    return torch.zeros_like(weight_BV).scatter(1, order_BV, ranked_BV.where(short_BV, 0.0))


def invert(weight_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """[B, 1] first token at which the cumulative share of the weights exceeds the draw; never one of weight zero."""
    reached_BV = weight_BV.cumsum(dim=1)
    target_B1 = uniform_B[:, None] * reached_BV[:, -1:]
    token_B1 = torch.searchsorted(reached_BV, target_B1, right=True).clamp(max=weight_BV.shape[1] - 1)
    lost_B = weight_BV.gather(1, token_B1)[:, 0] == 0
    if bool(lost_B.any()):  # A parallel scan need not be monotone to the last bit: take the next possible token.
        rows = lost_B.nonzero()[:, 0]
        token_B1 = token_B1.index_copy(0, rows, _nearest_possible(weight_BV[rows], token_B1[rows]))
    return token_B1


def _nearest_possible(weight_BV: Tensor, token_B1: Tensor) -> Tensor:
    """[B, 1] first token of positive weight from `token_B1` on, or else the last one."""
    possible_BV = weight_BV > 0
    id_V = torch.arange(weight_BV.shape[1], device=weight_BV.device)
    after_BV = possible_BV & (id_V >= token_B1)
    last_B1 = torch.where(possible_BV, id_V, 0).amax(dim=1, keepdim=True)
    return torch.where(after_BV.any(dim=1, keepdim=True), after_BV.int().argmax(dim=1, keepdim=True), last_B1)
