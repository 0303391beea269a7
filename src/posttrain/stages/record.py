"""The record of one step: metrics, and every trajectory with its per-token columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from posttrain.signals import BEHAVIOR_LOGP, ENTROPY, LOGP, OLD_LOGP, Signal
from posttrain.types import Batch, FloatArray, Group, Trajectory

if TYPE_CHECKING:
    from posttrain.training.learner import Learned


@dataclass(frozen=True, kw_only=True)
class Row:
    """One trajectory of a step."""

    trajectory: Trajectory
    group: int
    columns: Mapping[str, FloatArray] = field(default_factory=dict)
    """[T] numbers by name: ``advantage``, ``trained_logp``, ``ratio``, ``entropy``, ``value``, ``<role>_logp``."""
    dropped: str | None = None
    """Why it was not learned from."""


@dataclass(kw_only=True)
class StepRecord:
    """Filled in while a step runs, written when it ends."""

    metrics: dict[str, float] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    def drop(self, group: Group, reason: str, index: int) -> None:
        """Record a group that is not learned from."""
        self.rows += [Row(trajectory=t, group=index, dropped=reason) for t in group]

    def drop_rest(self, groups: Sequence[Group], reason: str) -> None:
        """Record the attempts of these groups that are not in the record yet."""
        there = {id(row.trajectory) for row in self.rows}
        for index, group in enumerate(groups):
            self.rows += [Row(trajectory=t, group=index, dropped=reason) for t in group if id(t) not in there]

    def tell(self, role: str, metrics: Mapping[str, float]) -> None:
        """Add metrics of a role: the policy's keep their names, other roles' get theirs in front."""
        prefix = "" if role == "policy" else f"{role}/"
        self.metrics |= {f"{prefix}{name}": value for name, value in metrics.items()}

    def learn(
        self,
        role: str,
        batch: Batch,
        index_G: Sequence[int],
        columns: Sequence[Mapping[Signal, FloatArray]],
        learned: "Learned",
    ) -> None:
        """Record what a role's learner saw; `index_G` numbers the groups. An attempt has one row, with what the first
        role that learned from it saw; a critic writes nothing and makes no rows.
        """
        self.tell(role, learned.metrics)
        if not any(role in trajectory.learners for trajectory in batch.trajectories):
            return
        self.tell(role, {"trained_tokens": float(sum(t.num_trained for t in batch.trajectories))})
        gap = _sampler_gap(columns, learned)
        if gap is not None:
            self.tell(role, {"sampler_gap": gap})
        there = {id(row.trajectory) for row in self.rows}
        groups = batch.group_N.tolist()
        for trajectory, group, own, signals in zip(batch.trajectories, groups, columns, learned.signals, strict=True):
            if id(trajectory) in there:
                continue
            named = {signal: values for signal, values in own.items() if signal not in (BEHAVIOR_LOGP, OLD_LOGP)}
            kept = {signal.column: values for signal, values in named.items() if values.ndim == 1}
            seen = {signal: values for signal, values in signals.items() if len(values) == trajectory.num_trained}
            kept |= {signal.column: seen[signal] for signal in (LOGP, ENTROPY) if signal in seen}
            if LOGP in seen:
                with np.errstate(over="ignore"):
                    kept["ratio"] = np.exp(seen[LOGP] - own[OLD_LOGP])
            self.rows.append(Row(trajectory=trajectory, group=index_G[group], columns=kept))


def _sampler_gap(columns: Sequence[Mapping[Signal, FloatArray]], learned: "Learned") -> float | None:
    """Mean distance in nats of the learner's log-probabilities from the sampler's, before the step's first update.

    Over the tokens that were sampled; None where there are none.
    """
    gaps = []
    for i in learned.untouched:
        logp, sampled = learned.signals[i].get(LOGP), columns[i].get(BEHAVIOR_LOGP)
        if logp is not None and sampled is not None and len(logp) == len(sampled):
            gaps.append(np.abs(logp - sampled)[np.isfinite(sampled)])
    gap_T = np.concatenate([np.zeros(0), *gaps])
    return float(np.mean(gap_T, dtype=np.float64)) if len(gap_T) else None
