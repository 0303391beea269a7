"""Beams over a prefix trie of given texts, and their exact log-probabilities."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from posttrain.policies import Packed, Policy
from posttrain.types import FloatArray, IntArray


@dataclass(eq=False)
class Trie:
    """Sequences of tokens by their prefixes."""

    children: "dict[int, Trie]" = field(default_factory=dict)

    @classmethod
    def of(cls, sequences: Iterable[Sequence[int]]) -> "Trie":
        """The trie of some sequences, none of which is a prefix of another (all end with the same token)."""
        root = cls()
        for sequence in sequences:
            node = root
            for token in sequence:
                node = node.children.setdefault(int(token), cls())
        return root

    def after(self, prefix: Sequence[int]) -> list[int]:
        """Tokens that may follow a prefix, rising; none after a whole sequence and after an unknown prefix."""
        node: Trie | None = self
        for token in prefix:
            node = node.children.get(int(token)) if node is not None else None
        return sorted(node.children) if node is not None else []


def beams(
    policy: Policy, prompt: IntArray, trie: Trie, width: int, *, renormalized: bool = False
) -> list[tuple[tuple[int, ...], float]]:
    """The likeliest sequences of a trie after a prompt with their log-probabilities, the likeliest first.

    Log-probabilities are sums of those of the full vocabulary; `renormalized` has those over the tokens that may follow
    in their place. Sequences that end wait among the beams. A beam as wide as the trie has all of them.
    """
    open_: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    ended: list[tuple[tuple[int, ...], float]] = []
    while open_:
        following = _next_logp(policy, [np.concatenate([prompt, np.array(p, np.int64)]) for p, _ in open_])
        grown = []
        for (prefix, total), logp_V in zip(open_, following, strict=True):
            allowed = trie.after(prefix)
            own = logp_V[allowed]
            own = own - _log_sum(own) if renormalized else own
            grown += [((*prefix, token), total + float(x)) for token, x in zip(allowed, own, strict=True)]
        best = sorted([*grown, *ended], key=lambda one: -one[1])[:width]
        ended = [one for one in best if not trie.after(one[0])]
        open_ = [one for one in best if trie.after(one[0])]
    return ended


def _log_sum(logp: FloatArray) -> float:
    return float(np.logaddexp.reduce(logp.astype(np.float64)))


def _next_logp(policy: Policy, sequences: Sequence[IntArray]) -> list[FloatArray]:
    """For each sequence the [V] log-probabilities of its next token, float64."""
    device = next(policy.parameters()).device
    ends = np.cumsum([len(ids) for ids in sequences])
    ids_L = torch.as_tensor(np.concatenate(sequences), dtype=torch.int64, device=device)
    packed = Packed(token_ids_L=ids_L, starts=(0, *(int(end) for end in ends)))
    with torch.no_grad():
        last = policy.body.hidden(packed)[torch.as_tensor(ends - 1, device=device)]
        logp = policy.body.logits(last).double().log_softmax(-1)
    return list(logp.cpu().numpy())
