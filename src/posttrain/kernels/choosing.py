"""The choice of a token on a GPU for rows that keep all tokens, in three passes over the logits and without a wait.

The same in torch's operations is a dozen passes over float64 copies of the logits, which for a small model and a large
vocabulary takes longer than the model (`posttrain.engines._truncation` has them, and says what is chosen).

B rows, V vocabulary.
"""

from typing import Final

import torch
from torch import Tensor

from posttrain.kernels.paged import power_of_2

BLOCK: Final = 4096
"""Tokens of the vocabulary that a program looks at."""


def choose(logits_BV: Tensor, temperature_B: Tensor, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """A token of each row, int64 [B], and its log-probability, float64 [B], on the device of the logits.

    Temperatures and draws are float64, on the host or there. A row with NaN or infinity, or nothing finite, gets NaN.
    Ask `posttrain.kernels.paged.usable` first.
    """
    from posttrain.kernels import _triton

    logits_BV, device = logits_BV.contiguous(), logits_BV.device
    temperature_B, uniform_B = (given.to(device, non_blocking=True) for given in (temperature_B, uniform_B))
    rows, columns = logits_BV.shape
    blocks = -(-columns // BLOCK)
    largest, sums = (torch.empty(rows, blocks, dtype=torch.float64, device=device) for _ in range(2))
    at, broken = (torch.empty(rows, blocks, dtype=torch.int32, device=device) for _ in range(2))
    token_B = torch.empty(rows, dtype=torch.int64, device=device)
    logp_B = torch.empty(rows, dtype=torch.float64, device=device)
    of, every = (logits_BV, columns, blocks), power_of_2(blocks)
    _triton.largest_logits[(rows, blocks)](*of, largest, at, broken, BLOCK=BLOCK)
    _triton.sums_of_weights[(rows, blocks)](*of, largest, temperature_B, sums, BLOCK=BLOCK, BLOCKS=every)
    found = (largest, at, broken, sums, temperature_B, uniform_B, token_B, logp_B)
    _triton.chosen_tokens[(rows,)](*of, *found, BLOCK=BLOCK, BLOCKS=every)
    return token_B, logp_B
