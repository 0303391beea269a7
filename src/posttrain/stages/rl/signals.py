"""Computes the signals that credit assignment needs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from posttrain.signals import OLD_LOGP, Signal
from posttrain.stages.columns import told_by_models
from posttrain.types import FloatArray, Group

if TYPE_CHECKING:
    from posttrain.policies import Policy


def signals_for(
    groups: Sequence[Group],
    needs: frozenset[Signal],
    models: "Mapping[str, Policy]",
    max_tokens: int,
    temperature: float,
    *,
    role: str = "policy",
    critic: str = "critic",
) -> dict[Signal, tuple[FloatArray, ...]]:
    """Costly signals of every trained token, from one forward pass a model, where `role` learns and `critic` gives its
    values.

    Where there are demonstrations to learn from, old log-probabilities are among them: the sampler's, and for tokens
    that nobody sampled the learner's. `max_tokens` bounds a pass; `temperature` is that of the distribution which the
    tokens were drawn from.
    """
    trajectories = [trajectory for group in groups for trajectory in group]
    sampled = [trajectory.behavior_logp for trajectory in trajectories]
    unsampled = [i for i, logp in enumerate(sampled) if np.isnan(logp).any() and OLD_LOGP not in needs]
    if not needs and not unsampled:
        return {}
    from posttrain.training.packing import example_of

    examples = [example_of(trajectory, {}) for trajectory in trajectories]

    def told(places: Sequence[int], asked: frozenset[Signal]) -> list[dict[Signal, FloatArray]]:
        return told_by_models(
            [examples[i] for i in places],
            asked,
            models,
            role=role,
            critic=critic,
            max_tokens=lambda _: max_tokens,
            temperature=temperature,
        )

    goes_over_all = any(need.asked(role, critic) == role for need in needs)
    together = bool(unsampled) and goes_over_all
    found = told(range(len(examples)), needs | {OLD_LOGP} if together else needs)
    if unsampled and not together:
        for i, own in zip(unsampled, told(unsampled, frozenset({OLD_LOGP})), strict=True):
            found[i] |= own
    signals = {need: tuple(own[need] for own in found) for need in sorted(needs, key=lambda need: need.column)}
    if unsampled:
        signals[OLD_LOGP] = tuple(
            np.where(np.isnan(logp_T), own.get(OLD_LOGP, logp_T), logp_T)
            for logp_T, own in zip(sampled, found, strict=True)
        )
    return signals
