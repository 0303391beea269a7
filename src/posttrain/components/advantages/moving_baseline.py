"""Reward minus an exponential average of earlier rewards, over all tasks.

Source: REINFORCE with a reinforcement baseline, Williams 1992, doi:10.1007/BF00992696; for plans of tools the loss of
OpenAGI, arXiv:2304.04370, as its text gives it:

    A = r - b        then b <- decay b + (1 - decay) r

The baseline of a step has the rewards of earlier steps only; in the first step it is the mean of that step.
"""

from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import per_token
from posttrain.types import Batch, Credit


@frozen
class MovingBaseline(Advantage):
    """Reward minus a moving average, the same for every token of a trajectory."""

    decay: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    """Of the average, for each step."""

    def start(self) -> State:
        """No reward so far."""
        return {"baseline": None}

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Credit by the baseline before this step."""
        reward_N = batch.return_N
        mean = float(reward_N.mean()) if len(reward_N) else 0.0
        before = mean if state["baseline"] is None else state["baseline"]
        after = self.decay * before + (1.0 - self.decay) * mean if len(reward_N) else state["baseline"]
        return {"baseline": after}, Credit(advantages=per_token(reward_N - before, batch), metrics={"baseline": before})
