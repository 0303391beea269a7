"""The exact divergence of one model from another, token by token, over the whole vocabulary.

T tokens, V vocabulary, D width. Logits of both models exist for a chunk of the tokens at a time.
"""

import torch
from torch import Tensor

from posttrain.policies import Packed, Policy
from posttrain.policies._signals import CHUNK_LOGITS, MIN_CHUNK


@torch.no_grad()
def exact_kl(
    policy: Policy, reference: Policy, packed: Packed, positions_T: Tensor, *, temperature: float, chunk_logits: int = 0
) -> Tensor:
    """[T] KL(policy || reference), in nats, between what each gives for the tokens at `positions_T`."""
    bodies = (policy.body, reference.body)
    sizes = [body.vocabulary_size for body in bodies]
    assert sizes[0] == sizes[1], "a divergence is between models of one vocabulary"
    chunk = max(MIN_CHUNK, (chunk_logits or CHUNK_LOGITS) // sizes[0])
    before = [body.hidden(packed).index_select(0, packed.before(positions_T)) for body in bodies]
    found = []
    for begin in range(0, max(1, len(positions_T)), chunk):
        logp_TV, other_TV = (
            (body.logits(hidden_TD[begin : begin + chunk]).float() / temperature).log_softmax(-1)
            for body, hidden_TD in zip(bodies, before, strict=True)
        )
        found.append((logp_TV.exp() * (logp_TV - other_TV)).sum(-1))
    return torch.cat(found)
