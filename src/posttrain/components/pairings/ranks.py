"""Every two texts of different rank, with the margin of the reward.

Source: MM-RLHF, Zhang et al. 2025, arXiv:2502.10391, section 4: all pairs of responses with different human ranks, not
only those with the largest difference; the margin is r(chosen) - r(rejected) by a reward model, and negative where it
disagrees with the people. Ranks are the ratings of the data (higher is better) where every text has one; otherwise they
are the scores, which then also give the margins.

Differs: nothing known.
"""

from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.pairings import EQUAL, NOTHING_SCORED, Paired, Pairing, Rollouts, value_of
from posttrain.components.rollouts import DataRating
from posttrain.types import Preference, Trajectory


@frozen
class Ranks(Pairing):
    """Pairs of all that differ in rank."""

    most: Annotated[int, Field(ge=1, le=10_000)] = 64
    """Most pairs of a task, those with the largest differences of rank first."""

    @property
    def gives(self) -> frozenset[str]:
        """The difference of the scores."""
        return frozenset({"margin"})

    async def pair(self, rollouts: Rollouts) -> Paired:
        """All pairs, by falling difference of rank, then in the order of the texts."""
        found = rollouts.usable
        if not found:
            return Paired(reason=NOTHING_SCORED)
        rank = self._ranks(rollouts)
        pairs = [(rank[id(a)] - rank[id(b)], a, b) for a in found for b in found if rank[id(a)] > rank[id(b)]]
        if not pairs:
            return Paired(reason=EQUAL)
        pairs.sort(key=lambda item: -item[0])
        return Paired(pairs=tuple(self._made(rollouts, a, b) for _, a, b in pairs[: self.most]))

    def _ranks(self, rollouts: Rollouts) -> dict[int, float]:
        """The rank of each usable text, by its identity."""
        found = rollouts.usable
        ratings = [t.fact(DataRating) for t in found]
        if all(rating is not None for rating in ratings):
            return {id(t): rating.rating for t, rating in zip(found, ratings, strict=True) if rating is not None}
        return {id(t): value_of(t) for t in found}

    def _made(self, rollouts: Rollouts, chosen: Trajectory, rejected: Trajectory) -> Preference:
        fields = {
            "rule": self.kind,
            "margin": value_of(chosen) - value_of(rejected),
            "origin": [rollouts.origin(chosen), rollouts.origin(rejected)],
        }
        return Preference(chosen=chosen.completion, rejected=rejected.completion, fields=fields)
