"""Looking for a good attempt among many: a search decides from values what to sample next.

Contract: token ids are never made from text again once sampled; with the same samplers the same attempts are found;
every token keeps its log-probability under the model that wrote it, given all before it. What is chosen by value is
no longer a plain sample of that model, which is for whoever learns from it to know. Either every attempt that is found
has been judged by the reward, once, or none has.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from posttrain.component import Component
from posttrain.components.rollouts import Judge
from posttrain.engines import Sampler
from posttrain.signals import Signal
from posttrain.types import IntArray, Task, Trajectory


@dataclass(frozen=True, kw_only=True)
class State:
    """A beginning of attempts, and how good those that went on from it were."""

    token_ids: IntArray
    """Prompt and what was written after it."""
    text: str
    """What was written after the prompt."""
    value: float
    """Mean over its visits."""
    visits: int


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search found at one task."""

    attempts: tuple[Trajectory, ...]
    """Every whole attempt, in the order in which they were sampled; attempts that begin alike share segments."""
    values: tuple[float, ...]
    """What the search holds of each; NaN where judging it failed."""
    states: tuple[State, ...] = ()
    """Every state that was gone on from, the prompt first."""
    statistics: Mapping[str, float] = field(default_factory=dict)
    """``attempts``, ``sampled_tokens`` and ``best_after``, the attempts until the best one, and more."""

    @property
    def best(self) -> Trajectory:
        """The attempt with the highest value, the first of equals."""
        return self.attempts[place_of_best(self.values)]


class Search(Component):
    """Looks for a good attempt at one task."""

    @property
    def roles(self) -> frozenset[str]:
        """Roles whose models it asks."""
        raise NotImplementedError

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals that it asks samplers for: log-probabilities or scores of the models in other roles."""
        return frozenset()

    @property
    def judges(self) -> bool:
        """Whether it looks at rewards while it searches. Such a search makes data; it cannot answer a question."""
        raise NotImplementedError

    @property
    def temperature(self) -> float:
        """Of the distribution that tokens are drawn from."""
        return 1.0

    async def search(self, task: Task, samplers: Mapping[str, Sampler], judge: Judge | None = None) -> Found:
        """Search with the models of the recipe, by role; `judge` is needed where `judges` says so, else never called.

        The samplers are bound to one use, as for a rollout.
        """
        raise NotImplementedError


def place_of_best(values: Sequence[float]) -> int:
    """Place of the highest value, the first of equals; a failed judgement (NaN) is lower than any."""
    return max(range(len(values)), key=lambda i: -math.inf if math.isnan(values[i]) else values[i])
