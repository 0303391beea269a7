import math
from dataclasses import replace

import pytest
import torch

from posttrain.components.objectives.matching import Matching
from posttrain.signals import LOGP, NOISE, Signal
from tests.builders import gradients, numerical_gradient, random_tokens, tokens
from tests.flows import made_flow, packed, signals
from tests.policies.test_flow import with_draw

WEIGHTINGS = ("uniform", "linear", "square", "huber", "ghuber")


def pseudo(weighting: str, error: float, noise: float) -> float:
    objective = Matching(weighting=weighting)  # type: ignore[arg-type]
    return float(objective.pseudo_logp(torch.tensor([error], dtype=torch.float64), torch.tensor([noise]).double()))


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [("uniform", -16.0), ("linear", -8.0), ("square", -4.0), ("huber", -0.5 * (4 - 1e-5)),
     ("ghuber", -(0.5 / 0.25) * (2 - 10**-2.5))],
)  # fmt: skip
def test_transforms_by_hand(weighting: str, expected: float) -> None:
    """An error of 16 at half noise; the fourth root of 16 is 2, and that of 1e-10 is 10^-2.5."""
    assert pseudo(weighting, 16.0, 0.5) == pytest.approx(expected, abs=1e-8)
    assert pseudo(weighting, 0.0, 0.5) == 0.0


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_gradient_is_finite_where_there_is_no_error(weighting: str) -> None:
    error = torch.zeros(1, requires_grad=True)
    Matching(weighting=weighting).pseudo_logp(error, torch.ones(1)).sum().backward()  # type: ignore[arg-type]
    assert error.grad is not None and math.isfinite(float(error.grad))
    assert float(error.grad) < 0


def test_on_policy_it_is_advantage_weighted_flow_matching() -> None:
    """The gradient of the loss in the weights, against that of A times the plain matching error."""
    policy = made_flow(steps=2, dtype="float64")
    these = [with_draw((2, 1), (0.5, -1), 1), with_draw((-1, 1), (1, 0), 0)]
    batch, advantage_T = packed(*these), torch.tensor([1.0, -0.5], dtype=torch.float64)
    found = policy.evaluate(batch.packed, batch.positions_T, frozenset({NOISE}))
    given = tokens([[-1.0], [-1.0]], advantage=[[1.0], [-0.5]])
    old_T = found[LOGP].detach()
    on_policy = replace(given, logp_T=found[LOGP], old_logp_T=old_T, signals={NOISE: found[NOISE]})
    Matching(weighting="uniform")(on_policy).loss_T.sum().backward()
    own = {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}
    policy.zero_grad()
    error_T = []
    for end, noise, time in (((2.0, 1.0), (0.5, -1.0), 0.5), ((-1.0, 1.0), (1.0, 0.0), 0.0)):
        x, e = torch.tensor(end).double(), torch.tensor(noise).double()
        mixed = time * x + (1 - time) * e
        place = torch.tensor([round(time * 2)])
        velocity = policy.velocity_at(mixed[None], place, torch.zeros(1, 0).double())
        error_T.append(((velocity - (x - e)) ** 2).mean())
    (advantage_T * torch.stack(error_T)).sum().backward()
    for name, parameter in policy.named_parameters():
        if name in own:
            torch.testing.assert_close(own[name], parameter.grad)
    assert own


def test_a_sample_has_one_ratio() -> None:
    these = tokens([[-1.0, -3.0]], old_logp=[[-2.0, -2.5]], advantage=[[1.0, 1.0]], noise=[[0.5, 0.5]])
    # Gaps 1 and -0.5: their mean is 0.25.
    loss_T = Matching(weighting="uniform", ratio="sample")(these).loss_T
    assert loss_T.tolist() == pytest.approx([-math.exp(0.25)] * 2)
    loss_T = Matching(weighting="uniform")(these).loss_T
    assert loss_T.tolist() == pytest.approx([-2.0, -math.exp(-0.5)])  # e is more than 1 + clip


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("ratio", ["draw", "sample"])
def test_finite_differences(weighting: str, ratio: str) -> None:
    objective = Matching(weighting=weighting, ratio=ratio)  # type: ignore[arg-type]
    these = random_tokens(needs={NOISE})

    def loss(logp_T: torch.Tensor) -> torch.Tensor:
        return objective(replace(these, logp_T=logp_T)).loss_T.sum()

    found = gradients(objective(these).loss_T.sum(), these)["logp_T"]
    torch.testing.assert_close(found, numerical_gradient(loss, these.logp_T), rtol=1e-5, atol=1e-7)


def test_metrics_are_the_errors() -> None:
    policy = made_flow(steps=2)
    found = signals(policy, with_draw((2, 1), (0.5, -1), 1), needs=frozenset({NOISE}))
    these = replace(
        tokens([[-1.0]]), logp_T=found[LOGP], old_logp_T=found[LOGP].detach(), signals={NOISE: found[NOISE]}
    )
    metrics = Matching()(these).metrics
    assert metrics["matching_error"].tolist() == (-found[LOGP]).tolist() and metrics["ratio"].tolist() == [1.0]


def test_old_values_of_another_role() -> None:
    """Uniform weights: the ratio is exp(-1 - -2) for errors 1 and 2, whatever the policy's own old value."""
    given = tokens([[-1.0]], advantage=[[1.0]])
    slow = Signal("logp", of="average")
    given = replace(given, signals={NOISE: torch.ones_like(given.logp_T), slow: torch.full_like(given.logp_T, -2.0)})
    objective = Matching(weighting="uniform", clip=10.0, old="average")
    assert objective.needs == {NOISE, slow}
    assert float(objective(given).loss_T) == pytest.approx(-math.e, rel=1e-6)
