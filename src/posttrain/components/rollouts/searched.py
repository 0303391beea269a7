"""The rollouts of a search as a group; those with a common prefix share its segments.

Source: ReST-RL, arXiv:2508.19576, section on data from MCTS; it does not define the group.

Differs: the log-probability of each token is that of the policy given all tokens before it. It does not include the
selection by the search, so rollouts of a search are more similar to one another, and better, than independent ones.
"""

from collections.abc import Mapping

from pydantic import field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout, Scorer
from posttrain.components.search import Search
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Task


@frozen
class Searched(Rollout):
    """Samples rollouts by a search."""

    search: Search
    """The search; one that is guided by rewards gets the reward of the stage."""

    @field_validator("search")
    @classmethod
    def refuse_prompts(cls, search: Search) -> Search:
        """Refuse a search whose rollouts were written under other prompts than the task's."""
        if not search.trains:
            why = "its steps are written under prompts of their own, so nothing is learned from them; leave them out"
            raise PydanticCustomError("prompts", f"the search has prompts: {why}, or imitate its paths first")
        return search

    @property
    def temperature(self) -> float:
        """Sampling temperature of the search."""
        return self.search.temperature

    @property
    def sampling(self) -> Sampling:
        """Sampling settings of the search; held-out answers have the same limits."""
        return getattr(self.search, "sampling", Sampling())

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """One group of all rollouts that were found, each scored once."""
        found = await self.search.search(task, samplers, scorer)
        group = Group(key=task.key, trajectories=found.trajectories)
        return [group if self.search.uses_rewards else await scorer(group)]
