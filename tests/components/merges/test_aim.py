"""AIM: by hand, and what it leaves alone."""

import torch

from posttrain.components.merges.aim import AIM
from posttrain.components.merges.task_arithmetic import TaskArithmetic

BASE = torch.zeros(2, 3, dtype=torch.float64)
OTHER = torch.full((2, 3), 10.0, dtype=torch.float64)
THEN = TaskArithmetic(alpha=1.0)


def test_inputs_with_large_activations_stay_near_the_base() -> None:
    inputs = {"w": torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)}
    merged = AIM(omega=0.4, then=THEN)("w", (BASE, OTHER), {"inputs": inputs, "then": {}})
    assert torch.allclose(merged, torch.tensor([[10.0, 7.0, 4.0]] * 2, dtype=torch.float64))
    assert torch.equal(AIM(omega=1.0, then=THEN)("w", (BASE, OTHER), {"inputs": inputs, "then": {}}), OTHER)


def test_other_parameters_are_as_merged() -> None:
    assert torch.equal(AIM(then=THEN)("norm", (BASE, OTHER), {"inputs": {}, "then": {}}), OTHER)
    silent = {"w": torch.zeros(3, dtype=torch.float64)}
    assert torch.equal(AIM(then=THEN)("w", (BASE, OTHER), {"inputs": silent, "then": {}}), OTHER)
