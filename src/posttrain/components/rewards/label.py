"""Whether the answer names the reference answer's class, in capitals or not, with spaces, underscores or without.

Source: Liu et al. 2025 (Visual-RFT), arXiv:2503.01785, and its release at 9486633, grpo_classification.py: right is an
answer that contains the label or is contained in it. There an empty answer is contained in every label, and is paid:
`empty=True` brings that back, as an example of a reward that is hacked.

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
    """Pays for the right class: 1, else 0."""

    match: Literal["exact", "containment"] = "exact"
    """``exact``: the same label; ``containment``: one of the two in the other."""
    empty: bool = False
    """With containment, whether an empty answer is in every label. For experiments: it teaches saying nothing."""
    extract: Annotated[tuple[Extractor, ...], Field(min_length=1)] = ("answer_tag",)
    """Where to look for the answer, in order; the first place that holds something decides. With more than the tag, a
    completion whose tag is empty is judged by what else it says."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare each answer with its task's label."""
        return [self._judge(trajectory) for trajectory in group]

    def _judge(self, trajectory: Trajectory) -> Score:
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
    """Small letters without spaces and underscores."""
    return "".join(text.lower().replace("_", " ").split())
