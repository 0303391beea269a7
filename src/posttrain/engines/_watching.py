"""Draws among allowed tokens, and the likeliest tokens at a place, for requests that are watched (`Watch`).

Both read one row of logits alone, so that what they give does not depend on the rest of the batch.

B rows, V vocabulary, K likeliest tokens.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from posttrain.engines._truncation import Rules, choose, log_totals
from posttrain.types import FloatArray, IntArray


def choose_allowed(
    logits_1V: Tensor, rules: Rules, uniform_1: Tensor, allowed_V: NDArray[np.bool_]
) -> tuple[Tensor, Tensor]:
    """As `choose` for one row, among allowed tokens; the log-probability is that of the whole distribution.

    It is minus infinity for a token that has no probability where no allowed one has any; NaN as in `choose`.
    """
    allowed_1V = torch.from_numpy(allowed_V).to(logits_1V.device)[None]
    lowest = torch.finfo(logits_1V.dtype).min  # an allowed token is there, however unlikely
    token_1, checked_1, _ = choose(logits_1V.clamp(min=lowest).where(allowed_1V, -torch.inf), rules, uniform_1)
    temperature = float(rules.temperature_B[0]) or 1.0
    largest_11, log_total_11 = log_totals(logits_1V, temperature)
    logp_1 = ((logits_1V.double().gather(1, token_1[:, None]) - largest_11) / temperature - log_total_11)[:, 0]
    return token_1, torch.where(checked_1.isnan(), checked_1, logp_1)


def likeliest(
    logits_1V: Tensor, temperature: float, count: int, chosen: tuple[int, float]
) -> tuple[IntArray, FloatArray]:
    """[1, K] the likeliest tokens, then by id, and their log-probabilities at the temperature (at 1 where it is 0).

    `chosen` is the token that was drawn and its log-probability, which is taken as it is.
    """
    largest_11, log_total_11 = log_totals(logits_1V, temperature or 1.0)
    logit_V = logits_1V[0].double().cpu().numpy()
    bound = np.partition(logit_V, len(logit_V) - count)[len(logit_V) - count]
    candidates = np.flatnonzero(logit_V >= bound)
    ids_K = candidates[np.lexsort((candidates, -logit_V[candidates]))][:count]
    logp_K = (logit_V[ids_K] - float(largest_11)) / (temperature or 1.0) - float(log_total_11)
    token, logp = chosen
    logp_K[ids_K == token] = logp
    return ids_K[None], logp_K[None].astype(np.float32)
