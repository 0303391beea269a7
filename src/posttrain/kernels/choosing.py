"""Sampling of tokens on a GPU for rows without truncation, in three passes over the logits, without synchronization.

The same in torch's operations is a dozen passes over float64 copies of the logits, which for a small model and a large
vocabulary takes longer than the model (`posttrain.engines._truncation` has them, and defines the choice).

B rows, V vocabulary.
"""

from typing import Final

import torch
from torch import Tensor

from posttrain.kernels import paged
from posttrain.kernels.paged import power_of_2

BLOCK: Final = 4096
"""Tokens of the vocabulary per program."""


def usable(device: torch.device) -> bool:
    """Whether `choose` takes logits of a device."""
    return not paged.why_not(device) or (paged.interpreted() and device.type == "cpu")


def choose(logits_BV: Tensor, temperature_B: Tensor, uniform_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A token of each row, int64 [B], its log-probability and the row's entropy, float64 [B], on the logits' device.

    Temperatures and draws are float64, on the host or the device. A row with NaN or infinity, or without a finite
    logit, gets NaN. Check `usable` first.
    """
    from posttrain.kernels import _triton

    logits_BV, device = logits_BV.contiguous(), logits_BV.device
    temperature_B, uniform_B = (given.to(device, non_blocking=True) for given in (temperature_B, uniform_B))
    rows, columns = logits_BV.shape
    blocks = -(-columns // BLOCK)
    largest, sums, energies = (torch.empty(rows, blocks, dtype=torch.float64, device=device) for _ in range(3))
    at, broken = (torch.empty(rows, blocks, dtype=torch.int32, device=device) for _ in range(2))
    token_B = torch.empty(rows, dtype=torch.int64, device=device)
    logp_B, entropy_B = (torch.empty(rows, dtype=torch.float64, device=device) for _ in range(2))
    of, every = (logits_BV, columns, blocks), power_of_2(blocks)
    _triton.largest_logits[(rows, blocks)](*of, largest, at, broken, BLOCK=BLOCK)
    _triton.sums_of_weights[(rows, blocks)](*of, largest, temperature_B, sums, energies, BLOCK=BLOCK, BLOCKS=every)
    found = (largest, at, broken, sums, energies, temperature_B, uniform_B, token_B, logp_B, entropy_B)
    _triton.chosen_tokens[(rows,)](*of, *found, BLOCK=BLOCK, BLOCKS=every)
    return token_B, logp_B, entropy_B
