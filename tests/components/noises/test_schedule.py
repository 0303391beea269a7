"""A learned noise follows the progress of the stage."""

import math

import pytest
import torch

from posttrain.components.noises.learned import Learned
from posttrain.policies.flow import FlowPolicy
from tests.flows import made_flow


def highest(flow: FlowPolicy) -> float:
    """Std of a step where the network's output is 1: the upper bound."""
    with torch.no_grad():
        for parameter in flow.noise.parameters():
            parameter.zero_()
        last = list(flow.noise.parameters())[-1]
        last.fill_(20.0)
        return float(flow.transition(torch.zeros(1, 2), torch.zeros(1).long(), torch.zeros(1, 0), 1.0)[1][0, 0])


def test_the_upper_bound_falls_with_the_stage() -> None:
    """From 0.3, held to 0.5, to 0.2: half of the way from 0.1 to 0.3. At 0.75 the cosine is half way."""
    flow = made_flow(noise=Learned(lowest=0.1, highest=0.3, final=0.5, held=0.5))
    found = []
    for progress in (0.0, 0.5, 0.75, 1.0):
        flow.at(progress)
        found.append(highest(flow))
    assert found == pytest.approx([0.3, 0.3, 0.25, 0.2], abs=1e-6)


def test_by_default_the_bound_stays() -> None:
    assert Learned().at(1.0) == Learned() and math.isclose(Learned(final=0.0).at(1.0).highest, 0.1)
