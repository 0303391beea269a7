"""Log-probabilities and entropies from logits on a GPU: one pass over the logits, and one for their gradient, which
takes their place.

torch's operations make half a dozen float32 copies of the logits, of gigabytes for a large vocabulary.

T tokens, V vocabulary.
"""

from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from posttrain.kernels import paged

BLOCK: Final = 4096
"""Logits of a row that a program has at a time."""
WARPS: Final = 8


def usable(logits_TV: Tensor) -> bool:
    """Whether the kernels take logits like these."""
    interpreted = paged.interpreted() and logits_TV.device.type == "cpu" and logits_TV.dtype in paged.TYPES
    return paged.usable(logits_TV) or interpreted


def token_signals(
    logits_TV: Tensor, token_T: Tensor, *, temperature: float, entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """As `posttrain.kernels.token_signals`, [T] float32. A row's numbers depend on the row alone.

    The log-probability of a token beyond the vocabulary is NaN: to raise, the host would have to wait.
    """
    logp_T, entropy_T = _TokenSignals.apply(logits_TV, token_T, temperature)  # type: ignore[no-untyped-call]
    return logp_T, entropy_T if entropy else None


class _TokenSignals(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, token: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        from posttrain.kernels import _triton

        logits, token = logits.contiguous(), token.contiguous()
        rows, columns = logits.shape
        logp, entropy, total = (torch.empty(rows, dtype=torch.float32, device=logits.device) for _ in range(3))
        if rows:
            sizes = {"BLOCK": BLOCK, "num_warps": WARPS}
            _triton.signals[(rows,)](logits, columns, token, 1.0 / temperature, logp, entropy, total, **sizes)
        ctx.save_for_backward(logits, token, total, entropy)
        ctx.scale, ctx.gone = 1.0 / temperature, False
        ctx.set_materialize_grads(False)
        return logp, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_logp: Tensor | None, of_entropy: Tensor | None) -> tuple[Tensor | None, ...]:
        from posttrain.kernels import _triton
        from posttrain.kernels._cpu import once_only

        once_only(ctx)
        logits, token, total, entropy = ctx.saved_tensors
        rows, columns = logits.shape
        given = [torch.zeros_like(total) if grad is None else grad.contiguous() for grad in (of_logp, of_entropy)]
        if rows:
            blocks = -(-columns // BLOCK)
            sizes = {"BLOCK": BLOCK, "num_warps": WARPS}
            _triton.signals_gradient[(rows, blocks)](logits, columns, token, ctx.scale, total, entropy, *given, **sizes)
        return logits, None, None
