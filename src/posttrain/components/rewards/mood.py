"""The user's mood at the end of a dialogue as the reward, and nothing for a dialogue that breaks the format.

Source: RLVER, arXiv:2507.03112, sections 2.1 to 2.3: r = e_T / 100 with e_T the terminal emotion, 0 at least;
intermediate emotions are only recorded. With the template that thinks, every reply is ``<think>...</think>`` and then
what is sent; an output that violates it has the reward 0 for the whole dialogue. The template that does not think has
no rule of format.
"""

from collections.abc import Sequence
from typing import Literal

from posttrain.component import frozen
from posttrain.components.environments import Episode
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.types import Group, Score, Trajectory

TOP = 100.0


@frozen
class Mood(Reward):
    """Reads the measure ``mood`` of the environment."""

    template: Literal["think", "none"] = "think"
    """``think``: every reply has a thought in tags and something after it; ``none``: any text is a reply."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score each dialogue."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        episode = trajectory.fact(Episode)
        if episode is None or episode.measures is None or "mood" not in episode.measures:
            return failure(
                f"the rollout of task '{trajectory.task.key}' has no measure 'mood'; take an environment that has one, "
                "such as 'moods'"
            )
        mood = episode.measures["mood"]
        replies = [segment.text for segment in trajectory.segments if segment.trained]
        if self.template == "think" and not all(map(is_reply, replies)):
            return Score(value=0.0, status="wrong", explanation="a reply is not <think>...</think> and a text")
        solved = episode.verdict is not None and episode.verdict.solved
        return Score(
            value=max(0.0, mood) / TOP, status="ok" if solved else "wrong", explanation=f"mood {mood:g} of 100"
        )


def is_reply(text: str) -> bool:
    """Whether a text is ``<think>...</think>`` once, at its start, and something after it."""
    before, opened, rest = text.partition("<think>")
    _, closed, reply = rest.partition("</think>")
    once = "<think>" not in rest and "</think>" not in reply
    return bool(opened and closed and reply.strip() and once and not before.strip())
