"""Reasoning pattern reward: how many phrases of reasoning a completion has, whatever its answer.

Source: "The Climb Carves Wisdom Deeper Than the Summit", its release (`math_score.py`). The text after the tag that
opens the thoughts is put into lower case. The number of phrases that occur in it at least once, over 20 and at most 1,
less the share of its 20-word sequences that occur more than once, less 1 for each ``user: ``, with which the model asks
itself; not below 0.

Any text with enough of the phrases has the largest value, also a list of them: it is a reward to be added to another,
and to be studied.

Differs: the 40 phrases are of this package, of the same kind as those of the release.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Final

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.grading.tags import TagName
from posttrain.types import Group, Score

PHRASES: Final = (
    *("first, i need to", "second, i need to", "next, i need to", "finally, i need to", "let me think", "let's see"),
    *("let me check", "let me verify", "to double check", "wait,", "hold on", "on second thought", "i made a mistake"),
    *("that means", "this means", "it follows that", "which implies", "therefore,", "because of this", "as a result"),
    *("on the other hand", "alternatively,", "another way", "in other words", "for example,", "suppose that"),
    *("assume that", "if we", "then we", "we know that", "we are given", "recall that", "the question asks"),
    *("break it down", "step by step", "let me start", "now i can", "putting it together", "to summarize"),
    "so the answer",
)
"""40 phrases, in lower case."""
SELF_ASKED: Final = "user: "
"""What a completion has where the model asks itself."""


@frozen
class Phrases(Reward):
    """Rewards the presence of phrases, in [0, 1]."""

    phrases: Annotated[tuple[str, ...], Field(min_length=1, max_length=1000)] = PHRASES
    """What is looked for, in lower case; each counts once."""
    needed: PositiveInt = 20
    """Number of phrases that give the largest reward."""
    after: TagName | None = "think"
    """The tag after whose opening the text counts; a completion without it counts whole, and so does any with None."""
    window: Annotated[int, Field(ge=2, le=1000)] = 20
    """Words of a sequence whose repetition is subtracted."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Count in each completion."""
        return [self._score(trajectory.completion) for trajectory in group]

    def _score(self, completion: str) -> Score:
        text = self._counted(completion).lower()
        found = sum(phrase in text for phrase in self.phrases)
        repeated, asked = repeated_share(text.split(), self.window), text.count(SELF_ASKED)
        value = max(min(found / self.needed, 1.0) - repeated - asked, 0.0)
        explanation = (
            f"{found} of {len(self.phrases)} phrases, {repeated:.0%} of sequences repeated, {asked} questions to itself"
        )
        return Score(value=value, status="ok" if value >= 1.0 else "wrong", explanation=explanation)

    def _counted(self, completion: str) -> str:
        if self.after is None:
            return completion
        _, opened, rest = completion.partition(f"<{self.after}>")
        return rest if opened else completion


def repeated_share(words: Sequence[str], window: int) -> float:
    """Distinct sequences of words that occur more than once, over all sequences; 0 where there is none."""
    total = len(words) - window + 1
    if total < 1:
        return 0.0
    counts = Counter(tuple(words[start : start + window]) for start in range(total))
    return sum(count > 1 for count in counts.values()) / total
