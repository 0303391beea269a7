"""How much success a thought leaves out, compared with one that would be right from the first token on.

Source: the regret of Meta Reinforcement Fine-Tuning, arXiv:2503.07572, as its release computes it (CMU-AIRe/MRT at
1815a8c, the notebook of regret). With the success J of an answer that is forced after c tokens, from J(0) = 0,

    normalised regret = 1 - (area under J over [0, C]) / C

by trapezoids, in [0, 1]; a thought that ends before C keeps its last success, and one that is longer is cut there.
"""

from collections.abc import Sequence


def normalised_regret(tokens: Sequence[float], success: Sequence[float], limit: float) -> float:
    """Of one thought. `tokens` ascend and are above 0; `success` is in [0, 1]; `limit` is C, above 0.

    Without a point the regret is 1.
    """
    area, before, height = 0.0, 0.0, 0.0
    for place, value in zip(tokens, success, strict=True):
        end = min(float(place), limit)
        if place > before and end > before:
            at_end = height + (value - height) * (end - before) / (float(place) - before)
            area += (end - before) * (height + at_end) / 2
        before, height = float(place), value
        if before >= limit:
            break
    if before < limit:
        area += (limit - before) * height
    return 1.0 - area / limit
