"""Whether the completion has the required format: tags, once each and in order, and an end.

The format of DeepSeek-R1 (arXiv:2501.12948, section 2.2.2): ``<think>...</think><answer>...</answer>``. Only the format
is scored; the content of the parts is for another reward.
"""

from collections.abc import Sequence

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.grading.tags import TagName, find_marks, marks_of, opened_by_prompt
from posttrain.types import Group, Score, Trajectory


@frozen
class Format(Reward):
    """Rewards the required format."""

    tags: tuple[TagName, ...] = ("think", "answer")
    """Names of the parts: each opened and closed once, in this order, not nested, not empty. Where the prompt ends with
    the first opening tag, as in some chat templates, the completion continues from there."""
    alone: bool = True
    """Whether only white space is allowed outside the parts."""
    closed: bool = True
    """Whether the last part must be closed; false where its closing tag is a stop string, which is cut off."""
    finished: bool = True
    """Whether the completion must end before the token limit."""
    max_characters: PositiveInt | None = None
    """Longest completion that is rewarded, in characters; None for no limit."""
    right: float = 1.0
    """Reward of the required format."""
    wrong: float = 0.0
    """Reward of any other format."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Check the format of each completion."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        fault = self._fault(trajectory)
        if fault:
            return Score(value=self.wrong, status="wrong", explanation=fault)
        return Score(value=self.right, status="ok", explanation="has the required form")

    def _fault(self, trajectory: Trajectory) -> str:
        """What is wrong with the format; empty if nothing is."""
        text = trajectory.completion
        if self.finished and trajectory.stop_reason == "length":
            return "was cut at the token limit"
        if self.max_characters is not None and len(text) > self.max_characters:
            return f"has {len(text)} characters, {self.max_characters} are allowed"
        return self._tag_fault(opened_by_prompt(trajectory, self.tags) + text) if self.tags else ""

    def _tag_fault(self, text: str) -> str:
        wanted, marks = marks_of(self.tags), find_marks(text, self.tags)
        found = [mark[0] for mark in marks]
        if found != wanted and (self.closed or found != wanted[:-1]):
            return f"needs {' '.join(wanted)}, has {' '.join(found[:20]) or 'no tags'}{' ...' if found[20:] else ''}"
        starts = [0, *(mark.end() for mark in marks)]
        ends = [*(mark.start() for mark in marks), len(text)]
        between = [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]
        empty = [tag for tag, content in zip(self.tags, between[1::2], strict=True) if not content]
        if empty:
            return f"<{empty[0]}> is empty"
        return "has text outside the tags" if self.alone and any(between[::2]) else ""
