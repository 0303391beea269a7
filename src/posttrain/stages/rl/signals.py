"""Computes what credit needs to know of every trained token."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from posttrain.types import FloatArray, Group

if TYPE_CHECKING:
    from posttrain.policies import Policy


class _Bounds(TypedDict):
    """What every forward pass over some examples is told."""

    max_tokens: int
    temperature: float


def signals_for(
    groups: Sequence[Group],
    needs: frozenset[str],
    models: "Mapping[str, Policy]",
    max_tokens: int,
    temperature: float,
    *,
    role: str = "policy",
    critic: str = "critic",
) -> dict[str, tuple[FloatArray, ...]]:
    """Costly signals of every trained token, one forward pass a model: ``value`` from the critic, ``<other>_logp``,
    ``<other>_entropy`` or ``<other>_velocity`` of another model, ``<other>_kl`` the exact divergence from it of the
    model in the `role` that learns. The ``<other>`` model ``old`` is the one that learns, as it is now.

    Where there are demonstrations to learn from, ``old_logp`` is among them: the sampler's, and for tokens that nobody
    sampled the learner's. `max_tokens` bounds a pass; `temperature` is that of the distribution which the tokens were
    drawn from.
    """
    behavior = [trajectory.behavior_logp for group in groups for trajectory in group]
    unsampled = [i for i, logp in enumerate(behavior) if np.isnan(logp).any() and "old_logp" not in needs]
    if not needs and not unsampled:
        return {}
    from posttrain.training.learner import evaluate_examples
    from posttrain.training.packing import example_of

    examples = [example_of(trajectory, {}) for group in groups for trajectory in group]
    signals: dict[str, tuple[FloatArray, ...]] = {}
    bounds: _Bounds = {"max_tokens": max_tokens, "temperature": temperature}
    for need in sorted(needs):
        asked, _, name = (critic, "", "value") if need == "value" else need.rpartition("_")
        others = {}
        if name == "kl":
            asked, name, others = "old", f"{asked}_reverse_kl", {asked: models[asked]}
        policy = models[role if asked == "old" else asked]
        results = evaluate_examples(policy, examples, frozenset({name}), others=others, **bounds)
        signals[need] = tuple(result[name] for result in results)
    if unsampled:
        results = evaluate_examples(models[role], [examples[i] for i in unsampled], frozenset({"logp"}), **bounds)
        for i, result in zip(unsampled, results, strict=True):
            behavior[i] = np.where(np.isnan(behavior[i]), result["logp"], behavior[i])
        signals["old_logp"] = tuple(behavior)
    return signals
