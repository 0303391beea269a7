"""The weighted mean of the heads of a reward model, which scores several dimensions in one pass.

Source: EduAlign, arXiv:2507.20335, of which only the abstract was read: a reward model of three dimensions of tutoring
rewards the policy. How the three become one number is not known; here, with the score s_k of each head,

    r = sum_k w_k s_k / sum_k w_k

With `standardized` each dimension is first standardized within the rollouts of a task (population std, plus 1e-6), so
that no scale of a label decides, and a dimension in which all rollouts are equal counts 0. A dimension with a small
spread is then as loud as the others, noise included. The scores are in the record as parts, by name.

The model reads the sampled tokens, so it must share the policy's vocabulary. The stage `heads` trains it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeFloat, field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, counted, failure, read_by
from posttrain.signals import Signal
from posttrain.types import Group, Score

SMALLEST = 1e-6


@frozen
class Heads(Reward):
    """Scores by several heads of a reward model."""

    weights: Annotated[Mapping[str, NonNegativeFloat], Field(min_length=1)] = Field(
        default_factory=lambda: {"helpfulness": 1.0, "personalization": 1.0, "creativity": 1.0}
    )
    """Weight of each dimension by name, in the order of the model's outputs: that of the labels of the stage."""
    standardized: bool = False
    """Whether each dimension is standardized within the rollouts of a task first."""
    levels: Annotated[int, Field(ge=2, le=100)] | None = None
    """Outputs of each head where it was trained on levels, and the score is the expected level; None is one output."""
    role: str = "reward"
    """Role of the model; it needs ``head: reward`` and as many ``outputs``."""
    own_tokens: bool = False
    """Whether prompt and completion are encoded by the model's own tokenizer, with its end token or that of `read_at`.
    """
    correct_at: float = 0.0
    """Smallest reward that counts as correct, for the record only."""

    @field_validator("weights")
    @classmethod
    def check_weights(cls, weights: Mapping[str, float]) -> Mapping[str, float]:
        """Refuse weights that are all 0."""
        if not any(weights.values()):
            raise PydanticCustomError("weights", "all weights are 0, so that nothing is rewarded; give one above 0")
        return weights

    @property
    def roles(self) -> frozenset[str]:
        """The reward model."""
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
        if not len(group):
            return []
        sampler = context.sampler(self.role, self.kind)
        read = [read_by(sampler, trajectory, own_tokens=self.own_tokens) for trajectory in group]
        found = await asyncio.gather(*(sampler.scores(ids, vectors=vectors) for ids, vectors, _ in read))
        output_NO = np.stack(found).astype(np.float64)
        wanted = len(self.weights) * (self.levels or 1)
        if output_NO.shape[1] != wanted:
            why = f"the role '{self.role}' has {output_NO.shape[1]} outputs, and {len(self.weights)} dimensions take"
            return [failure(f"{why} {wanted}; set models.{self.role}.outputs")] * len(group)
        score_NK = self._read(output_NO)
        sound = np.isfinite(score_NK).all(1)
        part_NK = standardized(score_NK, sound) if self.standardized else score_NK
        weight_K = np.array([*self.weights.values()])
        value_N = part_NK @ (weight_K / weight_K.sum())
        return [
            self._score(float(value), score_K, cut) if ok else failure(f"the role '{self.role}' gives {output_O}")
            for value, score_K, ok, output_O, (_, _, cut) in zip(value_N, score_NK, sound, output_NO, read, strict=True)
        ]

    def _read(self, output_NO: np.ndarray) -> np.ndarray:
        """[N, K] score of each head."""
        if self.levels is None:
            return output_NO
        logit_NKL = output_NO.reshape(len(output_NO), len(self.weights), self.levels)
        power_NKL = np.exp(logit_NKL - logit_NKL.max(-1, keepdims=True))
        return np.asarray((power_NKL / power_NKL.sum(-1, keepdims=True)) @ np.arange(self.levels))

    def _score(self, value: float, score_K: np.ndarray, cut: bool) -> Score:
        by_name = dict(zip(self.weights, map(float, score_K), strict=True))
        parts = {name: Score(value=x, status="ok" if x >= self.correct_at else "wrong") for name, x in by_name.items()}
        parts.setdefault("cut", counted(cut))
        explanation = ", ".join(f"{name} {x:.3g}" for name, x in by_name.items())
        return Score(
            value=value, status="ok" if value >= self.correct_at else "wrong", explanation=explanation, parts=parts
        )


def standardized(score_NK: np.ndarray, sound: np.ndarray) -> np.ndarray:
    """[N, K] scores of each dimension less their mean, over their std and 1e-6, of the rows that are sound."""
    mean_K, std_K = score_NK[sound].mean(0), score_NK[sound].std(0)
    return np.asarray((score_NK - mean_K) / (std_K + SMALLEST)) if sound.any() else score_NK
