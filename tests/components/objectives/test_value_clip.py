import pytest
import torch

from posttrain.components.objectives.value_clip import ValueClip
from posttrain.signals import OLD_VALUE, VALUE
from tests.builders import gradients, having, numerical_gradient, random_tokens, tokens


def one_token(objective: ValueClip, value: float, old: float, target: float) -> tuple[float, float]:
    these = tokens([[-1.0]], value=[[value]], old_value=[[old]], value_target=[[target]])
    result = objective(these)
    return result.loss_T.item(), gradients(result.loss_T.sum(), these)[VALUE].item()


@pytest.mark.parametrize(
    ("value", "old", "target", "loss", "slope"),
    [
        (0.1, 0.0, 2.0, 1.805, -1.9),  # within the range: half the square of 1.9
        (1.0, 0.0, 2.0, 1.62, 0.0),  # moved 1.0 towards the target, counts as 0.2: half the square of 1.8
        (3.0, 2.0, 2.0, 0.5, 1.0),  # moved away: the full error, and the way back is open
        (2.5, 0.0, 2.0, 1.62, 0.0),  # past the target: the held value is still further off
    ],
)
def test_worked_examples(value: float, old: float, target: float, loss: float, slope: float) -> None:
    assert one_token(ValueClip(), value, old, target) == pytest.approx((loss, slope))


def test_without_a_range_it_is_the_squared_error() -> None:
    assert one_token(ValueClip(clip=None), 1.0, 0.0, 2.0) == pytest.approx((0.5, -1.0))


def test_metric_is_the_share_of_stopped_tokens() -> None:
    these = tokens([[-1.0, -1.0]], value=[[0.1, 1.0]], old_value=[[0.0, 0.0]], value_target=[[2.0, 2.0]])
    assert ValueClip()(these).metrics["value_clip_fraction"].tolist() == [0, 1]
    assert not ValueClip(clip=None)(these).metrics


@pytest.mark.parametrize("objective", [ValueClip(), ValueClip(clip=1.0), ValueClip(clip=None)])
def test_finite_differences(objective: ValueClip) -> None:
    these = random_tokens(needs={VALUE, OLD_VALUE}, lengths=(20, 30))

    def loss(value_T: torch.Tensor) -> torch.Tensor:
        return objective(having(these, {VALUE: value_T})).loss_T.sum()

    found = gradients(loss(these[VALUE]), these)[VALUE]
    torch.testing.assert_close(found, numerical_gradient(loss, these[VALUE]), atol=1e-7, rtol=1e-6)
    assert not gradients(objective(these).loss_T.sum(), these)["logp_T"].any()


@pytest.mark.parametrize("clip", [0.2, None])
def test_a_token_without_a_target_has_no_loss_and_no_gradient(clip: float | None) -> None:
    target = [[1.0, float("nan")]]
    these = tokens([[-1.0, -1.0]], value=[[0.5, 9.0]], old_value=[[0.5, 0.0]], value_target=target)
    loss_T = ValueClip(clip=clip)(these).loss_T
    assert loss_T[0].item() == pytest.approx(0.125)
    assert gradients(loss_T[1:].sum(), these)[VALUE].tolist() == [0.0, 0.0]
