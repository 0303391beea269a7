"""The policy has diverged from a reference.

Beyond a nat per token the policy writes text that is very unlikely under its reference. Rewards of models trained on
the reference's text mean little there (Gao, Schulman and Hilton 2022, arXiv:2210.10760), and a KL penalty in the reward
outweighs the task. Only roles whose log-probabilities the recipe computes can be compared with.
"""

from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State
from posttrain.components.alarms._curves import persistent


@frozen
class Divergence(Alarm):
    """KL divergence from a reference role."""

    action: Action = "note"
    """What the run does when it is raised."""
    bound: Annotated[float, Field(gt=0.0)] = 1.0
    """Nats per token (k3), of the role with the largest divergence."""
    patience: PositiveInt = 3
    """Consecutive steps beyond the bound that raise it."""

    def start(self) -> State:
        """State before the first step."""
        return {"count": 0}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare with the bound."""
        found = {name.removeprefix("kl/"): v for name, v in readings.metrics.items() if name.startswith("kl/")}
        if not found:
            return state, None
        role = max(found, key=lambda name: found[name])
        count, fired = persistent(state["count"], found[role] >= self.bound, self.patience)
        message = (
            f"the policy is {found[role]:.2g} nats per token away from the role '{role}'. A larger penalty or a "
            "smaller learning rate keeps it closer"
        )
        return {"count": count}, message if fired else None
