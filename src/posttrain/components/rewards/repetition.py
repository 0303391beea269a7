"""A penalty for completions that repeat a run of words too often.

Source: the released code of RLPR, Yu et al. 2025, arXiv:2506.18254: a window of 10 words, split at white space and
underscores, that occurs at least 10 times costs 1.

Differs: the release omits the penalty where the rest of the reward is exactly 0; here it does not depend on that.
"""

import re
from collections import Counter
from collections.abc import Sequence

from pydantic import Field, NonNegativeFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.types import Group, Score, Trajectory


@frozen
class Repetition(Reward):
    """Scores 0, or minus the penalty for a run of words that is repeated too often."""

    words: PositiveInt = 10
    """Length of the runs that are counted."""
    times: PositiveInt = Field(default=10, ge=2)
    """Occurrences, which may overlap, from which a run is penalized."""
    penalty: NonNegativeFloat = 1.0
    """Size of the penalty, in units of reward."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Count the runs of words of each completion."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        words = [word for word in re.split(r"[\s_]+", trajectory.completion) if word]
        places = range(len(words) - self.words + 1)
        # Runs are compared by hash first, so that long texts take linear work.
        runs = Counter(tuple(words[i : i + self.words]) for i in places)
        run, count = runs.most_common(1)[0] if runs else ((), 0)
        if count < self.times:
            return Score(value=0.0, status="ok", explanation="does not repeat itself")
        return Score(value=-self.penalty, status="wrong", explanation=f"repeats {count} times {' '.join(run)[:80]!r}")
