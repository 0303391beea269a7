"""Searches: sampling of one task in which values decide what is sampled next.

Contract: sampled token ids are never tokenized again. With the same samplers a search finds the same rollouts. Every
token keeps its log-probability under the model that sampled it, given all tokens before it. Rollouts that are selected
by value are not on-policy samples, which methods that learn from them must take into account. Either every rollout that
is found has been scored by the reward, once, or none has.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from posttrain.component import Component
from posttrain.components.rollouts import Scorer
from posttrain.engines import Sampler
from posttrain.signals import Signal
from posttrain.types import IntArray, Task, Trajectory


@dataclass(frozen=True, kw_only=True)
class State:
    """A prefix of rollouts, with the mean value of its continuations."""

    token_ids: IntArray
    """Prompt and prefix."""
    text: str
    """The prefix, without the prompt."""
    value: float
    """Mean over its visits."""
    visits: int


@dataclass(frozen=True, kw_only=True)
class Found:
    """Result of a search on one task."""

    trajectories: tuple[Trajectory, ...]
    """Every complete rollout, in the order of sampling. Rollouts with a common prefix share its segments."""
    values: tuple[float, ...]
    """[N] value of each; NaN where scoring failed."""
    states: tuple[State, ...] = ()
    """Every state that was continued, the prompt first."""
    states_only: bool = False
    """Whether a value model learns from the states alone, as the values hold for what was before the rollouts."""
    statistics: Mapping[str, float] = field(default_factory=dict)
    """``rollouts`` (their number), ``sampled_tokens``, ``best_after`` (the number of rollouts up to the best
    one), and those of each search."""

    @property
    def best(self) -> Trajectory:
        """The rollout with the highest value, the first of equals."""
        return self.trajectories[place_of_best(self.values)]


class Search(Component):
    """Searches for a good rollout of one task."""

    @property
    def roles(self) -> frozenset[str]:
        """Roles whose models it uses."""
        raise NotImplementedError

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals that it needs: log-probabilities or scores under the models of other roles."""
        return frozenset()

    @property
    def uses_rewards(self) -> bool:
        """Whether the reward guides the search. Such a search makes training data; it cannot answer held-out tasks."""
        raise NotImplementedError

    @property
    def trains(self) -> bool:
        """Whether its rollouts have trained tokens; those of a search that requests each step by a prompt do not."""
        return True

    @property
    def temperature(self) -> float:
        """Sampling temperature."""
        return 1.0

    async def search(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer | None = None) -> Found:
        """Search with the models of the recipe, by role.

        `scorer` is required where `uses_rewards` is true, and not called otherwise. The samplers are bound to (seed,
        step, task), as for a rollout.
        """
        raise NotImplementedError


def place_of_best(values: Sequence[float]) -> int:
    """Index of the highest value, the first of equals; a failed score (NaN) is lower than any."""
    return max(range(len(values)), key=lambda i: -math.inf if math.isnan(values[i]) else values[i])
