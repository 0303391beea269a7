"""How many words a completion has in common with the reference, whatever their order: F1 of both as bags of words.

It stands for a learned score of meaning that does not see the order of words, as in the smallest experiment of
MT-R1-Zero (arXiv:2504.10160), and costs nothing. Words are what white space separates, in lower case.
"""

from collections import Counter
from collections.abc import Sequence

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.types import Group, Score, Trajectory


@frozen
class WordOverlap(Reward):
    """Scores words in common, in [0, 1]."""

    correct_at: float = 1.0
    """Smallest value that counts as correct."""

    @property
    def needs_answer(self) -> bool:
        """The reference."""
        return True

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Count the words of each completion."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        if not (trajectory.task.answer or "").strip():
            return failure("the task has no answer")
        own, wanted = (Counter(text.lower().split()) for text in (trajectory.completion, trajectory.task.answer or ""))
        common = (own & wanted).total()
        value = 2 * common / (own.total() + wanted.total())
        status = "ok" if value >= self.correct_at else "wrong"
        counted = f"{common} words in common, of {own.total()} and {wanted.total()}"
        return Score(value=value, status="ok" if status == "ok" else "wrong", explanation=counted)
