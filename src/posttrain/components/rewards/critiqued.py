"""The score of a model that writes a critique of the completion first, and reads the score after it.

Source: the critique-based reward model of MM-RLHF, arXiv:2502.10391: at inference a critique is generated, then the
answer is scored, so that the score sees the critique. The stage ``critique_model`` trains it. The critique is in the
explanation.

Differs: a critique that is cut is scored where it was cut. A request that leaves no room in the context is an error.
"""

import asyncio
import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import AfterValidator

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.datasets.templates import CRITIQUE, check_critiqued, prompt_from
from posttrain.engines import Sampler, Sampling
from posttrain.grading.extraction import shown
from posttrain.signals import Signal
from posttrain.types import Group, Score, Trajectory


@frozen
class Critiqued(Reward):
    """Scores after a critique by a model of the recipe."""

    role: str = "reward"
    """Role of the model; it needs ``head: language`` and a ``projection``."""
    request: Annotated[str, AfterValidator(check_critiqued)] = CRITIQUE
    """Prompt of a critique, that of its training. Placeholders: question, completion."""
    sampling: Sampling = Sampling(temperature=0.0, max_tokens=128)
    """How critiques are written."""
    correct_at: float = 0.0
    """Smallest score that counts as correct, for the record only."""

    @property
    def roles(self) -> frozenset[str]:
        """The model."""
        return frozenset({self.role})

    @property
    def needs(self) -> frozenset[Signal]:
        """The model's scores."""
        return frozenset({Signal("score", of=self.role)})

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Criticize and score every trajectory, concurrently."""
        sampler = context.sampler(self.role, self.kind)
        return await asyncio.gather(*(self._score(trajectory, sampler) for trajectory in group))

    async def _score(self, trajectory: Trajectory, sampler: Sampler) -> Score:
        prompt = prompt_from(trajectory.task, self.request, {"completion": trajectory.completion})
        ids = sampler.encode(prompt)
        if len(ids) >= sampler.context:
            return failure(
                f"question and completion have {len(ids)} tokens, and the role '{self.role}' takes {sampler.context}"
            )
        [critique] = await sampler.sample(ids, 1, self.sampling)
        value = await sampler.score(np.concatenate([ids, critique.token_ids]))
        if not math.isfinite(value):
            return failure(f"the role '{self.role}' gives {value} after the critique {shown(critique.text, 200)}")
        explanation = f"{value:.4g} after the critique {shown(critique.text, 200)}"
        return Score(value=value, status="ok" if value >= self.correct_at else "wrong", explanation=explanation)
