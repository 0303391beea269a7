"""How to sample.

Contract: every sampled token keeps its log-probability and the version of the weights that wrote it; token ids are
never made from text again once sampled; with the same samplers the same trajectories come back.
"""

from collections.abc import Mapping

from posttrain.component import Component
from posttrain.engines import Sampler
from posttrain.types import Group, Task


class Rollout(Component):
    """A sampling strategy, written as straight-line asynchronous code; the engine batches whatever is waiting."""

    @property
    def temperature(self) -> float:
        """Of the distribution that trained tokens are drawn from; the learner's log-probabilities use it too."""
        return 1.0

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """Attempt a task with the models of the recipe, by role, and return groups of comparable trajectories.

        Each call receives samplers that are bound to (seed, step, task): the n-th completion asked of one of them is
        the same whatever else is being sampled at the time.
        """
        raise NotImplementedError
