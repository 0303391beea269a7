"""Seconds of a step, from one batch that is sampled as in the first step and one pass of the learner."""

import time
from typing import TYPE_CHECKING

from posttrain.runs.context import RunContext, StageRunContext

if TYPE_CHECKING:
    from posttrain.policies import Policy

TOKENS = 512
"""Tokens of the forward and backward pass that is measured."""


def seconds_a_step(context: RunContext) -> dict[str, dict[str, float]]:
    """By stage, seconds of sampling and learning of a step, and their sum. Nothing is learned or written.

    Sampling includes scoring. Learning is a pass of the policy over random tokens, for as many tokens as were sampled;
    for stages that do not sample, sampling and learning are not measured.
    """
    from posttrain.policies.language_model import LanguageModelPolicy

    models = context.first_models()
    context.check(models)
    found: dict[str, dict[str, float]] = {}
    policy = models["policy"]
    per_token = _seconds_per_token(policy) if isinstance(policy, LanguageModelPolicy) else 0.0
    for name, stage in context.recipe.stages.items():
        if getattr(stage, "rollout", None) is None:
            continue
        run = StageRunContext(context, name, stage)
        with_copies = context.with_copies(stage, models)
        before, began = run.sampled_tokens(with_copies), time.perf_counter()
        stage.preview(with_copies, run)
        sampling = time.perf_counter() - began
        learning = per_token * (run.sampled_tokens(with_copies) - before)
        found[name] = {"sample and score": sampling, "learn": learning, "total": sampling + learning}
    return found


def _seconds_per_token(policy: "Policy") -> float:
    """Seconds of a forward and a backward pass for each token; the second of two passes, since the first warms up."""
    import torch

    from posttrain.policies import Packed
    from posttrain.signals import LOGP

    if not any(parameter.requires_grad for parameter in policy.parameters()):
        return 0.0  # another model is trained
    length = min(TOKENS, policy.context)
    device = next(policy.parameters()).device
    ids_L = torch.arange(length, device=device) % policy.body.vocabulary_size
    packed = Packed(token_ids_L=ids_L, starts=(0, length))
    seconds = 0.0
    for _ in range(2):
        began = time.perf_counter()
        signals = policy.evaluate(packed, torch.arange(1, length, device=device))
        signals[LOGP].sum().backward()  # type: ignore[no-untyped-call]
        seconds = time.perf_counter() - began
        policy.zero_grad(set_to_none=True)
    return seconds / length
