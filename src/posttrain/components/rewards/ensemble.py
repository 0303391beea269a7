"""Several rewards that err differently, standardised and combined: mean, minimum, surest, or less where they disagree.

Source: the first three rules are of Coste et al. 2023, arXiv:2310.02743 (mean, worst case, weighted by uncertainty), of
which the text was not read, the others those of the reward `robust` (arXiv:2409.15360) for its heads. With r_k of K
reward models, trained on other data or from other seeds, and their standard deviations s_k:

    mean        (1/K) sum_k r_k
    worst       min_k r_k
    uncertain   (1/K) sum_k r_k - penalty * (1/K) sum_k (r_k - mean)^2
    surest      r_k of the smallest s_k, of equals the first
    mixture     alpha * nominal + (1 - alpha) * min_k r_k, with the surest or the mean as the nominal reward

A part states s_k for each text as ``std`` in the parts of its scores, as `robust` does, also with one head. It is
divided by the same scale as r_k.

A policy that learns from one model finds that model's faults; it gains less by a fault that the others do not share.

Rewards of different models have no common zero and scale, so each is standardised first by the mean and the standard
deviation of all that it gave before in the stage (`start` of them are taken as they are), which are its state. Without
a state, in evaluations, those of the group are taken.

    reward='{kind: ensemble, parts: {a: {kind: reward_model, role: a}, b: {kind: reward_model, role: b}}}'

A rollout that one part cannot score is an error: without the part the worst is not known.

Differs: the standardisation, the penalty and the rule for failures are of this package.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.components.rewards.robust import STD
from posttrain.statistics.ensembles import mixture
from posttrain.statistics.logistic import Array
from posttrain.types import Group, Score

LEAST = 1e-6
"""Smallest standard deviation that is divided by."""


@frozen
class Ensemble(Reward):
    """The combination of the parts."""

    parts: Annotated[Mapping[str, Reward], Field(min_length=1)]
    """The rewards by name."""
    combine: Literal["mean", "worst", "uncertain", "surest", "mixture"] = "worst"
    """How they are combined."""
    alpha: Annotated[float, Field(ge=0.0, le=1.0)] = 0.4
    """Share of the nominal reward in a mixture; the rest is the smallest reward."""
    nominal: Literal["surest", "mean"] = "surest"
    """The nominal reward of a mixture."""
    penalty: NonNegativeFloat = 0.5
    """Of the variance between the parts."""
    standardised: bool = True
    """Whether parts are standardised first; not needed where all have one scale."""
    start: Annotated[int, Field(ge=2, le=1_000_000)] = 64
    """Scores of a part before it is standardised."""
    correct_at: float = 0.0
    """Smallest reward that counts as correct, for the record only."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The parts."""
        return self.parts

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score by every part, each with a state of its own."""
        found: dict[str, Sequence[Score]] = {}
        for name, part in self.parts.items():
            own = replace(context, state=context.state.setdefault(name, {}))
            found[name] = await part.score(group, own)
        if not len(group):
            return []
        columns = [self._scaled(name, [s.value for s in scores], context) for name, scores in found.items()]
        value_NK = np.stack([own for own, _ in columns], 1)
        scale_K = np.array([scale for _, scale in columns])
        return [
            self._joined({name: scores[i] for name, scores in found.items()}, value_NK[i], scale_K)
            for i in range(len(group))
        ]

    def _scaled(self, name: str, values: Sequence[float], context: RewardContext) -> tuple[Array, float]:
        """[N] the scores of a part by what it gave before, and what they were divided by; then they are counted."""
        value_N = np.array(values, np.float64)
        known_N = value_N[np.isfinite(value_N)]
        if not self.standardised:
            return value_N, 1.0
        if not context.learning:
            few = len(known_N) < 2
            scale = 1.0 if few else max(LEAST, float(known_N.std()))
            return value_N if few else (value_N - known_N.mean()) / scale, scale
        count, mean, spread = context.state.setdefault("seen", {}).get(name, (0, 0.0, 0.0))
        scale = max(LEAST, (spread / count) ** 0.5) if count >= self.start else 1.0
        scaled_N = (value_N - mean) / scale if count >= self.start else value_N
        for x in map(float, known_N):
            count += 1
            step = x - mean
            mean += step / count
            spread += step * (x - mean)
        context.state["seen"][name] = [count, mean, spread]
        return scaled_N, scale

    def _joined(self, scores: Mapping[str, Score], value_K: Array, scale_K: Array) -> Score:
        """One score of the parts' standardised ones."""
        failed = [f"part '{name}' failed: {s.explanation}" for name, s in scores.items() if s.status == "error"]
        if failed or not np.isfinite(value_K).all():
            return failure("; ".join(failed) or f"parts give {value_K}", parts=scores)
        names, doubt_K = list(scores), None
        if self.combine == "surest" or (self.combine == "mixture" and self.nominal == "surest"):
            bare = [name for name, score in scores.items() if STD not in score.parts]
            if bare:
                return failure(
                    f"part '{bare[0]}' states no standard deviation ('{STD}' in the parts of its score), by which the "
                    "surest is chosen; take parts that do, such as {kind: robust, heads: 1}, or combine=mean, worst or "
                    "uncertain, or nominal=mean",
                    parts=scores,
                )
            doubt_K = np.array([score.parts[STD].value for score in scores.values()]) / scale_K
        mean, variance = float(value_K.mean()), float(value_K.var())
        mixed = mixture(value_K, doubt_K, alpha=self.alpha)
        name, lowest = names[mixed.worst], float(value_K[mixed.worst])
        value = {
            "mean": mean,
            "worst": lowest,
            "uncertain": mean - self.penalty * variance,
            "surest": mixed.nominal,
            "mixture": mixed.value,
        }[self.combine]
        sure = "" if mixed.surest is None else f", surest '{names[mixed.surest]}' {value_K[mixed.surest]:.3g}"
        return Score(
            value=value,
            status="ok" if value >= self.correct_at else "wrong",
            explanation=f"mean {mean:.3g}, variance {variance:.3g}, worst '{name}' {lowest:.3g}{sure}",
            parts={**scores, "disagreement": Score(value=variance**0.5, status="ok")},
        )
