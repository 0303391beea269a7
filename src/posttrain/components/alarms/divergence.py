"""The policy has moved far away from a reference.

Beyond a nat a token the policy writes text that its reference would hardly ever write: rewards of models trained on the
reference's text mean little there (Gao, Schulman and Hilton 2022, arXiv:2210.10760), and a KL penalty in the reward
outweighs the task. Only roles whose log-probabilities the recipe asks for can be compared with.
"""

from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State
from posttrain.components.alarms._courses import persistent


@frozen
class Divergence(Alarm):
    """KL divergence from a reference role."""

    action: Action = "note"
    """What the run does when it is raised."""
    bound: Annotated[float, Field(gt=0.0)] = 1.0
    """Nats a token (k3), for the role that is farthest."""
    patience: PositiveInt = 3
    """Steps in a row that it takes."""

    def start(self) -> State:
        """Nothing seen."""
        return {"count": 0}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare with the bound."""
        found = {name.removeprefix("kl/"): v for name, v in readings.metrics.items() if name.startswith("kl/")}
        if not found:
            return state, None
        role = max(found, key=lambda name: found[name])
        count, fired = persistent(state["count"], found[role] >= self.bound, self.patience)
        said = (
            f"the policy is {found[role]:.2g} nats a token away from the role '{role}'. A larger penalty or a smaller "
            "learning rate keeps it nearer"
        )
        return {"count": count}, said if fired else None
