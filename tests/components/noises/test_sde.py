import math

import pytest
import torch

from posttrain.components.noises.sde import SDE


def step(noise: SDE, point: float, velocity: float, time: float, size: float) -> tuple[float, float]:
    mean, deviation = noise.step(
        torch.tensor([[point]]), torch.tensor([[velocity]]), torch.tensor([[time]]), size, None
    )
    return float(mean), float(deviation)


def test_a_step_by_hand() -> None:
    """t = 1/2: s^2 = level^2 = 1; the noise in the point is 1 - 0.5 * 2 = 0: no correction, and the Euler step."""
    assert step(SDE(level=1.0), 1.0, 2.0, 0.5, 0.25) == pytest.approx((1.5, 0.5))
    # The noise in the point is 3 - 0.5 * 2 = 2; the correction is s^2 / (2 t) * 2 = 2, the drift 2 - 2 = 0.
    assert step(SDE(level=1.0), 3.0, 2.0, 0.5, 0.25) == pytest.approx((3.0, 0.5))


def test_at_the_start_the_end_of_the_step_counts() -> None:
    """t = 1, size 1/4: s^2 = 1 / (1/4) = 4; noise 1 at velocity 0: drift -4 / 2; std sqrt(4 / 4)."""
    assert step(SDE(level=1.0), 1.0, 0.0, 0.0, 0.25) == pytest.approx((0.5, 1.0))


def test_a_single_step_is_finite() -> None:
    mean, deviation = step(SDE(), 1.0, 0.0, 0.0, 1.0)
    assert math.isfinite(mean) and deviation == pytest.approx(0.7 * math.sqrt(2.0))


def test_the_marginals_stay_those_of_the_flow() -> None:
    """Data N(0, 1): the flow's points have variance (1 - t)^2 + t^2 at every t, with noise in the steps or without."""
    generator = torch.Generator().manual_seed(0)
    steps = 400
    point = torch.randn(20_000, 1, generator=generator, dtype=torch.float64)
    noise = SDE(level=0.7)
    for k in range(steps // 2):
        time = k / steps
        share = 1 - time
        variance = time**2 + share**2
        velocity = point * (time - share) / variance  # E[x - e | point]
        mean, deviation = noise.step(point, velocity, torch.full_like(point, time), 1 / steps, None)
        point = mean + deviation * torch.randn(point.shape, generator=generator, dtype=torch.float64)
    assert float(point.var()) == pytest.approx(0.5, rel=0.05)
