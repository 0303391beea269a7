r"""Answers that were searched for: words in common with the reference, times a gate on the format of every turn.

    value    F1 of the sets of words of the last <answer>...</answer> and of the answer (the best of the field
             ``answers``); with other golds in the field ``augmented``, 0.7 F1 + 0.3 max(F1, the best F1 of those)
    gate     0 unless every turn of the model has as many opening as closing tags of each kind, at most one tag of a
             tool or an answer, at most one </think>, and nowhere the words Assistant or assistant
    refusal  where the task's field ``demands_valid`` is true, an answer that contains question, invalid, appropriate or
             valid has -0.5, whatever else holds
    none     without an answer 0

Words are in lower case, punctuation is a space, True and False are yes and no.

Source: ASearcher, arXiv:2508.07976, and its released code (AReaL, ASearcher/utils/rewards.py, train/asearcher.py).

Differs: an answer in ``\boxed{...}`` is what is in the box, as this package's tasks write it.
"""

import re
from collections.abc import Sequence
from string import punctuation
from typing import Annotated, Final, Literal

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.grading.extraction import shown
from posttrain.types import Group, Score, Trajectory

REFUSAL: Final = -0.5
REFUSALS: Final = ("question", "invalid", "appropriate", "valid")
_ANSWER: Final = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.DOTALL)
_BOX: Final = re.compile(r"\\boxed\{([^{}]*)\}")
_SPACES: Final = str.maketrans(dict.fromkeys(punctuation, " "))


@frozen
class SearchAnswer(Reward):
    """Scores the last answer by its words, if all turns are well formed."""

    measure: Literal["f1", "exact"] = "f1"
    """How an answer is compared: F1 of sets of words, or 1 for the same words in the same order."""
    tools: tuple[str, ...] = ("search", "access")
    """Tags of the tools, in the prompt's syntax: ``<search>...</search>``."""
    augmented: Annotated[float, Field(ge=0.0, le=1.0)] = 0.3
    """Weight of golds in the field ``augmented`` (0.3 in the release)."""

    @property
    def needs_answer(self) -> bool:
        """True."""
        return True

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score each rollout."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        task = trajectory.task
        gold = texts(task.fields.get("answers")) or ([task.answer] if task.answer is not None else [])
        if not gold:
            return failure(f"task '{task.key}' has no answer to compare with")
        found = _ANSWER.findall(trajectory.completion)
        if not found:
            return Score(value=0.0, status="wrong", explanation="no answer")
        box = _BOX.search(found[-1])
        own = (box[1] if box else found[-1]).strip()
        if task.fields.get("demands_valid") and any(word in own.lower() for word in REFUSALS):
            return Score(value=REFUSAL, status="wrong", answer=own, explanation=f"a refusal: {shown(own)}")
        if fault := format_fault([s.text for s in trajectory.segments if s.trained], self.tools):
            return Score(value=0.0, status="wrong", answer=own, explanation=f"broken format: {fault}")
        plain = max(self._compared(own, text) for text in gold)
        value = plain
        if others := texts(task.fields.get("augmented")):
            best = max(plain, *(self._compared(own, text) for text in others))
            value = (1.0 - self.augmented) * plain + self.augmented * best
        right = plain == 1.0
        return Score(
            value=value, status="ok" if right else "wrong", answer=own, explanation=f"{self.measure} {value:.3g}"
        )

    def _compared(self, text: str, gold: str) -> float:
        if self.measure == "exact":
            return float(words(text) == words(gold))
        return overlap(text, gold)


def texts(value: object) -> list[str]:
    """A list of texts in a column; empty for anything else."""
    return [str(item) for item in value] if isinstance(value, Sequence) and not isinstance(value, str) else []


def words(text: str) -> list[str]:
    """The words of a text as they are compared."""
    plain = text.lower().translate(_SPACES).split()
    return [{"true": "yes", "false": "no"}.get(word, word) for word in plain]


def overlap(text: str, gold: str) -> float:
    """F1 of two sets of words, in [0, 1]."""
    own, wanted = set(words(text)), set(words(gold))
    common = len(own & wanted)
    return 2.0 * common / (len(own) + len(wanted)) if common else 0.0


def format_fault(turns: Sequence[str], tools: Sequence[str]) -> str:
    """What is wrong with the format of a model's turns; empty if every one is whole."""
    for number, text in enumerate(turns, start=1):
        for tag in ("think", *tools, "answer"):
            opened, closed = text.count(f"<{tag}>"), text.count(f"</{tag}>")
            if opened != closed:
                return f"turn {number} has {opened} <{tag}> and {closed} </{tag}>"
        actions = sum(text.count(f"<{tag}>") for tag in (*tools, "answer"))
        if actions > 1:
            return f"turn {number} has {actions} calls and answers"
        if text.count("</think>") > 1:
            return f"turn {number} has {text.count('</think>')} </think>"
        if "assistant" in text.lower():
            return f"turn {number} speaks of the assistant"
    return ""
