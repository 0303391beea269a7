"""Computes the signals that advantages and penalties need."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from posttrain.components.rollouts import Earlier
from posttrain.signals import OLD_LOGP, Signal
from posttrain.stages.columns import signals_of_models
from posttrain.stages.rl.shown import shown_signals
from posttrain.types import FloatArray, Group

if TYPE_CHECKING:
    from posttrain.policies import Policy
    from posttrain.training.learner import Workers


def signals_for(
    groups: Sequence[Group],
    needs: frozenset[Signal],
    models: "Mapping[str, Policy]",
    max_tokens: int,
    temperature: float,
    *,
    role: str = "policy",
    critic: str = "critic",
    with_old: int | None = None,
    workers: "Workers | None" = None,
) -> dict[Signal, tuple[FloatArray, ...]]:
    """[T] signals of every trajectory, from one forward pass per model; `role` learns and `critic` gives its values.

    If there are trained demonstrations or rollouts of earlier steps, old log-probabilities are included: the sampler's
    for tokens that it drew in this step, and the learner's for the others; where it is given, of the first `with_old`
    trajectories only. `max_tokens` bounds a pass. `temperature` is that of the distribution that the tokens were drawn
    from. `workers` do the passes.
    """
    trajectories = [trajectory for group in groups for trajectory in group]
    shown = shown_signals(trajectories, needs, models[role], max_tokens)
    needs -= shown.keys()
    sampled = [trajectory.behavior_logp for trajectory in trajectories]
    waited = [trajectory.fact(Earlier) is not None for trajectory in trajectories]
    unknown = [np.isnan(logp_T) | own for logp_T, own in zip(sampled, waited, strict=True)]
    read = unknown if with_old is None else unknown[:with_old]
    unsampled = [i for i, unknown_T in enumerate(read) if unknown_T.any() and OLD_LOGP not in needs]
    if not needs and not unsampled:
        return shown
    from posttrain.training.packing import example_of

    examples = [example_of(trajectory, {}) for trajectory in trajectories]

    def computed(places: Sequence[int], wanted: frozenset[Signal]) -> list[dict[Signal, FloatArray]]:
        return signals_of_models(
            [examples[i] for i in places],
            wanted,
            models,
            role=role,
            critic=critic,
            max_tokens=lambda _: max_tokens,
            temperature=temperature,
            workers=workers,
        )

    passes_over_all = any(need.computed_by(role, critic) == role for need in needs)
    together = bool(unsampled) and passes_over_all
    found = computed(range(len(examples)), needs | {OLD_LOGP} if together else needs)
    if unsampled and not together:
        for i, own in zip(unsampled, computed(unsampled, frozenset({OLD_LOGP})), strict=True):
            found[i] |= own
    signals = {need: tuple(own[need] for own in found) for need in sorted(needs, key=lambda need: need.column)}
    if unsampled:
        signals[OLD_LOGP] = tuple(
            np.where(unknown_T, own.get(OLD_LOGP, logp_T), logp_T)
            for logp_T, unknown_T, own in zip(sampled, unknown, found, strict=True)
        )
    return signals | shown
