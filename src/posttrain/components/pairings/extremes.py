"""The best rollout of a task preferred to the worst, by the reward; none where all score the same.

Source: the pairs of eva, Ye et al. 2024, arXiv:2411.00062 (ZIYU-DEEP/eva at d605e6f, reward_hf.py): the responses with
the highest and the lowest of the reward model's scores. Of equal ones the first is taken. `margin` is the difference of
the scores, which is also the paper's informativeness of a prompt.

Differs: a prompt whose rollouts all score the same gives no pair; in the release it gives one of two equal responses.
"""

from posttrain.component import frozen
from posttrain.components.pairings import EQUAL, NOTHING_SCORED, Paired, Pairing, Rollouts, value_of
from posttrain.types import Preference


@frozen
class Extremes(Pairing):
    """Pairs the highest with the lowest score."""

    @property
    def gives(self) -> frozenset[str]:
        """The difference of the scores."""
        return frozenset({"margin"})

    async def pair(self, rollouts: Rollouts) -> Paired:
        """One pair, or none."""
        found = rollouts.usable
        if not found:
            return Paired(reason=NOTHING_SCORED)
        best, worst = max(found, key=value_of), min(found, key=value_of)
        margin = value_of(best) - value_of(worst)
        if margin <= 0:
            return Paired(reason=EQUAL)
        fields = {"rule": self.kind, "margin": margin, "origin": [rollouts.origin(best), rollouts.origin(worst)]}
        return Paired(pairs=(Preference(chosen=best.completion, rejected=worst.completion, fields=fields),))
