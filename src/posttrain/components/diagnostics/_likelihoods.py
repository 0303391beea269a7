"""Log-probabilities of given tokens under a model, and entropies over the likeliest tokens."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from posttrain.policies import Packed, Policy
from posttrain.signals import ENTROPY, LOGP
from posttrain.types import FloatArray, IntArray

MAX_TOKENS = 8192
"""Tokens in one forward pass."""
CHUNK_LOGITS = 1 << 24
"""Number of logits in memory at a time."""

Written = tuple[IntArray, int]
"""Token ids, and how many of them precede the first one that is measured (at least one)."""


def top_entropies(policy: Policy, written: Sequence[Written], k: int, *, renormalise: bool) -> list[FloatArray]:
    """For each text, [T] entropies in nats of the distributions that its tokens were drawn from; see `top_entropy`."""

    def measure(packed: Packed, positions_T: Tensor) -> Tensor:
        before_TD = policy.body.hidden(packed).index_select(0, packed.before(positions_T))
        size = max(1, CHUNK_LOGITS // policy.body.vocabulary_size)
        parts = [
            top_entropy(policy.body.logits(before_TD[i : i + size]), k, renormalise=renormalise)
            for i in range(0, len(before_TD), size)
        ]
        return torch.cat(parts)

    return _in_passes(policy, written, measure)


def entropies_at(policy: Policy, written: Sequence[Written], temperature: float) -> list[FloatArray]:
    """For each text, [T] entropies in nats of the distributions of its tokens at a temperature."""
    return _in_passes(
        policy,
        written,
        lambda packed, positions_T: policy.evaluate(packed, positions_T, frozenset({ENTROPY}), temperature=temperature)[
            ENTROPY
        ],
    )


def last_states(policy: Policy, written: Sequence[Written]) -> list[FloatArray]:
    """For each text, [T, D] states after its tokens, before the unembedding."""
    return _in_passes(
        policy, written, lambda packed, positions_T: policy.body.hidden(packed).index_select(0, positions_T)
    )


def token_logps(policy: Policy, written: Sequence[Written]) -> list[FloatArray]:
    """For each text, [T] log-probabilities of its tokens."""
    return _in_passes(policy, written, lambda packed, positions_T: policy.evaluate(packed, positions_T)[LOGP])


def top_entropy(logits_TV: Tensor, k: int, *, renormalise: bool) -> Tensor:
    """[T] -sum p log p over the k likeliest tokens (0 takes all), in nats.

    The probabilities are those of the whole vocabulary, so that the sum is over a part of it. With `renormalise` they
    are divided by their own sum first.
    """
    logp_TV = logits_TV.float().log_softmax(-1)
    if 0 < k < logp_TV.shape[1]:
        logp_TV = logp_TV.topk(k, dim=-1).values
    if renormalise:
        logp_TV = logp_TV.log_softmax(-1)
    # A probability of 0 has a logarithm of -inf, and adds 0 to the sum.
    return -torch.nan_to_num(logp_TV.exp() * logp_TV, nan=0.0).sum(-1)


def _in_passes(
    policy: Policy, written: Sequence[Written], measure: Callable[[Packed, Tensor], Tensor]
) -> list[FloatArray]:
    """One number, or one row, for each measured token, from forward passes over a few texts at a time."""
    device = next(policy.parameters()).device
    found: list[FloatArray] = [np.zeros(0, np.float32) for _ in written]
    passes: list[list[int]] = []
    for i in sorted(range(len(written)), key=lambda i: len(written[i][0])):
        ids, before = written[i]
        if len(ids) <= before:
            continue
        if not passes or sum(len(written[j][0]) for j in passes[-1]) + len(ids) > MAX_TOKENS:
            passes.append([])
        passes[-1].append(i)
    for part in passes:
        starts = np.concatenate([[0], np.cumsum([len(written[i][0]) for i in part])])
        places = [
            np.arange(start + written[i][1], start + len(written[i][0])) for start, i in zip(starts, part, strict=False)
        ]
        ids_L = torch.as_tensor(np.concatenate([written[i][0] for i in part]), dtype=torch.int64, device=device)
        packed = Packed(token_ids_L=ids_L, starts=tuple(int(start) for start in starts))
        with torch.no_grad():
            values = measure(packed, torch.as_tensor(np.concatenate(places), device=device)).float().cpu().numpy()
        for i, own in zip(part, np.split(values, np.cumsum([len(p) for p in places])[:-1]), strict=True):
            found[i] = own
    return found
