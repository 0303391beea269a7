"""The rollout with the highest score preferred to a random one with a lower score.

Source: UltraFeedback's rule, as in CodeUltraFeedback, Weyssow et al. 2024, arXiv:2403.09032: chosen is the answer that
the judge rates highest, rejected is drawn from those that it rates lower; ties and instructions without ratings give no
pair. Of several best ones the first is taken.

Differs: how the paper's pairs were drawn is not in its release; the rule is that of the data set's usual binarisation.
An instruction whose best answer is empty gives none.
"""

from posttrain.component import frozen
from posttrain.components.pairings import EQUAL, NOTHING_SCORED, Paired, Pairing, Rollouts, value_of
from posttrain.types import Preference


@frozen
class BestAndLower(Pairing):
    """Pairs the best with one drawn from the lower ones."""

    @property
    def gives(self) -> frozenset[str]:
        """The difference of the scores."""
        return frozenset({"margin"})

    async def pair(self, rollouts: Rollouts) -> Paired:
        """One pair, or none."""
        scored = [t for t in rollouts.trajectories if t.score is not None and t.score.status != "error"]
        if scored and not max(scored, key=value_of).completion.strip():
            return Paired(reason="the best text is empty")
        found = rollouts.usable
        if not found:
            return Paired(reason=NOTHING_SCORED)
        best = max(found, key=value_of)
        lower = [t for t in found if value_of(t) < value_of(best)]
        if not lower:
            return Paired(reason=EQUAL)
        other = lower[int(rollouts.sampler.uniform() * len(lower))]
        fields = {
            "rule": self.kind,
            "margin": value_of(best) - value_of(other),
            "origin": [rollouts.origin(best), rollouts.origin(other)],
        }
        return Paired(pairs=(Preference(chosen=best.completion, rejected=other.completion, fields=fields),))
