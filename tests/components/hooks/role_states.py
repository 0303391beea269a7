"""Two small models with learners, as a stage would hold them."""

import torch
from torch import nn

from posttrain.components.hooks import RoleState
from posttrain.policies import Policy
from posttrain.training.learner import Learner
from posttrain.training.settings import Learning


class Numbers(Policy):
    """Two parameters, which is all of a policy that hooks use."""

    def __init__(self, first: float, second: float, version: int = 0) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.tensor([float(first)]))
        self.second = nn.Parameter(torch.tensor([float(second), float(second)]))
        self.version = version


def role_state(
    role: str, first: float, second: float, *, version: int = 0, learns: bool = True, mean: float = 0.0
) -> RoleState:
    """A role whose learner has made one update, with moments that tell whose they are."""
    model = Numbers(first, second)
    learner = Learner(model, Learning(), seed=0, num_steps=10) if learns else None
    if learner is not None:
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, first)
        held = [p.detach().clone() for p in model.parameters()]
        for optimizer in learner.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), held, strict=True):
                parameter.copy_(value)
        learner.updates = version
    model.version = version
    state = {"advantage": {"mean": mean}, "penalties": {"kl": {"coefficient": mean}}}
    return RoleState(
        role=role,
        model=model,
        learner=learner,
        state=state,
        initial={"advantage": {"mean": 0.0}, "penalties": {"kl": {"coefficient": 0.4}}},
    )


def weights(of: RoleState) -> list[float]:
    return [x for parameter in of.model.parameters() for x in parameter.detach().tolist()]


def first_moments(of: RoleState) -> list[float]:
    """Adam's first moments, by parameter: 0.1 of the gradient after one update."""
    assert of.learner is not None
    return [round(float(t.flatten()[0]), 6) for name, t in of.learner.state()[1].items() if name.endswith("exp_avg")]
