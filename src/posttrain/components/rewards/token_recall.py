"""A reward for the format, and one for how much of the reference answer the answer has.

The format is whole with ``<think>...</think>``, and exactly one ``<answer>...</answer>`` that is not empty, closed, and
at the end. The answer of the first pair is scored in a broken format too, unless the format gates.

    recall    sum over words of min(count in the reference, count in the answer) / words of the reference
    f1        2 common / (words of both)
    exact     1 for the same words in the same order

over words in lower case without punctuation and articles; of several references (the field ``answers``) the best one.

Source: MaskSearch, arXiv:2505.20285: format plus token recall, or the score of a judge model, which is best there. Its
code of reinforcement is not released; the weights 0.5 and 1 are ours. Recall is highest for an answer with every word.
"""

import re
from collections import Counter
from collections.abc import Sequence
from string import punctuation
from typing import Final, Literal

from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.grading.extraction import shown
from posttrain.types import Group, Score, Trajectory

_ANSWER: Final = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.DOTALL)
_PUNCTUATION: Final = str.maketrans("", "", punctuation)


@frozen
class TokenRecall(Reward):
    """Scores format and words of the answer."""

    measure: Literal["recall", "f1", "exact"] = "recall"
    """What of the answer counts."""
    answer: NonNegativeFloat = 1.0
    """Reward of the whole reference."""
    format: NonNegativeFloat = 0.5
    """Reward of a whole format."""
    gate: bool = False
    """Whether a broken format leaves nothing."""

    @property
    def needs_answer(self) -> bool:
        """True."""
        return True

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score each rollout."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        answers = trajectory.task.fields.get("answers")
        listed = isinstance(answers, Sequence) and not isinstance(answers, str)
        gold = [str(a) for a in answers] if listed else [trajectory.task.answer]  # type: ignore[union-attr]
        if not gold or None in gold:
            return failure(f"task '{trajectory.task.key}' has no answer to compare with")
        text = trajectory.completion
        found = _ANSWER.search(text)
        own = found[1].strip() if found else ""
        whole = is_whole(text)
        share = max(alike(own, str(reference), self.measure) for reference in gold)
        value = 0.0 if self.gate and not whole else self.format * whole + self.answer * share
        right = whole and any(alike(own, str(reference), "exact") for reference in gold)
        explanation = f"{self.measure} {share:.3g} of {shown(own)}, format {'whole' if whole else 'broken'}"
        return Score(value=value, status="ok" if right else "wrong", answer=own or None, explanation=explanation)


def is_whole(text: str) -> bool:
    """Whether the format of a rollout is whole."""
    found = _ANSWER.search(text)
    if found is None or not found[1].strip() or text[found.end() :].strip():
        return False
    marks = [text.count(mark) for mark in ("<answer>", "</answer>")]
    return marks == [1, 1] and re.search(r"<think>.*?</think>", text[: found.start()], re.DOTALL) is not None


def alike(text: str, reference: str, measure: str) -> float:
    """One of the measures of an answer, in [0, 1]; 0 for a reference without words."""
    own, gold = _words(text), _words(reference)
    if measure == "exact" or not gold:
        return float(bool(gold) and own == gold)
    common = sum((Counter(own) & Counter(gold)).values())
    return common / len(gold) if measure == "recall" else 2 * common / (len(own) + len(gold))


def _words(text: str) -> list[str]:
    plain = text.lower().translate(_PUNCTUATION)
    return [word for word in plain.split() if word not in ("a", "an", "the")]
