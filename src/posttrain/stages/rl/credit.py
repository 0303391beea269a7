"""The batch that an advantage takes: groups, signals and token rewards."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from posttrain.components.penalties import Penalty
from posttrain.components.rewards import SpanRewards
from posttrain.signals import ADVANTAGE, BEHAVIOR_LOGP, OLD_LOGP, VALUE_TARGET, Signal
from posttrain.types import Batch, Credit, FloatArray, Group, Trajectory, value_of


def token_rewards(trajectory: Trajectory, penalties: Sequence[FloatArray]) -> FloatArray:
    """[T] reward of each trained token: the penalties of the token; the reward of each turn, at the last trained token
    up to the end of that turn's segment; the spans of the score, at their tokens; the rest of it, at the last token.
    """
    rewards = np.zeros(trajectory.num_trained, np.float64)
    if not len(rewards):
        return rewards.astype(np.float32)
    for penalty in penalties:
        rewards += penalty
    seen = 0
    for segment in trajectory.segments:
        seen += len(segment) if segment.trained else 0
        if segment.reward:
            rewards[max(seen - 1, 0)] += segment.reward
    rewards[-1] += value_of(trajectory)
    placed = trajectory.fact(SpanRewards)
    for token, reward in placed.span_rewards if placed is not None else ():
        rewards[token] += reward
        rewards[-1] -= reward
    return rewards.astype(np.float32)


def written_by(trajectory: Trajectory, roles: Collection[str] | None) -> NDArray[np.bool_]:
    """[T] whether one of these roles learns from a trained token; None are all roles."""
    own = [np.full(len(s), roles is None or s.learner in roles) for s in trajectory.segments if s.trained]
    return np.concatenate([np.zeros(0, bool), *own])


def batch_of(
    groups: Sequence[Group],
    signals: Mapping[Signal, tuple[FloatArray, ...]],
    penalties: Mapping[str, Penalty],
    progress: float,
    trained: Collection[str] | None = None,
) -> Batch:
    """The groups of a step with their token rewards and signals.

    Penalties are taken from the rewards of tokens whose writer is among the `trained` roles; None are all.
    """
    trajectories = [t for group in groups for t in group]
    rewards = []
    for i, trajectory in enumerate(trajectories):
        own = {signal: values[i] for signal, values in signals.items()}
        taken = [penalty.in_reward(trajectory, own) for penalty in penalties.values()]
        counted_T = written_by(trajectory, trained)
        rewards.append(token_rewards(trajectory, [np.where(counted_T, t, 0.0) for t in taken if t is not None]))
    return Batch(groups=tuple(groups), signals=signals, token_rewards=tuple(rewards), progress=progress)


def columns_of(batch: Batch, credit: Credit) -> list[dict[Signal, FloatArray]]:
    """For each trajectory, [T] signals for the learner and the record."""
    columns = []
    for i, trajectory in enumerate(batch.trajectories):
        own = {signal: values[i] for signal, values in batch.signals.items()}
        own[BEHAVIOR_LOGP] = trajectory.behavior_logp
        own.setdefault(OLD_LOGP, trajectory.behavior_logp)
        own[ADVANTAGE] = credit.advantages[i]
        if credit.value_targets:
            own[VALUE_TARGET] = credit.value_targets[i]
        columns.append(own)
    return columns
