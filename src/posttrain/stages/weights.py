"""Weights of demonstrations by the class of their source.

Source: OpenChat, Wang et al. 2023, arXiv:2309.11235, and its release. There the loss is sum(w CE) / sum(w), both sums
over the supervised tokens of the whole optimizer batch, with w = 1 for rows of the expert and 0.1 for others. A factor
that all weights have in common changes nothing, and a batch of one class is plain imitation. The paper's closed form
has w = exp(r / beta) for a class with the reward r: with rewards 1 and 0.1 and beta = 1 the ratio is exp(0.9) = 2.5,
and it is 10 with beta = 0.39.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveFloat, field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.errors import UserError
from posttrain.types import FloatArray, Trajectory

Number = Annotated[float, Field(ge=-100.0, le=100.0)]


@frozen
class Weights:
    """The weight of each demonstration of a batch, by the domain of its task."""

    by_domain: Annotated[Mapping[str, Number], Field(min_length=1)]
    """Weight of each domain, above 0; with `beta` its reward, which may be any number."""
    beta: PositiveFloat | None = None
    """Temperature: the weight is exp(reward / beta); None takes the numbers as weights."""
    per: Literal["token", "sequence"] = "token"
    """What has the weight: each token, or each demonstration, whose tokens share it."""

    @field_validator("by_domain")
    @classmethod
    def check_finite(cls, numbers: Mapping[str, float]) -> Mapping[str, float]:
        """Refuse an empty name."""
        if "" in numbers:
            raise PydanticCustomError("by_domain", "a domain has a name")
        return numbers

    def of_domain(self, domain: str) -> float:
        """The weight of a domain relative to the largest one. Raises `UserError` for one without a number."""
        if domain not in self.by_domain:
            raise UserError(
                f"a demonstration is of domain '{domain}', which has no weight; weights.by_domain has "
                f"{', '.join(self.by_domain)}"
            )
        own, most = self.by_domain[domain], max(self.by_domain.values())
        if self.beta is not None:
            return float(np.exp((own - most) / self.beta))
        if min(self.by_domain.values()) <= 0:
            raise UserError(
                f"weights.by_domain must be above 0 (or rewards, with weights.beta set), got {dict(self.by_domain)}"
            )
        return own / most

    def of(self, shown: Sequence[Trajectory]) -> list[FloatArray]:
        """[T] weight of each trained token of each demonstration; their mean over all tokens is 1.

        The mean over tokens of the weighted losses is then sum(w CE) / sum(w).
        """
        raw = [
            self.of_domain(t.task.domain) / (max(t.num_trained, 1) if self.per == "sequence" else 1.0) for t in shown
        ]
        tokens = sum(t.num_trained for t in shown)
        total = sum(w * t.num_trained for w, t in zip(raw, shown, strict=True))
        return [np.full(t.num_trained, w * tokens / total, np.float32) for w, t in zip(raw, shown, strict=True)]
