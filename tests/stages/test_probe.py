"""The slope of the validation loss in the share of imitation, against finite differences of a model."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from posttrain.components.balances import Shares
from posttrain.components.objectives.likelihood import Likelihood
from posttrain.components.reducers.by_origin import ByOrigin
from posttrain.components.reducers.tokens import Tokens
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.signals import BEHAVIOR_LOGP
from posttrain.stages.rl.probe import gradient_difference, slope
from posttrain.stages.sft import demonstration, example_from
from posttrain.training.learner import Learner, Loss
from posttrain.training.packing import Example
from posttrain.training.settings import Learning
from posttrain.types import Task

LOSS = Loss(per_token=Likelihood(), reducer=ByOrigin(sampled=Tokens(), demonstrated=Tokens()))


def test_it_is_the_slope_of_the_loss_after_a_step_of_gradient_descent(tiny_folder: Path) -> None:
    """L_val(theta - lr (mu g_sft + (1 - mu) g_rl)) at mu and a little above and below, in float64."""
    policy = load_policy("policy", Model(source=str(tiny_folder), trained=True), {}, torch.device("cpu")).double()
    learner = Learner(policy, Learning(), seed=0, num_steps=1)

    def examples(*texts: str, sampled: bool = False) -> list[Example]:
        made = [example_from(demonstration(policy, Task(key=t, prompt="Q: "), t)) for t in texts]
        known = {BEHAVIOR_LOGP: np.zeros(0, np.float32)}
        return [replace(e, columns={**e.columns, **{s: np.zeros(e.num_trained, np.float32) for s in known}})
                for e in made] if sampled else made  # fmt: skip

    experts, rollouts, held = examples("one", "two"), examples("other", sampled=True), examples("on", "ot")
    start = [p.detach().clone() for p in learner.parameters.values()]
    lr, mu = 0.05, 0.3

    def moved(share: float) -> None:
        with torch.no_grad():
            for p, before, a, b in zip(learner.parameters.values(), start, g_sft, g_rl, strict=True):
                p.copy_(before - lr * (share * a + (1 - share) * b))

    def validation(share: float) -> float:
        moved(share)
        total, _ = learner.accumulate(held, LOSS, 0.0)
        for p in learner.parameters.values():
            p.grad = None
        return total

    difference = gradient_difference(learner, (rollouts, LOSS), (experts, LOSS), 0.0)
    g_sft, g_rl = (learner.gradient(part, LOSS, progress=0.0) for part in (experts, rollouts))
    assert all(torch.equal(a - b, d) for a, b, d in zip(g_sft, g_rl, difference, strict=True))
    moved(mu)
    found = slope(learner, difference, (held, LOSS), 0.0)
    step = 1e-4
    numerical = -(validation(mu + step) - validation(mu - step)) / (2 * step)
    assert abs(numerical) > 1e-6
    np.testing.assert_allclose(lr * found, numerical, rtol=1e-4)


def test_a_gradient_leaves_nothing_behind(tiny_folder: Path) -> None:
    policy = load_policy("policy", Model(source=str(tiny_folder), trained=True), {}, torch.device("cpu"))
    learner = Learner(policy, Learning(), seed=0, num_steps=1)
    before = [p.detach().clone() for p in policy.parameters()]
    shown: Sequence[Example] = [example_from(demonstration(policy, Task(key="t", prompt="Q: "), "one"))]
    whole = learner.gradient(shown, LOSS, progress=0.0)
    halved = learner.gradient(shown, replace(LOSS, shares=Shares(demonstrated=0.5)), progress=0.0)
    for a, b in zip(whole, halved, strict=True):
        torch.testing.assert_close(0.5 * a, b)
    assert all(p.grad is None or not p.grad.any() for p in learner.parameters.values())
    assert all(torch.equal(p, b) for p, b in zip(policy.parameters(), before, strict=True))
    assert not any(g.any() for g in learner.gradient([], LOSS, progress=0.0))
