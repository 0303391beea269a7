"""The share of a trace that is left once a planted subsequence is complete.

Source: the bi-level reward of Setlur et al. 2025, arXiv:2502.12118: 0 until the right answer is in the trace and 1 in
every later step, so that a trace is rewarded with the number of tokens left, here divided by the horizon.

Differs: letters stand for tokens; those after the horizon do not count.
"""

from collections.abc import Sequence

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.datasets.planted import reward_of
from posttrain.types import Group, Score, Trajectory


@frozen
class Planted(Reward):
    """Rewards early completion. The task has the fields ``planted`` and ``horizon``."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Find the subsequence in each trace."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        word, horizon = (trajectory.task.fields.get(name) for name in ("planted", "horizon"))
        if not (isinstance(word, str) and word and isinstance(horizon, int) and horizon > 0):
            return failure(
                f"task '{trajectory.task.key}' has no subsequence: the fields planted (a text) and horizon (a whole "
                "number) are needed"
            )
        left = reward_of(word, horizon, trajectory.completion)
        status = "ok" if left else "wrong"
        return Score(value=left / horizon, status=status, explanation=f"{left} of {horizon} letters are left")  # type: ignore[arg-type]
