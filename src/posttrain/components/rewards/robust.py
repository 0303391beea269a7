"""A reward of an ensemble of heads: the surest head mixed with the worst one.

Source: "Reward-Robust RLHF in LLMs", arXiv:2409.15360, equations 4 and 7, from notes. Each of K heads gives a mean m_k
and a standard deviation; the nominal reward is the mean of the head with the smallest one (of equals the first), and

    r = alpha * nominal + (1 - alpha) * min_k m_k

alpha 1 is the nominal reward, 0 the worst case alone. Equation 7 has the minimum outside of the expectation, over one
head for the whole batch: the advantage `worst_head` does that. The minimum here, of each sample, is at most as large.

The outputs of the model are the K means, then the K logarithms of the standard deviations, as the stage `heads` trains
them with ``loss: gaussian``. Means must have one scale, or the head with the lowest offset is always the worst.

Differs: one note has alpha 0 for plain RLHF, which contradicts equation 7; the equation is followed. With
``nominal: mean`` the nominal reward is the mean over the heads.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, counted, failure, read_by
from posttrain.signals import Signal
from posttrain.statistics.ensembles import mixture
from posttrain.types import FloatArray, Group, Score

STD: Final = "std"
"""The part of a score that is its standard deviation, that of the surest head; `ensemble` reads it."""
LARGEST_LOG: Final = 80.0
"""Of a standard deviation, so that it is a number."""


@frozen
class Robust(Reward):
    """Scores by the surest and the worst head of an ensemble."""

    heads: Annotated[int, Field(ge=1, le=512)] = 5
    """Heads of the ensemble; the model has twice as many outputs."""
    alpha: Annotated[float, Field(ge=0.0, le=1.0)] = 0.4
    """Share of the nominal reward; the rest is that of the worst head."""
    nominal: Literal["surest", "mean"] = "surest"
    """The nominal reward: the mean of the surest head, or of all heads."""
    role: str = "ensemble"
    """Role of the model; it needs ``head: reward`` and ``outputs``."""
    own_tokens: bool = False
    """Whether prompt and completion are encoded by the model's own tokenizer, with its end token or that of `read_at`.
    """
    correct_at: float = 0.0
    """Smallest reward that counts as correct, for the record only."""

    @property
    def roles(self) -> frozenset[str]:
        """The ensemble."""
        return frozenset({self.role})

    @property
    def needs(self) -> frozenset[Signal]:
        """The model's outputs."""
        return frozenset({Signal("scores", of=self.role)})

    @property
    def reads_sampled(self) -> frozenset[str]:
        """The model, unless it has tokens of its own."""
        return frozenset() if self.own_tokens else self.roles

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score every trajectory by its own tokens."""
        sampler = context.sampler(self.role, self.kind)
        read = [read_by(sampler, trajectory, own_tokens=self.own_tokens) for trajectory in group]
        found = await asyncio.gather(*(sampler.scores(ids, vectors=vectors) for ids, vectors, _ in read))
        scores = [self.of_outputs(output_O) for output_O in found]
        return [
            replace(score, parts={**score.parts, "cut": counted(cut)}) if score.parts else score
            for score, (_, _, cut) in zip(scores, read, strict=True)
        ]

    def of_outputs(self, output_O: FloatArray) -> Score:
        """The score for the outputs of one text: K means, then K logarithms of standard deviations."""
        if len(output_O) != 2 * self.heads:
            return failure(
                f"the role '{self.role}' has {len(output_O)} outputs, and {self.heads} heads take {2 * self.heads}; "
                f"set models.{self.role}.outputs"
            )
        if not np.isfinite(output_O).all():
            return failure(f"the role '{self.role}' gives {output_O}")
        mean_K, log_std_K = np.split(output_O.astype(np.float64), 2)
        found = mixture(mean_K, log_std_K, alpha=self.alpha, surest=self.nominal == "surest")
        surest, worst, value = log_std_K.argmin(), found.worst, found.value
        seen = {"nominal": found.nominal, "worst": float(mean_K[worst]), "std_of_heads": float(mean_K.std())}
        seen |= {"surest_is_worst": float(surest == worst), STD: float(np.exp(min(log_std_K[surest], LARGEST_LOG)))}
        seen |= {f"head_{k}": float(mean) for k, mean in enumerate(mean_K)}
        return Score(
            value=value,
            status="ok" if value >= self.correct_at else "wrong",
            explanation=f"surest is head {surest}; worst is head {worst}, with {mean_K[worst]:.4g}",
            parts={name: Score(value=x, status="ok") for name, x in seen.items()},
        )
