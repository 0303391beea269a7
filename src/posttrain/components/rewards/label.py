"""Whether the answer is the label of the reference answer, ignoring case, spaces and underscores.

Source: Liu et al. 2025 (Visual-RFT), arXiv:2503.01785, and its release at 9486633, grpo_classification.py: an answer is
correct if it contains the label or is contained in it. There an empty answer is contained in every label, and is
rewarded: `empty=True` reproduces that, as an example of reward hacking.

Differs: ``exact`` is the default.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.grading.extraction import Extractor, find_answer, shown
from posttrain.types import Group, Score, Trajectory


@frozen
class Label(Reward):
    """Rewards the correct label by 1, others by 0."""

    match: Literal["exact", "containment"] = "exact"
    """``exact``: the same label; ``containment``: one of the two is in the other."""
    empty: bool = False
    """Whether containment includes the empty answer. For experiments: it trains the policy to give empty answers."""
    extract: Annotated[tuple[Extractor, ...], Field(min_length=1)] = ("answer_tag",)
    """Where to find the answer; the first extractor that finds something decides. With further extractors, a completion
    with an empty tag is scored by the rest of its text."""

    @property
    def needs_answer(self) -> bool:
        """True."""
        return True

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare each answer with the label of its task."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        task = trajectory.task
        label = _plain(task.answer or "")
        if not label:
            return failure(f"task '{task.key}' has no label to compare with; give its row an 'answer' column")
        found = find_answer(trajectory, self.extract)
        answer = _plain(found.text) if found else ""
        right = answer == label
        if self.match == "containment":
            right = (answer in label or label in answer) if answer or self.empty else False
        explanation = f"{shown(found.text) if found else 'no answer'} {'is' if right else 'is not'} {shown(label)}"
        return Score(
            value=float(right),
            status="ok" if right else "wrong",
            answer=found.text if found else "",
            explanation=explanation,
        )


def _plain(text: str) -> str:
    """The text in lower case without spaces and underscores."""
    return "".join(text.lower().replace("_", " ").split())
