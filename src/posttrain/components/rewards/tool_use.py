r"""Answers by way of tools: a scale for questions, another for mathematics, and a bonus for the use of both tools.

The format is whole if there are as many ``<think>`` as ``</think>`` and at least one, exactly one answer in
``<answer>...</answer>`` with ``\boxed{...}`` in it, and after every closed call ``<search>`` or ``<python>`` a
``<result>...</result>``; an open call breaks it.

    questions    broken format -1; no word in common 0; else f, the best token F1, and +0.1 if both tools are used
    maths        broken format, or cut at the token limit, 0; right 1; wrong 0.1; no bonus

F1 is over words in lower case without punctuation and articles; ``yes``, ``no`` and ``noanswer`` must match as wholes.

Source: Tool-Star, arXiv:2505.16410, and its released code.

Differs: the release finds that tools are used by their closing tags anywhere in the text, typed without a call or in a
result. That is ``bonus_for=text``; the default counts calls that were executed (the measures ``search`` and ``python``
of the environment). A checker that fails there costs -1, more than a broken format; here it is an error.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from string import punctuation
from typing import Final, Literal

from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.environments import Episode
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.grading.extraction import shown
from posttrain.types import Group, Score, Trajectory

TOOLS: Final = ("search", "python")
WHOLE: Final = ("yes", "no", "noanswer")
NEAR: Final = 0.1
"""A wrong but well-formed answer in mathematics."""
_BOX: Final = re.compile(r"<answer>(?:(?!</?answer>).)*?\\boxed\{([^{}]*)\}(?:(?!</?answer>).)*</answer>", re.DOTALL)


@frozen
class ToolUse(Reward):
    """Scores the answer in a box, and the use of tools."""

    scale: Literal["questions", "maths"] = "questions"
    """Which of the two scales; ``routed`` chooses one by the task."""
    bonus: NonNegativeFloat = 0.1
    """Added to a question's F1 above 0 if both tools are used."""
    bonus_for: Literal["executed", "text"] = "executed"
    """What counts as use: executed calls, or the texts ``</search>`` and ``</python>``."""
    correct: Reward | None = None
    """Scores an answer in mathematics; status ``ok`` is right. None compares the box with the answer, as texts."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The reward of correctness, if there is one."""
        return {"correct": self.correct} if self.correct is not None else {}

    @property
    def needs_answer(self) -> bool:
        """True."""
        return True

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score each rollout."""
        scores: Sequence[Score | None] = [None] * len(group)
        if self.correct is not None and self.scale == "maths":
            own = replace(context, state=context.state.setdefault("correct", {}))
            scores = await self.correct.score(group, own)
        return [self._score(trajectory, score) for trajectory, score in zip(group, scores, strict=True)]

    def _score(self, trajectory: Trajectory, correct: Score | None) -> Score:
        answers = trajectory.task.fields.get("answers")
        listed = isinstance(answers, Sequence) and not isinstance(answers, str)
        gold = [str(a) for a in answers] if listed else [trajectory.task.answer]  # type: ignore[union-attr]
        if not gold or None in gold:
            return failure(f"task '{trajectory.task.key}' has no answer to compare with")
        text = trajectory.completion
        fault, box = format_fault(text), _BOX.search(text)
        own = box[1].strip() if box else None
        if self.scale == "maths":
            return self._maths(trajectory, fault, own, [str(a) for a in gold], correct)
        if fault:
            return Score(value=-1.0, status="wrong", answer=own, explanation=f"broken format: {fault}")
        f1 = max(overlap(own or "", str(answer)) for answer in gold)
        used = bool(f1) and self._uses_both(trajectory)
        explanation = f"F1 {f1:.3g} of {shown(own or '')}{', both tools' if used else ''}"
        value = f1 + self.bonus * used
        return Score(value=value, status="ok" if f1 == 1.0 else "wrong", answer=own, explanation=explanation)

    def _maths(
        self, trajectory: Trajectory, fault: str, own: str | None, gold: Sequence[str], correct: Score | None
    ) -> Score:
        fault = "cut at the token limit" if trajectory.stop_reason == "length" else fault
        if fault:
            return Score(value=0.0, status="wrong", answer=own, explanation=f"broken format: {fault}")
        if correct is not None and correct.status == "error":
            return correct
        right = correct.status == "ok" if correct is not None else own in [answer.strip() for answer in gold]
        what = "right" if right else "wrong"
        status: Literal["ok", "wrong"] = "ok" if right else "wrong"
        return Score(value=1.0 if right else NEAR, status=status, answer=own, explanation=f"{what}: {shown(own or '')}")

    def _uses_both(self, trajectory: Trajectory) -> bool:
        if self.bonus_for == "text":
            return all(f"</{tool}>" in trajectory.completion for tool in TOOLS)
        episode = trajectory.fact(Episode)
        measures = (episode.measures if episode is not None else None) or {}
        return all(measures.get(tool, 0.0) > 0 for tool in TOOLS)


def format_fault(text: str) -> str:
    """What is wrong with the format of a rollout; empty if it is whole."""
    thoughts = text.count("<think>"), text.count("</think>")
    if thoughts[0] != thoughts[1] or not thoughts[0]:
        return f"{thoughts[0]} <think> and {thoughts[1]} </think>"
    for tool in TOOLS:
        for rest in text.split(f"<{tool}>")[1:]:
            _, closed, after = rest.partition(f"</{tool}>")
            if not closed:
                return f"<{tool}> is not closed"
            if not re.match(r"\s*<result>.*?</result>", after, re.DOTALL):
                return f"</{tool}> is not followed by a result"
    if text.count("<answer>") != 1 or text.count("</answer>") != 1:
        return f"{text.count('<answer>')} answers"
    return "" if _BOX.search(text) else "no box in the answer"


def overlap(text: str, answer: str) -> float:
    """Token F1 of two texts, in [0, 1]."""
    own, gold = _words(text), _words(answer)
    if own != gold and (" ".join(own) in WHOLE or " ".join(gold) in WHOLE):
        return 0.0
    common = sum((Counter(own) & Counter(gold)).values())
    return 2 * common / (len(own) + len(gold)) if common else 0.0


def _words(text: str) -> list[str]:
    plain = "".join(character for character in text.lower() if character not in punctuation)
    return [word for word in plain.split() if word not in ("a", "an", "the")]
