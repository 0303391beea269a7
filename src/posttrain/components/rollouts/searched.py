"""What a search found, as a group: every whole attempt, those that begin alike with the segments that they share.

Source: ReST-RL, arXiv:2508.19576, section on data from MCTS; the group is this package's shape for it.

Differs: the log-probability of each token is that of the policy, given what is before it; that the search goes on where
values are high is not in it. Attempts of a search are therefore more like one another, and better, than plain samples.
"""

from collections.abc import Mapping

from posttrain.component import frozen
from posttrain.components.rollouts import Judge, Rollout
from posttrain.components.search import Search
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Task


@frozen
class Searched(Rollout):
    """Attempts by a search instead of independent ones."""

    search: Search
    """What looks for attempts; one that judges while it searches is shown the reward."""

    @property
    def temperature(self) -> float:
        """Of the distribution that the search's writer draws from."""
        return self.search.temperature

    @property
    def sampling(self) -> Sampling:
        """How the search's writer draws; held-out answers are written under the same limits."""
        return getattr(self.search, "sampling", Sampling())

    async def collect_judged(self, task: Task, samplers: Mapping[str, Sampler], judge: Judge) -> list[Group]:
        """One group of all that was found, each attempt judged once."""
        found = await self.search.search(task, samplers, judge)
        group = Group(key=task.key, trajectories=found.attempts)
        return [group if self.search.judges else await judge(group)]
