r"""Whether a finished completion commits to one whole number, and it is the reference answer.

A verifier for held-out answers beside a reward such as `match`. It is stricter, so that what a model learns to please
the reward is seen: answers that contradict one another and completions that never end are wrong.

Answers are the numbers after ``####``, after "answer is" or "answer:", and in ``\boxed``. All of them must be equal.
Without any, the answer is the last number of the last line.
"""

import re
from collections.abc import Sequence

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.grading.extraction import shown
from posttrain.types import Group, Score, Trajectory

_NUMBER = r"[-−]?\s?[$€£]?\s?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?!\w|\.\d)"
_WHOLE = re.compile(_NUMBER, re.ASCII)
_MARKED = re.compile(
    rf"(?:\#{{4}}|\banswer(?:\s+is|\s*:)|\\boxed\s?\{{)[\s*_:$\"'(=]{{0,6}}({_NUMBER})", re.IGNORECASE | re.ASCII
)
_ZEROS = re.compile(r"\.0+\Z")


@frozen
class OneAnswer(Reward):
    """Scores 1 for the reference answer, 0 for anything else."""

    @property
    def needs_answer(self) -> bool:
        """It compares with the reference answer."""
        return True

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare each answer with the reference answer."""
        return [_score(trajectory) for trajectory in group]


def _score(trajectory: Trajectory) -> Score:
    task, text = trajectory.task, trajectory.completion
    gold = _whole((task.answer or "").strip())
    if gold is None:
        return failure(f"the answer of task '{task.key}', {shown(task.answer or '')}, is not a whole number")
    if trajectory.stop_reason == "length":
        return Score(value=0.0, status="wrong", explanation="was cut at the token limit")
    marked = _MARKED.findall(text)
    last_line = text.rstrip().rpartition("\n")[2]
    found = marked or _WHOLE.findall(last_line)[-1:]
    if not found:
        return Score(value=0.0, status="wrong", explanation="no marked number, and none in the last line")
    values = {_whole(number) for number in found}
    if len(values) > 1:
        named = ", ".join(dict.fromkeys(number.strip() for number in found[:5]))
        return Score(value=0.0, status="wrong", explanation=f"has several answers: {shown(named)}")
    [value], answer = values, found[-1].strip()
    if value == gold:
        return Score(value=1.0, status="ok", answer=answer, explanation=f"{shown(answer)} is {gold}")
    return Score(value=0.0, status="wrong", answer=answer, explanation=f"{shown(answer)} is not {gold}")


def _whole(text: str) -> int | None:
    """The whole number that a text is; None for any other text and for fractions."""
    if len(text) > 100 or not _WHOLE.fullmatch(text):
        return None
    digits = _ZEROS.sub("", re.sub(r"[\s,$€£]", "", text.replace("−", "-")))
    return int(digits) if "." not in digits else None
