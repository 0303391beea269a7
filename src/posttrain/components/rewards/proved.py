r"""Whether a completion gives the right verdict on a statement, ``proved`` or ``disproved``, in a box: 1, else 0.

Source: DeepTheorem, the reward of its release (scripts/reward_func_proof.py). The proof itself is not checked. In this
order:

1. 0 for a text with "reasoning process" of less than 90 characters: an echo of the template.
2. 0 for "User:", "Assistant:" or the instruction of the prompt: a dialogue with itself.
3. 0 where white space is less than 0.05 of the characters, or these are more than 300 for each different one: nonsense
   and repetition; the second is also a soft limit of the length. An empty text has 0.
4. Only the text after the last ``</think>`` counts; in it the last ``<answer>...</answer>`` with a ``\boxed{}``, and in
   that its last box.
5. Without white space, ``. , $ \ ! ? # % ^ & _ + - = { }`` and a leading "text", in lower case, it must be the verdict.

``parser: evaluation`` is that of the release's evaluation: a substring anywhere, ``\boxed{proved}`` first, so that a
text with both verdicts counts as proved.

The verdict of the task is its field ``truth`` (true or false), or else its answer.
"""

import re
from collections.abc import Sequence
from typing import Final, Literal

from posttrain.component import frozen
from posttrain.components.rewards import Gold, Reward, RewardContext, failure
from posttrain.errors import TaskFault
from posttrain.grading.extraction import extract
from posttrain.types import Group, Score, Task, Trajectory

VERDICTS: Final = ("proved", "disproved")
SHORTEST_INSTRUCTION: Final = 12
_TAG: Final = re.compile(r"</?answer>")
_DROPPED: Final = re.compile(r"[\s.,$\\!?#%^&_+\-={}]+")


@frozen
class Proved(Reward):
    """Scores 1 for the verdict of the task."""

    gates: bool = True
    """Whether texts that the first three rules are about have 0."""
    instruction: str | None = None
    """The sentence of the prompt that a completion must not repeat; None is the whole prompt."""
    parser: Literal["training", "evaluation"] = "training"
    """How the verdict is read; evaluation has no gates."""

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task without a verdict."""
        for task in tasks:
            if verdict_of(task) is None:
                raise TaskFault(
                    task.key,
                    f"task '{task.key}' has no verdict; give its row a column 'truth' (true or false), or the answer "
                    "'proved' or 'disproved'",
                )

    def gold(self, task: Task) -> Gold | None:
        """The verdict after a thought."""
        verdict = verdict_of(task)
        form = r"it is so.</think> <answer> \boxed{{answer}} </answer>"
        return Gold(answer=verdict, form=form) if verdict else None

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare the verdict of each completion."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        wanted, text = verdict_of(trajectory.task), trajectory.completion
        if wanted is None:
            return failure(f"task '{trajectory.task.key}' has neither a 'truth' nor a verdict as its answer")
        if self.parser == "evaluation":
            found = next((verdict for verdict in VERDICTS if rf"\boxed{{{verdict}}}" in text), None)
        else:
            fault = self._fault(text, trajectory.task) if self.gates else ""
            if fault:
                return Score(value=0.0, status="wrong", explanation=fault)
            found = stated_verdict(text)
        right = found == wanted
        return Score(
            value=float(right),
            status="ok" if right else "wrong",
            answer=found,
            explanation=f"{found or 'no verdict'}, the statement is {wanted}",
        )

    def _fault(self, text: str, task: Task) -> str:
        """What a gate finds; empty if nothing."""
        if "reasoning process" in text and len(text) < 90:
            return "an echo of the template"
        asked = self.instruction
        if asked is None:
            asked = task.prompt if isinstance(task.prompt, str) else task.prompt[-1]["content"]
        repeats = len(asked.strip()) >= SHORTEST_INSTRUCTION and asked.strip() in text
        if "User:" in text or "Assistant:" in text or repeats:
            return "a dialogue with itself"
        if not text or (text.count(" ") + text.count("\n")) / len(text) < 0.05:
            return "too little white space"
        return "too few different characters" if len(text) / len(set(text)) > 300 else ""


def verdict_of(task: Task) -> str | None:
    """The right verdict on the task's statement; None if the task has none."""
    truth = task.fields.get("truth")
    if isinstance(truth, bool):
        return "proved" if truth else "disproved"
    answer = (task.answer or "").strip().lower()
    return answer if answer in VERDICTS else None


def stated_verdict(text: str) -> str | None:
    """The verdict in the last box of the last answer that has one, after the thoughts; None for anything else."""
    rest = text.rpartition("</think>")[2]
    opened: int | None = None
    found: str | None = None
    for tag in _TAG.finditer(rest):
        if tag[0] == "<answer>":
            opened = tag.end() if opened is None else opened
        elif opened is not None:
            box = extract(rest[opened : tag.start()], ("boxed",))
            found = box.text if box is not None else found
            opened = None
    if found is None:
        return None
    verdict = _DROPPED.sub("", found[:200]).lower().removeprefix("text")
    return verdict if verdict in VERDICTS else None
