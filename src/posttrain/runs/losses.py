"""Held-out loss: how likely the policy finds held-out demonstrations and pairs. Nothing is sampled, so it is exact.

The loss is the mean over all trained tokens in nats, as that of an sft stage. A pair counts as ordered where the chosen
completion, as a whole, is likelier than the rejected one. Intervals take the texts of one task as one cluster.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from posttrain.signals import LOGP
from posttrain.stages import Stage
from posttrain.stages.pairs import Side
from posttrain.statistics.intervals import Estimate, clustered_mean, wilson
from posttrain.types import FloatArray, Task, Trajectory

if TYPE_CHECKING:
    from posttrain.policies import Policy
    from posttrain.training.settings import Learning

Key = tuple[str, int]
"""Task key and number of one of its given texts."""


@dataclass(frozen=True, kw_only=True)
class Losses:
    """Held-out texts with the log-probability of each token, and the summary."""

    trajectories: tuple[Trajectory, ...]
    columns: tuple[Mapping[str, FloatArray], ...]
    summary: Mapping[str, Any]
    """Of demonstrations ``demonstrations``, ``held_out_loss``, ``perplexity``; of pairs ``pairs``, ``pair_accuracy``,
    ``pair_margin`` (nats), ``chosen_loss``; each with its ``..._interval`` (95 %). After the first evaluation
    ``loss_change`` from there, and ``implicit_accuracy``, the share of pairs whose chosen completion has gained more
    nats since then than the rejected one: DPO's own reward, with the initial model as the reference."""


def held_out_losses(
    policy: "Policy", stages: Sequence[Stage], tasks: Sequence[Task], first: Mapping[Key, float]
) -> Losses:
    """Measure the texts that the stages learn from, in the tasks; `first` are their sums of nats when the run began."""
    given = given_texts(policy, stages, tasks)
    if not given:
        return Losses(trajectories=(), columns=(), summary={})
    found = _log_probabilities(policy, given, next(s.learner for s in stages if hasattr(s, "learner")))
    demonstrations = [i for i, t in enumerate(given) if t.fact(Side) is None]
    chosen = [i for i, t in enumerate(given) if (side := t.fact(Side)) is not None and side.side == "chosen"]
    summary: dict[str, Any] = {}
    if demonstrations:
        loss = _loss(given, found, demonstrations)
        summary |= {"demonstrations": len(demonstrations), **_named("held_out_loss", loss)}
        ends = summary["held_out_loss_interval"]
        summary |= {"perplexity": _exp(loss.value), "perplexity_interval": ends and [_exp(end) for end in ends]}
        summary |= _change(given, found, demonstrations, first)
    if chosen:
        margins = [_sum(found[i]) - _sum(found[i + 1]) for i in chosen]
        keys = [given[i].task.key for i in chosen]
        summary |= {"pairs": len(chosen), **_share("pair_accuracy", [m > 0 for m in margins], keys)}
        summary |= _named("pair_margin", clustered_mean(margins, keys))
        summary |= _named("chosen_loss", _loss(given, found, chosen))
        at_first = [first.get(_key(given[i]), math.nan) - first.get(_key(given[i + 1]), math.nan) for i in chosen]
        if first and not any(map(math.isnan, at_first)):
            gained = [now > then for now, then in zip(margins, at_first, strict=True)]
            summary |= _share("implicit_accuracy", gained, keys)
    columns = tuple({LOGP.column: logp_T} for logp_T in found)
    return Losses(trajectories=tuple(given), columns=columns, summary=summary)


def given_texts(policy: "Policy", stages: Sequence[Stage], tasks: Sequence[Task]) -> list[Trajectory]:
    """The texts of each task that the stages learn from, numbered; of stages of one kind those of the first."""
    by_kind: dict[str, Stage] = {}
    for stage in stages:
        by_kind.setdefault(stage.kind, stage)
    return [
        replace(trajectory, sample=number)
        for task in tasks
        for number, trajectory in enumerate(t for stage in by_kind.values() for t in stage.given(policy, task))
    ]


def sums_of(rows: Sequence[Mapping[str, Any]]) -> dict[Key, float]:
    """Sums of nats of recorded rows with ``task_key``, ``sample`` and ``trained_logp``."""
    return {
        (row["task_key"], row["sample"]): math.fsum(x for x in row[LOGP.column] if x is not None)
        for row in rows
        if row[LOGP.column] is not None
    }


def _log_probabilities(policy: "Policy", given: Sequence[Trajectory], learning: "Learning") -> list[FloatArray]:
    """[T] of each trajectory's trained tokens under the policy."""
    from posttrain.training.learner import evaluate_examples
    from posttrain.training.packing import example_of

    max_tokens = learning.tokens_for(policy)
    examples = [example_of(trajectory, {}) for trajectory in given]
    return [found[LOGP] for found in evaluate_examples(policy, examples, frozenset({LOGP}), max_tokens=max_tokens)]


def _loss(given: Sequence[Trajectory], found: Sequence[FloatArray], chosen: Sequence[int]) -> Estimate:
    """Mean nats a token."""
    nats_T = -np.concatenate([found[i] for i in chosen]).astype(np.float64)
    return clustered_mean(nats_T, [given[i].task.key for i in chosen for _ in found[i]])


def _change(
    given: Sequence[Trajectory], found: Sequence[FloatArray], chosen: Sequence[int], first: Mapping[Key, float]
) -> dict[str, Any]:
    """The loss minus that of the first evaluation, text by text."""
    kept = [i for i in chosen if _key(given[i]) in first]
    tokens = sum(len(found[i]) for i in kept)
    if not tokens or len(kept) < len(chosen):
        return {}
    # Spread evenly over the tokens of its text: sums by task, and so the interval, are those of single tokens.
    change_T = np.concatenate(
        [np.full(len(found[i]), (first[_key(given[i])] - _sum(found[i])) / max(1, len(found[i]))) for i in kept]
    )
    return _named("loss_change", clustered_mean(change_T, [given[i].task.key for i in kept for _ in found[i]]))


def _share(name: str, right: Sequence[bool], keys: Sequence[str]) -> dict[str, Any]:
    """A share of pairs with its interval: Wilson's, where no task has several."""
    if len(set(keys)) == len(keys):
        return {name: sum(right) / len(right), f"{name}_interval": list(wilson(sum(right), len(right)))}
    found = clustered_mean([float(one) for one in right], keys)
    low, high = found.interval
    return {name: found.value, f"{name}_interval": [max(0.0, low), min(1.0, high)]}


def _named(name: str, found: Estimate) -> dict[str, Any]:
    """A number with its interval; a single task has none."""
    bounded = math.isfinite(found.standard_error)
    return {name: found.value, f"{name}_interval": list(found.interval) if bounded else None}


def _key(trajectory: Trajectory) -> Key:
    return trajectory.task.key, trajectory.sample


def _sum(logp_T: FloatArray) -> float:
    return math.fsum(logp_T.tolist())


def _exp(nats: float) -> float:
    return math.exp(min(nats, 700.0))
