"""Completions grow or shrink much without a higher reward.

Longer completions with a higher reward are expected where reasoning is learned. Longer ones without are filler, and
cost time and memory (the length bias that Liu et al. 2025, arXiv:2503.20783, section 3, trace to the loss). Much
shorter ones without a higher reward leave the reasoning out. So mean length and mean reward are both compared with
their values a window of steps ago.
"""

from pydantic import PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State
from posttrain.components.alarms._curves import Curve


@frozen
class Length(Alarm):
    """An explosion or a collapse of the completion length."""

    action: Action = "note"
    """What the run does when it is raised."""
    growth: PositiveFloat = 2.0
    """Multiple of the length a window ago above which completions are too long."""
    shrinkage: PositiveFloat = 0.5
    """Multiple of the length a window ago below which completions are too short."""
    window: PositiveInt = 30
    """Number of steps between the values that are compared."""
    average: PositiveInt = 5
    """Number of steps of the moving averages."""

    def start(self) -> State:
        """State before the first step."""
        return {"length": {}, "reward": {}, "past": []}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare with the values a window ago."""
        length, reward = readings.metrics.get("completion_tokens"), readings.metrics.get("reward")
        if length is None or reward is None:
            return state, None
        lengths, rewards = Curve(state["length"], self.average), Curve(state["reward"], self.average)
        lengths.add(length, 0)
        rewards.add(reward, 0)
        past = [*state["past"], [lengths.average, rewards.average]][-self.window - 1 :]
        new = {"length": lengths.state(), "reward": rewards.state(), "past": past}
        (old_length, old_reward), now = past[0], lengths.average
        rewarded = rewards.average > old_reward + rewards.noise
        if len(past) <= self.window or rewarded or not old_length:
            return new, None
        if self.shrinkage * old_length < now < self.growth * old_length:
            return new, None
        what = "longer" if now > old_length else "shorter"
        return new, (
            f"completions are {what} ({now:.0f} tokens, {old_length:.0f} {self.window} steps ago) without a higher "
            f"reward ({rewards.average:.3g}, {old_reward:.3g} then). Read some: is it filler, repetition or guessing?"
        )
