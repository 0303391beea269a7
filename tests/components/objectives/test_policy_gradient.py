from dataclasses import replace

import torch

from posttrain.components.objectives.policy_gradient import PolicyGradient
from tests.builders import gradients, numerical_gradient, random_tokens, tokens


def test_worked_example() -> None:
    these = tokens([[-1.0, -2.0], [-0.5]], advantage=[[1.0, 2.0], [-3.0]])
    result = PolicyGradient()(these)
    assert result.loss_T.tolist() == [1.0, 4.0, -1.5]
    assert gradients(result.loss_T.sum(), these)["logp_T"].tolist() == [-1.0, -2.0, 3.0]
    assert not result.metrics


def test_finite_differences() -> None:
    these = random_tokens()

    def loss(logp_T: torch.Tensor) -> torch.Tensor:
        return PolicyGradient()(replace(these, logp_T=logp_T)).loss_T.sum()

    torch.testing.assert_close(
        gradients(loss(these.logp_T), these)["logp_T"], numerical_gradient(loss, these.logp_T), atol=1e-7, rtol=1e-6
    )


def test_samples_of_older_weights_are_not_reweighed() -> None:
    near, far = (random_tokens(gap=gap) for gap in (0.0, 3.0))
    assert torch.equal(PolicyGradient()(near).loss_T, PolicyGradient()(replace(near, old_logp_T=far.old_logp_T)).loss_T)
