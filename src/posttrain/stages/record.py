"""The record of one step: metrics, and every trajectory with its columns of one number per token."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from posttrain.components.rollouts import Earlier
from posttrain.signals import BEHAVIOR_LOGP, ENTROPY, LOGP, OLD_LOGP, Signal
from posttrain.types import Batch, FloatArray, Group, Trajectory

if TYPE_CHECKING:
    from posttrain.training.learner import Learned
    from posttrain.training.packing import Example


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
    """Metrics and rows of a step, filled while it runs and written when it ends."""

    metrics: dict[str, float] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    computed_tokens: int = 0
    """Tokens of the forward passes that were learned from, prompts included."""
    shown: list[tuple[int, Trajectory]] = field(default_factory=list)
    """Given trajectories that the step learns from, such as demonstrations, in the order of its examples, each with the
    index of its group."""

    def drop(self, group: Group, reason: str, index: int) -> None:
        """Record a group that is not learned from."""
        self.rows += [Row(trajectory=t, group=index, dropped=reason) for t in group]

    def drop_rest(self, groups: Sequence[Group], reason: str) -> None:
        """Record the rollouts of these groups that are not in the record yet."""
        recorded = {id(row.trajectory) for row in self.rows}
        for index, group in enumerate(groups):
            self.rows += [Row(trajectory=t, group=index, dropped=reason) for t in group if id(t) not in recorded]

    def add_metrics(self, role: str, metrics: Mapping[str, float]) -> None:
        """Add metrics of a role. The policy's keep their names; those of other roles get the role as a prefix."""
        prefix = "" if role == "policy" else f"{role}/"
        self.metrics |= {f"{prefix}{name}": value for name, value in metrics.items()}

    def learn(
        self,
        role: str,
        batch: Batch,
        index_G: Sequence[int],
        columns: Sequence[Mapping[Signal, FloatArray]],
        learned: "Learned",
        *,
        writer: str | None = None,
    ) -> None:
        """Record the metrics and rollouts of a role's update; `index_G` numbers the groups.

        `writer` is the role that learns, where `role` is a further name for an update of it. There is one row per
        rollout, with the columns of the first role that learned from it. A critic samples nothing and adds no rows.
        """
        self.add_metrics(role, learned.metrics)
        if not any((writer or role) in trajectory.learners for trajectory in batch.trajectories):
            return
        self.add_metrics(role, {"trained_tokens": float(sum(t.num_trained for t in batch.trajectories))})
        fresh = [i for i in learned.untouched if batch.trajectories[i].fact(Earlier) is None]
        gap = _sampler_gap(columns, learned, fresh)
        if gap is not None:
            self.add_metrics(role, {"sampler_gap": gap})
        self.computed_tokens += learned.computed_tokens
        recorded = {id(row.trajectory) for row in self.rows}
        groups = batch.group_N.tolist()
        for trajectory, group, own, signals in zip(batch.trajectories, groups, columns, learned.signals, strict=True):
            if id(trajectory) in recorded:
                continue
            recorded.add(id(trajectory))  # a copy in the batch is no further rollout
            row = _columns(trajectory, own, signals)
            if LOGP.column in row:
                with np.errstate(over="ignore"):
                    row["ratio"] = np.exp(row[LOGP.column] - own[OLD_LOGP])
            self.rows.append(Row(trajectory=trajectory, group=index_G[group], columns=row))

    def show(self, examples: "Sequence[Example]", learned: "Learned") -> None:
        """Record the given trajectories, each with its mask and the log-probabilities before the update."""
        if not self.shown:
            return
        for (group, trajectory), example, signals in zip(self.shown, examples, learned.signals, strict=True):
            self.rows.append(
                Row(trajectory=trajectory, group=group, columns=_columns(trajectory, example.columns, signals))
            )


def _columns(
    trajectory: Trajectory, own: Mapping[Signal, FloatArray], signals: Mapping[Signal, FloatArray]
) -> dict[str, FloatArray]:
    """The columns of a row: those from before the update, and those of the forward pass that are of all its tokens."""
    named = {signal: values for signal, values in own.items() if signal not in (BEHAVIOR_LOGP, OLD_LOGP)}
    row = {signal.column: values for signal, values in named.items() if values.ndim == 1}
    complete = {signal: values for signal, values in signals.items() if len(values) == trajectory.num_trained}
    return row | {signal.column: complete[signal] for signal in (LOGP, ENTROPY) if signal in complete}


def _sampler_gap(
    columns: Sequence[Mapping[Signal, FloatArray]], learned: "Learned", places: Sequence[int]
) -> float | None:
    """Mean absolute difference in nats of the learner's and the sampler's log-probabilities, before the first update.

    The mean is over the sampled tokens of these trajectories; None if there are none.
    """
    gaps = []
    for i in places:
        logp, sampled = learned.signals[i].get(LOGP), columns[i].get(BEHAVIOR_LOGP)
        if logp is not None and sampled is not None and len(logp) == len(sampled):
            gaps.append(np.abs(logp - sampled)[np.isfinite(sampled)])
    gap_T = np.concatenate([np.zeros(0), *gaps])
    return float(np.mean(gap_T, dtype=np.float64)) if len(gap_T) else None
