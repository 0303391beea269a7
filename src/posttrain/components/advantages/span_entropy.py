"""Another advantage with a bonus for the entropy of one tagged part of a completion, such as its thoughts.

Source: FunRL, also named EGPO, arXiv:2508.05118: GRPO's advantage is increased by a term of the entropy of the thoughts
only, bounded so that the direction of the update stays. The exact form is not published (abstracts and README only).
Assumed here, as in entropy-shaped advantages: with H the mean entropy of the policy over the tokens of the part, before
the updates and without gradient,

    A' = A + min(weight H, |A| / kappa)

With kappa above 1 no sign changes: correct rollouts gain up to 1 + 1 / kappa, incorrect ones lose down to 1 - 1 / kappa
of their advantage, and an advantage of 0 has no bonus.

A rollout without the part, or with its tags nested or not closed, has H = 0.
"""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.rollouts import Spans
from posttrain.signals import OLD_ENTROPY, Signal
from posttrain.types import Batch, Credit, FloatArray, Trajectory

TagName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$")]


@frozen
class SpanEntropy(Advantage):
    """Adds a bounded entropy bonus to the tokens of a tagged part."""

    advantage: Advantage
    """The estimator whose credit is changed."""
    weight: NonNegativeFloat = 0.4
    """lam: bonus per nat, in units of the advantage (a guess; the paper's is not known); 0 changes nothing."""
    kappa: Annotated[float, Field(gt=1.0)] = 2.0
    """The bonus is at most |A| / kappa; above 1, so that no sign changes (a guess)."""
    tag: TagName = "think"
    """The part whose entropy counts."""
    where: Literal["part", "rollout"] = "part"
    """Tokens that get the bonus: those of the part, or all of the rollout."""
    also: tuple[TagName, ...] = ("call",)
    """Further parts whose mean entropies are metrics."""

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals of the estimator, and the policy's entropies before the updates."""
        return self.advantage.needs | {OLD_ENTROPY}

    @property
    def tags(self) -> frozenset[str]:
        """The part, and those of the metrics."""
        return self.advantage.tags | {self.tag, *self.also}

    @property
    def is_relative(self) -> bool:
        """As the estimator."""
        return self.advantage.is_relative

    @property
    def reads(self) -> Literal["sum", "returns", "tokens"]:
        """As the estimator."""
        return self.advantage.reads

    def start(self) -> State:
        """State of the estimator."""
        return self.advantage.start()

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Compute the credit, and add the bonus; metrics are the mean entropies of parts, and the mean bonus."""
        state, credit = self.advantage(state, batch)
        entropies = batch.signals[OLD_ENTROPY]
        advantages, bonuses = [], []
        for trajectory, advantage_T, entropy_T in zip(batch.trajectories, credit.advantages, entropies, strict=True):
            inside_T = _inside(trajectory, self.tag)
            mean = float(entropy_T[inside_T].mean(dtype=np.float64)) if inside_T.any() else 0.0
            bonus_T = np.minimum(self.weight * mean, np.abs(advantage_T.astype(np.float64)) / self.kappa)
            bonus_T *= inside_T if self.where == "part" else 1.0
            advantages.append((advantage_T + bonus_T).astype(np.float32))
            bonuses.append(bonus_T)
        metrics = dict(credit.metrics) | self._metrics(batch, entropies)
        if any(len(bonus_T) for bonus_T in bonuses):
            metrics["entropy_bonus"] = float(np.concatenate(bonuses).mean())
        return state, Credit(advantages=tuple(advantages), value_targets=credit.value_targets, metrics=metrics)

    def _metrics(self, batch: Batch, entropies: tuple[FloatArray, ...]) -> dict[str, float]:
        """By tag, the mean entropy of the tokens of its parts, and the share of rollouts that have one."""
        metrics = {}
        for tag in dict.fromkeys((self.tag, *self.also)):
            parts = [e_T[_inside(t, tag)] for t, e_T in zip(batch.trajectories, entropies, strict=True)]
            whole = np.concatenate([np.zeros(0, np.float32), *parts])
            if len(whole):
                metrics[f"entropy/{tag}"] = float(whole.mean(dtype=np.float64))
            if parts:
                metrics[f"parts/{tag}"] = float(np.mean([len(part) > 0 for part in parts]))
        return metrics


def _inside(trajectory: Trajectory, tag: str) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """[T] whether a trained token is inside a part."""
    inside_T = np.zeros(trajectory.num_trained, bool)
    spans = trajectory.fact(Spans)
    for start, end in spans.ranges.get(tag, ()) if spans is not None else ():
        inside_T[start:end] = True
    return inside_T
