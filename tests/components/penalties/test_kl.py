import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from posttrain.components.penalties.kl import KL
from posttrain.signals import logp_of
from posttrain.types import Tokens
from tests.builders import gradients, numerical_gradient, random_tokens, tokens, trajectory

LN2 = math.log(2.0)
FORMS = ["k1", "k2", "k3"]


@pytest.mark.parametrize(
    ("form", "estimate", "slope"),
    [("k1", LN2, 1.0), ("k2", LN2**2 / 2, LN2), ("k3", 0.5 - 1 + LN2, 0.5)],
)
def test_worked_example(form: str, estimate: float, slope: float) -> None:
    """p = 1/2 where the reference has 1/4."""
    these = tokens([[math.log(0.5)]], reference_logp={"reference": [[math.log(0.25)]]})
    term = KL(form=form, coefficient=0.1).in_loss(these)
    assert term is not None
    assert term.loss_T.item() == pytest.approx(0.1 * estimate)
    assert term.metrics["estimate"].item() == pytest.approx(estimate)
    assert gradients(term.loss_T.sum(), these)["logp_T"].item() == pytest.approx(0.1 * slope)
    attempt = trajectory(logp=[math.log(0.5)])
    change_T = KL(form=form, coefficient=0.1, where="reward").in_reward(
        attempt, {logp_of("reference"): np.array([math.log(0.25)], np.float32)}
    )
    assert change_T is not None
    assert change_T.tolist() == pytest.approx([-0.1 * estimate], rel=1e-6)


def test_acts_in_one_place_only() -> None:
    these = random_tokens(needs={logp_of("reference")})
    signals = {logp_of("reference"): np.zeros(2, np.float32)}
    assert KL(where="reward").in_loss(these) is None
    assert KL(where="loss").in_reward(trajectory(), signals) is None


def test_any_role_can_be_the_reference() -> None:
    penalty = KL(role="teacher")
    assert penalty.needs == {logp_of("teacher")}
    these = tokens([[-1.0]], reference_logp={"teacher": [[-1.0]], "reference": [[-9.0]]})
    term = penalty.in_loss(these)
    assert term is not None and term.loss_T.item() == 0.0


@pytest.mark.parametrize("form", FORMS)
def test_finite_differences(form: str) -> None:
    these = random_tokens(needs={logp_of("reference")}, gap=1.0)

    def loss(logp_T: torch.Tensor) -> torch.Tensor:
        term = KL(form=form).in_loss(replace(these, logp_T=logp_T))
        assert term is not None
        return term.loss_T.sum()

    found = gradients(loss(these.logp_T), these)["logp_T"]
    torch.testing.assert_close(found, numerical_gradient(loss, these.logp_T), atol=1e-8, rtol=1e-6)


def expected(form: str, logits: torch.Tensor, reference_logp: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Exact mean, over the sampled token, of the estimate and of its gradient with respect to the logits."""
    logp = logits.log_softmax(0)
    base = tokens([logp.tolist()], reference_logp={"reference": [reference_logp.tolist()]})
    term = KL(form=form, coefficient=1.0).in_loss(replace(base, logp_T=logp))
    assert term is not None
    mean = (logp.exp().detach() * term.loss_T).sum()
    return mean.detach(), torch.autograd.grad(mean, logits)[0]


def gradient_of(divergence: Callable[[torch.Tensor], torch.Tensor], logits: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(divergence(logits.log_softmax(0)), logits)[0]


def test_what_the_docstring_states_about_means_and_gradients() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, generator=generator, dtype=torch.float64).requires_grad_()
    reference = torch.randn(6, generator=generator, dtype=torch.float64).log_softmax(0)
    reverse = gradient_of(lambda logp: (logp.exp() * (logp - reference)).sum(), logits)
    forward = gradient_of(lambda logp: (reference.exp() * (reference - logp)).sum(), logits)
    logp = logits.detach().log_softmax(0)
    divergence = (logp.exp() * (logp - reference)).sum()
    mean, slope = {}, {}
    for form in FORMS:
        mean[form], slope[form] = expected(form, logits, reference)
    torch.testing.assert_close(mean["k1"], divergence)
    torch.testing.assert_close(mean["k3"], divergence)
    torch.testing.assert_close(slope["k1"], torch.zeros(6, dtype=torch.float64))
    torch.testing.assert_close(slope["k2"], reverse)
    torch.testing.assert_close(slope["k3"], forward)


def test_k3_of_a_tiny_gap_is_not_rounding() -> None:
    these = tokens([[-1.0]], reference_logp={"reference": [[-1.0 - 1e-3]]}, dtype=torch.float32)
    term = KL(coefficient=1.0).in_loss(these)
    gap = float(these.logp_T.detach() - these[logp_of("reference")])
    assert term is not None
    assert term.loss_T.item() == pytest.approx(gap**2 / 2, rel=1e-3)


def test_k3_beyond_20_nats_costs_as_much_as_20() -> None:
    these = tokens([[-90.0, -25.0]], reference_logp={"reference": [[-5.0, -5.0]]})
    term = KL(coefficient=1.0).in_loss(these)
    assert term is not None
    assert term.loss_T.tolist() == pytest.approx([math.exp(20) - 21.0] * 2)


def loss_of(penalty: KL, these: Tokens) -> list[float]:
    term = penalty.in_loss(these)
    assert term is not None
    return term.loss_T.tolist()


@pytest.mark.parametrize(("progress", "coefficient"), [(0.0, 5e-3), (0.15, 3e-3), (0.3, 1e-3), (0.9, 1e-3)])
def test_the_weight_goes_down_a_straight_line_to_its_floor(progress: float, coefficient: float) -> None:
    these = replace(tokens([[-1.0]], reference_logp={"reference": [[-3.0]]}), progress=progress)
    penalty = KL(form="k2", coefficient=5e-3, final=1e-3, until=0.3)
    assert loss_of(penalty, these) == pytest.approx([coefficient * 2.0])
    assert loss_of(replace(penalty, final=None), these) == pytest.approx([5e-3 * 2.0])


V = KL(form="k2", coefficient=0.07, final=0.04, until=0.3, after=0.1)
"""Two straight lines: from 0.07 down to 0.04 at 0.3, and up to 0.1 at the end."""


@pytest.mark.parametrize(
    ("progress", "coefficient"),
    [(0.0, 0.07), (0.15, 0.055), (0.3, 0.04), (0.3 + 1e-9, 0.04), (0.65, 0.07), (0.86, 0.088), (1.0, 0.1)],
)
def test_the_weight_falls_along_one_line_and_rises_along_another(progress: float, coefficient: float) -> None:
    """Half of d^2 is 2; at 0.86 the rise of 0.06 has gone 0.56 / 0.7 of its way."""
    these = replace(tokens([[-1.0]], reference_logp={"reference": [[-3.0]]}), progress=progress)
    assert loss_of(V, these) == pytest.approx([coefficient * 2.0])
    term = V.in_loss(these)
    assert term is not None
    assert term.metrics["coefficient"].tolist() == pytest.approx([coefficient])
    assert gradients(term.loss_T.sum(), these)["logp_T"].tolist() == pytest.approx([coefficient * 2.0])


def test_a_rising_line_needs_no_second_one() -> None:
    """From nothing to 0.02: without any pull at first."""
    ramp = KL(form="k2", coefficient=0.0, final=0.02)
    these = tokens([[-1.0]], reference_logp={"reference": [[-3.0]]})
    assert [loss_of(ramp, replace(these, progress=p))[0] for p in (0.0, 0.5, 1.0)] == pytest.approx([0.0, 0.02, 0.04])
    constant = KL().in_loss(these)
    assert constant is not None and set(constant.metrics) == {"estimate"}


@pytest.mark.parametrize("lines", [{"after": 0.1}, {"after": 0.1, "final": 0.04}, {"after": 0.1, "until": 0.3}])
def test_a_second_line_needs_a_first_one_and_room(lines: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="set final, and until below 1"):
        KL(**lines)  # type: ignore[arg-type]


def test_only_failures() -> None:
    """Two groups: the first has one correct rollout of two, the second none."""
    these = tokens(
        [[-1.0], [-1.0, -1.0], [-1.0]],
        reference_logp={"reference": [[-2.0], [-2.0, -2.0], [-2.0]]},
        group_N=[0, 0, 1],
        reward_N=[1.0, 0.0, 0.0],
    )
    assert loss_of(KL(form="k1", coefficient=1.0), these) == [1.0, 1.0, 1.0, 1.0]
    assert loss_of(KL(form="k1", coefficient=1.0, rollouts="wrong"), these) == [0.0, 1.0, 1.0, 1.0]
    assert loss_of(KL(form="k1", coefficient=1.0, rollouts="unsolved"), these) == [0.0, 0.0, 0.0, 1.0]
    term = KL(rollouts="unsolved").in_loss(these)
    assert term is not None
    assert term.metrics["share"].tolist() == [0.0, 0.0, 1.0]
    assert gradients(term.loss_T.sum(), these)["logp_T"][:3].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("changed", [{"final": 0.1}, {"rollouts": "wrong"}])
def test_a_term_in_the_reward_has_no_schedule_and_no_mask(changed: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="set where to 'loss'"):
        KL(where="reward", **changed)  # type: ignore[arg-type]
