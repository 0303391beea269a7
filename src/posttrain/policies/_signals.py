"""Log-probabilities, entropies and divergences from hidden states, without holding all logits.

T tokens, V vocabulary, D width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posttrain import kernels
from posttrain.kernels import gpu_signals
from posttrain.policies._memory import recomputed
from posttrain.signals import CERTAINTY, ENTROPY, LOGIT, LOGP, SELF_CERTAINTY, Signal

CHUNK_LOGITS = 1 << 24
"""Logits of a chunk, at least."""
GPU_SHARE = 128
"""On a GPU a chunk has a logit for each 128 bytes of its memory, rounded down to a power of two: with fewer, the
gradients of the matrix to logits are made, and added up, more often.
"""
ONCE = 2
"""As many chunks are one while learning, which saves computing their logits again in the backward pass; of numbers of
half the bytes, twice as many.
"""
_LEAST = -1e30
"""A finite log-probability of what is impossible."""
MIN_CHUNK = 16
"""Tokens in a chunk at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Another model's distributions at the same tokens, and the required signals of them; never differentiated."""

    logits_of: Callable[[Tensor], Tensor]
    hidden_TD: Tensor
    needs: frozenset[Signal]
    """Divergences."""


def token_signals(
    logits_of: Callable[[Tensor], Tensor],
    hidden_TD: Tensor,
    token_T: Tensor,
    *,
    vocabulary_size: int,
    temperature: float,
    needs: frozenset[Signal],
    others: tuple[Compared, ...] = (),
    allowed: tuple[Tensor, Tensor] | None = None,
    chunk_logits: int | None = None,
) -> dict[Signal, Tensor]:
    """[T] log-probability of each token given the hidden state before it, in float32 or better, and if it is needed:
    the entropy, divergences from uniform, the logit over the temperature, and divergences from other models. With
    `allowed` (`Packed.allowed`) all are of the distribution over allowed tokens.

    Where there is more than one chunk, each computes its logits again in the backward pass.
    """
    size = max(MIN_CHUNK, (chunk_logits or chunk_logits_on(hidden_TD.device)) // (vocabulary_size * (1 + len(others))))
    training = torch.is_grad_enabled() and hidden_TD.requires_grad
    once = ONCE * 4 // min(4, hidden_TD.element_size()) if training and not others else 1
    several = len(token_T) > size * once
    hiddens, tokens = (torch.split(x, size) if several else [x] for x in (hidden_TD, token_T))
    found: dict[Signal, list[Tensor]] = {}
    for i, (hidden, token) in enumerate(zip(hiddens, tokens, strict=True)):
        part = slice(i * size, (i + 1) * size)
        names: list[Signal] = []

        def run(hidden: Tensor, token: Tensor = token, part: slice = part, names: list[Signal] = names) -> Any:
            chunk = _chunk(logits_of, hidden, token, temperature, needs, others, part, allowed)
            names[:] = chunk
            return tuple(chunk.values())

        values = recomputed(run, hidden) if several and torch.is_grad_enabled() else run(hidden)
        signals = dict(zip(names, values, strict=True))
        for signal, values_T in signals.items():
            found.setdefault(signal, []).append(values_T)
    return {signal: torch.cat(parts) for signal, parts in found.items()}


def chunk_logits_on(device: torch.device) -> int:
    """Logits of a chunk. The same on all devices of a kind, since how sums are cut decides their last bits."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return CHUNK_LOGITS
    share = torch.cuda.get_device_properties(device).total_memory // GPU_SHARE
    return max(CHUNK_LOGITS, 1 << (share.bit_length() - 1))


def _chunk(
    logits_of: Callable[[Tensor], Tensor],
    hidden_TD: Tensor,
    token_T: Tensor,
    temperature: float,
    needs: frozenset[Signal],
    others: tuple[Compared, ...],
    part: slice,
    allowed: tuple[Tensor, Tensor] | None = None,
) -> dict[Signal, Tensor]:
    """The signals of some tokens. The kernel may put a gradient where the logits were, so that what else is made of
    them must not read them again in the backward pass: gathering, dividing and `log_softmax` do not.
    """
    logits_TV = logits_of(hidden_TD)
    denied_TV = None if allowed is None else _denied(allowed, part, logits_TV)
    if denied_TV is not None:
        logits_TV = logits_TV.masked_fill(denied_TV, -torch.inf)
    by = gpu_signals.token_signals if gpu_signals.usable(logits_TV) else kernels.token_signals
    logp_T, entropy_T = by(logits_TV, token_T, temperature=temperature, entropy=ENTROPY in needs)
    signals = {LOGP: logp_T}
    if entropy_T is not None:
        signals[ENTROPY] = entropy_T
    if LOGIT in needs:
        signals[LOGIT] = logits_TV.gather(1, token_T[:, None])[:, 0].to(logp_T.dtype) / temperature
    if needs & {CERTAINTY, SELF_CERTAINTY}:
        signals |= _from_uniform(_log_softmax(logits_TV, temperature), needs)
    if others:
        logp_TV = _log_softmax(logits_TV, temperature)
        for other in others:
            signals |= _divergences(logp_TV, other, part, temperature, denied_TV)
    return signals


def _denied(allowed: tuple[Tensor, Tensor], part: slice, like_TV: Tensor) -> Tensor:
    """[T, V] which tokens of a part are not allowed."""
    ids_M, place_M = allowed
    own_M = (place_M >= part.start) & (place_M < part.start + len(like_TV))
    denied_TV = torch.zeros(like_TV.shape, dtype=torch.bool, device=like_TV.device)
    denied_TV[place_M[own_M] - part.start] = True
    denied_TV[place_M[own_M] - part.start, ids_M[own_M]] = False
    return denied_TV


def _from_uniform(logp_TV: Tensor, needs: frozenset[Signal]) -> dict[Signal, Tensor]:
    """[T] KL(p || uniform) and KL(uniform || p) in nats, with the uniform over the tokens that are possible."""
    possible_TV = logp_TV.isfinite()
    finite_TV = logp_TV.masked_fill(~possible_TV, 0.0)
    count_T = possible_TV.sum(-1).to(logp_TV.dtype)
    found: dict[Signal, Tensor] = {}
    if CERTAINTY in needs:
        found[CERTAINTY] = count_T.log() + (logp_TV.exp() * finite_TV).sum(-1)
    if SELF_CERTAINTY in needs:
        found[SELF_CERTAINTY] = -count_T.log() - finite_TV.sum(-1) / count_T
    return found


def _divergences(
    logp_TV: Tensor, other: Compared, part: slice, temperature: float, denied_TV: Tensor | None
) -> dict[Signal, Tensor]:
    """[T] required divergences between the other model's distributions and these, in nats."""
    with torch.no_grad():
        logits_TV = other.logits_of(other.hidden_TD[part])
        other_TV = _log_softmax(logits_TV, temperature)
        if denied_TV is not None:
            other_TV = _log_softmax(logits_TV.masked_fill(denied_TV, -torch.inf), temperature)
    if denied_TV is not None:  # both are impossible there: that adds 0
        logp_TV, other_TV = (x_TV.masked_fill(denied_TV, _LEAST) for x_TV in (logp_TV, other_TV))
    return {
        need: (other_TV.exp() * (other_TV - logp_TV)).sum(-1)
        if need.name == "forward_kl"
        else (logp_TV.exp() * (logp_TV - other_TV)).sum(-1)
        for need in sorted(other.needs)
    }


def _log_softmax(logits_TV: Tensor, temperature: float) -> Tensor:
    """[T, V] log-probabilities in float32 or better."""
    logits_TV = logits_TV.to(torch.promote_types(logits_TV.dtype, torch.float32))
    return (logits_TV if temperature == 1.0 else logits_TV / temperature).log_softmax(-1)
