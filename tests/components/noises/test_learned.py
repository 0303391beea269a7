import pytest
import torch
from pydantic import ValidationError

from posttrain.components.noises.constant import Constant
from posttrain.components.noises.learned import Learned


def deviations(noise: Learned, *said: float) -> list[float]:
    zero = torch.zeros(1, len(said))
    return noise.step(zero, zero, torch.zeros(1, 1), 0.5, torch.tensor([said]))[1][0].tolist()


def test_standard_deviations_go_geometrically_between_the_bounds() -> None:
    assert deviations(Learned(lowest=0.1, highest=0.4), -1.0, 0.0, 1.0) == pytest.approx([0.1, 0.2, 0.4])


def test_bounds_in_order() -> None:
    with pytest.raises(ValidationError, match="lowest must not be above"):
        Learned(lowest=0.3, highest=0.2)


@pytest.mark.parametrize("noise", [Learned(), Constant()])
def test_the_mean_is_an_euler_step(noise: Learned | Constant) -> None:
    one = torch.ones(1, 2)
    mean, _ = noise.step(one, 2 * one, torch.zeros(1, 1), 0.25, torch.zeros(1, 2))
    assert mean.tolist() == [[1.5, 1.5]]


def test_constant_is_constant() -> None:
    one = torch.ones(1, 2)
    assert Constant(std=0.25).step(one, one, one, 0.5, None)[1].tolist() == [[0.25, 0.25]]
