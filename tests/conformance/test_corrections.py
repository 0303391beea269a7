"""Laws of the corrections, for every member on arrival."""

from dataclasses import replace

import pytest
import torch

from posttrain.components.corrections import Correction
from tests.builders import random_tokens, reordered, without
from tests.conformance._members import each, members

every_member = pytest.mark.parametrize("correction", members(Correction))


@every_member
def test_one_factor_a_token_not_differentiated(correction: Correction) -> None:
    tokens = random_tokens()
    tokens = replace(tokens, old_logp_T=tokens.old_logp_T.requires_grad_())
    factor_T = correction(tokens)
    assert factor_T.shape == tokens.logp_T.shape
    assert not factor_T.requires_grad
    assert (factor_T.isfinite() & (factor_T >= 0)).all()


@every_member
def test_needs_are_exact(correction: Correction) -> None:
    tokens = random_tokens(needs=correction.needs)
    correction(tokens)
    for need in correction.needs:
        with pytest.raises((AttributeError, KeyError, TypeError)):
            correction(without(tokens, need))


@every_member
def test_one_where_learner_and_sampler_agree(correction: Correction) -> None:
    factor_T = correction(random_tokens(gap=0.0))
    assert torch.equal(factor_T, torch.ones_like(factor_T))


@every_member
@each(gap=[20.0, -20.0, 80.0, -80.0, 200.0, -200.0])
def test_finite_at_extreme_gaps(correction: Correction, gap: float) -> None:
    tokens = random_tokens(gap=0.0, dtype=torch.float32)
    assert correction(replace(tokens, old_logp_T=tokens.behavior_logp_T + gap)).isfinite().all()


@every_member
def test_tokens_that_nobody_sampled_are_left_alone(correction: Correction) -> None:
    tokens = random_tokens()
    tokens.behavior_logp_T[tokens.sequence_T == 2] = torch.nan
    factor_T = correction(tokens)
    assert torch.equal(factor_T[tokens.sequence_T == 2], torch.ones(4, dtype=factor_T.dtype))
    assert factor_T.isfinite().all()


@every_member
def test_order_of_sequences_does_not_matter(correction: Correction) -> None:
    tokens = random_tokens()
    shuffled, positions = reordered(tokens, [4, 1, 5, 0, 3, 2])
    torch.testing.assert_close(correction(shuffled), correction(tokens)[positions])
