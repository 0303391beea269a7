"""The score of a reward model that reads principles, which are drawn for each rollout.

Source: SALMON, Sun et al. 2023, arXiv:2310.05910, and its release (IBM/SALMON at 7392a56, rl_trainer.py). The model
reads up to three principles, drawn without replacement by weight, and a fixed list against faults that policies find
(self-praise, lists, needless examples), then prompt and completion, in its own tokenizer:

    r = scale (score + unfinished where the end token is missing + 5 min(m tokens / 1024, 0.8))

with m by the task's domain, 1 in general and -0.4 for reasoning, where longer is worse. Principles may be edited
between runs, or within one by a hook, without new labels. A completion that does not fit into the model's context is
read up to where the context ends; ``reward/cut`` is the share of such rollouts.

Differs: the penalty of -6 is set here, where the launch script of the release sets it under a name that nothing reads,
so that -1 holds. A domain has its own principles by `boosts`: there their weights are 128 larger.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Annotated

import numpy as np
from pydantic import Field, PositiveFloat, field_validator

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, counted, failure
from posttrain.datasets.principles import PLACES, REQUEST, Principle, listed
from posttrain.datasets.templates import check_places, prompt_from
from posttrain.engines import Sampler
from posttrain.signals import Signal
from posttrain.types import Group, Score, Trajectory

BOOST = 128.0
LENGTH, SHARE = 5.0, 0.8


@frozen
class PrincipledModel(Reward):
    """Scores by a reward model with principles in its prompt."""

    principles: Annotated[Mapping[str, Principle], Field(min_length=1)]
    """The principles by name, in their positive form."""
    fixed: tuple[str, ...] = ()
    """Lines that every prompt has after the drawn principles."""
    drawn: Annotated[int, Field(ge=1, le=100)] = 3
    """Principles of each rollout, at most."""
    boosts: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    """By domain of a task, the principles whose weight is 128 larger there."""
    lengths: Mapping[str, float] = Field(default_factory=dict)
    """By domain, the weight m of the length; ``length`` for all others."""
    length: float = 1.0
    """Weight m of the length in general; 0 rewards no length, below 0 shorter is better."""
    longest: Annotated[int, Field(ge=1, le=1_000_000)] = 1024
    """Tokens by which a length is divided."""
    unfinished: float = -6.0
    """Added where the end token is missing."""
    scale: PositiveFloat = 10.0
    """Factor of all of it."""
    request: str = REQUEST
    """As in the stage that trained the model. Placeholders: principles, question."""
    role: str = "reward"
    """Role of the reward model; it needs ``head: reward``."""
    correct_at: float = 0.0
    """Smallest reward that counts as correct, for the record only."""

    @field_validator("request")
    @classmethod
    def check_request(cls, request: str) -> str:
        """Refuse a misspelled placeholder."""
        return check_places(request, PLACES)

    @property
    def roles(self) -> frozenset[str]:
        """The reward model."""
        return frozenset({self.role})

    @property
    def needs(self) -> frozenset[Signal]:
        """The model's scores."""
        return frozenset({Signal("score", of=self.role)})

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score every completion after principles of its own."""
        sampler = context.sampler(self.role, self.kind)
        return await asyncio.gather(*(self._score(t, sampler, context) for t in group))

    def names_for(self, trajectory: Trajectory, seed: int, step: int) -> list[str]:
        """The principles of a rollout, a function of (seed, step, task, sample)."""
        task = trajectory.task
        rng = Random(f"principled_model:{seed}:{step}:{task.key}:{trajectory.sample}")
        boosted = self.boosts.get(task.domain, ())
        weights = {n: p.weight + (BOOST if n in boosted else 0.0) for n, p in self.principles.items()}
        weights = {name: weight for name, weight in weights.items() if weight > 0}
        found: list[str] = []
        while weights and len(found) < self.drawn:
            found += rng.choices(list(weights), list(weights.values()))
            del weights[found[-1]]
        return found

    async def _score(self, trajectory: Trajectory, sampler: Sampler, context: RewardContext) -> Score:
        names = self.names_for(trajectory, context.seed, context.step)
        texts = listed([*(self.principles[name].text for name in names), *self.fixed])
        prompt = prompt_from(trajectory.task, self.request, {"principles": texts})
        asked_T, room = sampler.encode(prompt), sampler.context
        if len(asked_T) >= room:
            return failure(
                f"principles and prompt have {len(asked_T)} tokens, and the context of the role '{self.role}' has "
                f"{room}, so that nothing of the completion could be read; give fewer or shorter principles"
            )
        token_ids = np.append(asked_T, sampler.encode_completion(prompt, trajectory.completion))
        output = await sampler.score(token_ids[:room])
        if not math.isfinite(output):
            return failure(f"the role '{self.role}' gives {output}")
        tokens = trajectory.num_trained
        weight = self.lengths.get(trajectory.task.domain, self.length)
        longer = LENGTH * min(weight * tokens / self.longest, SHARE)
        missing = 0.0 if trajectory.stop_reason == "stop" else self.unfinished
        value = self.scale * (output + missing + longer)
        parts = {"model": output, "length": longer, "unfinished": missing}
        return Score(
            value=value,
            status="ok" if value >= self.correct_at else "wrong",
            explanation=f"by {', '.join(names)}: the role '{self.role}' gives {output:.4g}",
            parts={
                "cut": counted(len(token_ids) > room),
                **{name: Score(value=x, status="ok") for name, x in parts.items()},
            },
        )
