"""Completions grow or shrink without earning more.

Longer answers that are rewarded better are what reasoning looks like; longer ones that are not are filler, and cost
time and memory (the length bias that Liu et al. 2025, arXiv:2503.20783, section 3, trace to the loss). Much shorter
ones that earn no more have given up on working things out. So the mean length is compared with that of a window of
steps ago, and the reward with what it was then.
"""

from pydantic import PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State
from posttrain.components.alarms._courses import Course


@frozen
class Length(Alarm):
    """An explosion or a collapse of the completion length."""

    action: Action = "note"
    """What the run does when it is raised."""
    growth: PositiveFloat = 2.0
    """Times the length of a window ago that is too long."""
    shrinkage: PositiveFloat = 0.5
    """Times the length of a window ago that is too short."""
    window: PositiveInt = 30
    """Steps to look back."""
    average: PositiveInt = 5
    """Steps that the averages reach back over."""

    def start(self) -> State:
        """Nothing seen."""
        return {"length": {}, "reward": {}, "past": []}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare with a window ago."""
        length, reward = readings.metrics.get("completion_tokens"), readings.metrics.get("reward")
        if length is None or reward is None:
            return state, None
        lengths, rewards = Course(state["length"], self.average), Course(state["reward"], self.average)
        lengths.add(length, 0)
        rewards.add(reward, 0)
        past = [*state["past"], [lengths.average, rewards.average]][-self.window - 1 :]
        new = {"length": lengths.state(), "reward": rewards.state(), "past": past}
        (old_length, old_reward), now = past[0], lengths.average
        earned = rewards.average > old_reward + rewards.noise
        if len(past) <= self.window or earned or not old_length:
            return new, None
        if self.shrinkage * old_length < now < self.growth * old_length:
            return new, None
        what = "longer" if now > old_length else "shorter"
        return new, (
            f"completions are {what} ({now:.0f} tokens, {old_length:.0f} {self.window} steps ago) and earn no more "
            f"(reward {rewards.average:.3g}, {old_reward:.3g} then). Read some: filler, repetition, or giving up"
        )
