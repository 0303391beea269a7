from dataclasses import replace

import pytest
import torch

from posttrain.components.objectives.by_origin import ByOrigin
from posttrain.components.objectives.likelihood import Likelihood
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.objectives.value_clip import ValueClip
from posttrain.signals import OLD_VALUE, VALUE
from posttrain.types import Tokens
from tests.builders import gradients, numerical_gradient, random_tokens, tokens

NAN = float("nan")
MIXED = ByOrigin(sampled=PPOClip(), demonstrated=Likelihood(), weight=0.5)


def hybrid() -> Tokens:
    """A hybrid of two demonstrated tokens and one sampled, a rollout, a demonstration."""
    return tokens(
        [[-1.0, -2.0, -3.0], [-1.5], [-0.5, -0.25]],
        old_logp=[[-1.0, -2.0, -3.0], [-1.5], [-0.5, -0.25]],
        behavior_logp=[[NAN, NAN, -3.0], [-1.5], [NAN, NAN]],
        advantage=[[2.0, 2.0, 2.0], [-1.0], [0.0, 0.0]],
    )


def test_each_token_by_its_own_loss() -> None:
    these = hybrid()
    result = MIXED(these)
    assert result.loss_T.tolist() == pytest.approx([0.5, 1.0, -2.0, 1.0, 0.25, 0.125])
    slope = gradients(result.loss_T.sum(), these)["logp_T"]
    assert slope.tolist() == pytest.approx([-0.5, -0.5, -2.0, 1.0, -0.5, -0.5])
    assert result.metrics["ratio"].tolist() == pytest.approx([1.0, 1.0]), "of sampled tokens only"


def test_finite_differences() -> None:
    these = random_tokens(gap=0.5)
    behavior_T = these.behavior_logp_T.clone()
    behavior_T[::3] = NAN
    these = replace(these, behavior_logp_T=behavior_T)

    def loss(logp_T: torch.Tensor) -> torch.Tensor:
        return MIXED(replace(these, logp_T=logp_T)).loss_T.sum()

    found = gradients(loss(these.logp_T), these)["logp_T"]
    torch.testing.assert_close(found, numerical_gradient(loss, these.logp_T), atol=1e-8, rtol=1e-6)


def test_without_demonstrations_it_is_the_objective_of_sampled_tokens() -> None:
    these = random_tokens(gap=0.5)
    assert torch.equal(MIXED(these).loss_T, PPOClip()(these).loss_T)
    assert MIXED(these).metrics.keys() == PPOClip()(these).metrics.keys()


def test_metrics_of_demonstrations_have_a_name_of_their_own() -> None:
    both = ByOrigin(sampled=PPOClip(), demonstrated=PPOClip())
    metrics = both(hybrid()).metrics
    assert len(metrics["ratio"]) == 2 and len(metrics["demonstrated/ratio"]) == 4


def test_sequences_keep_their_place_and_lose_tokens() -> None:
    these = hybrid()
    own = these.only(~these.demonstrated_T)
    assert own.logp_T.tolist() == [-3.0, -1.5]
    assert own.sequence_T.tolist() == [0, 1]
    assert own.length_N.tolist() == [1, 1, 0]
    assert own.sequence_mean(own.logp_T).tolist() == [-3.0, -1.5, 0.0]


def test_needs_and_exceptions() -> None:
    mixed = ByOrigin(sampled=Likelihood(), demonstrated=ValueClip())
    assert mixed.needs == {VALUE, OLD_VALUE}
    assert mixed.exceptions == Likelihood().exceptions
    assert not mixed.whole_groups
