"""ToolRL: a reward for the layout of a completion, and one for how much of its tool calls is right.

Source: Qian et al. 2025, arXiv:2504.13958, and its release. R = R_format + R_correct.

R_format is 1 if the completion is exactly the blocks that the reference has (`posttrain.grading.tool_layout`), else 0.

R_correct, only where the reference has calls, from -3 to 3. The calls are those of the first block, one JSON object a
line; anything else there is -3, equal lists are 3. Otherwise, with J(A, B) = |A n B| / (|A| + |B| - |A n B|) of
multisets,

    s = J(names) + the sum over reference calls, in their order, of the largest J(parameter names) + number of equal
        values among the calls of the same name that are left; the call that gives it is used up
    R_correct = 6 s / (1 + the sum over reference calls of 1 + their number of parameters) - 3

The matching is greedy, not the best assignment. R_correct does not depend on R_format. Values are compared by type:
``true`` is not 1.

A call too many lowers J(names) only: by 6 * 0.5 / (2 + k) for a reference of one call with k parameters, from 1.5 at
k = 0 to 0.3 at k = 8. A second block of calls is not read, and loses R_format only.

Variants: `match` (``intermediate`` counts whole calls, ``coarse`` is all or nothing), `ordered` (lists of names instead
of multisets), `low` and `high` (-1 and 1: "equal"), `length` (up to 1 for the words of the thought over 512, over 384 +
256 step / 105 with `length_grows`), and `schedule` by the step of the stage. ``two_stage``: for 30 steps R_correct / 3,
then R_format / 2. ``smooth``: R_format from 2 - step / 150, at least 1, down to -2 + 2 step / 150, at most -1, so that
a wrong layout costs 1 at the end, not 0; R_correct up to 2 + step / 150, at most 3, and down to the opposite.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from posttrain.component import frozen
from posttrain.components.rewards import Gold, Reward, RewardContext, failure
from posttrain.errors import TaskFault
from posttrain.grading.extraction import shown
from posttrain.grading.schemas import tools_fault
from posttrain.grading.strict_json import BadJSON, same
from posttrain.grading.tool_layout import (
    CALL,
    THINK,
    Reference,
    ToolCall,
    has_layout,
    read_calls,
    read_reference,
    shown_reference,
)
from posttrain.types import Group, Score, Task, Trajectory

SMOOTH_STEPS = 150.0


@frozen
class ToolCalls(Reward):
    """Rewards layout and tool calls; correct is what has all of both."""

    match: Literal["fine", "intermediate", "coarse"] = "fine"
    """What counts of the calls: names, parameter names and values; whole calls; all calls or nothing."""
    ordered: bool = False
    """Whether names, of calls and of parameters, count only in the order of the reference ("refined")."""
    low: float = -3.0
    """Smallest R_correct."""
    high: float = 3.0
    """Largest R_correct."""
    length: bool = False
    """Whether the length of the thought is added."""
    length_grows: bool = False
    """Whether the length that gives 1 grows with the steps."""
    schedule: Literal["none", "two_stage", "smooth"] = "none"
    """How the ranges change with the steps; ``smooth`` replaces `low` and `high`."""

    @property
    def needs_answer(self) -> bool:
        """It compares with the reference."""
        return True

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a tool whose schema refers elsewhere, or to itself."""
        for task in tasks:
            if fault := tools_fault(task.fields.get("tools")):
                raise TaskFault(task.key, f"task '{task.key}': {fault}")

    def gold(self, task: Task) -> Gold | None:
        """The calls, one a line, in the layout of the reference; responses are not compared."""
        try:
            form, answer, calls = shown_reference(task.answer or "")
        except BadJSON:
            return None
        return Gold(answer=answer, form=form, compared=calls)

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score each completion."""
        return [self._score(trajectory, context.step) for trajectory in group]

    def _score(self, trajectory: Trajectory, step: int) -> Score:
        task, text = trajectory.task, trajectory.completion.strip()
        try:
            wanted = read_reference(task.answer or "")
        except BadJSON as error:
            return failure(f"the answer of task '{task.key}' {error}: {shown(task.answer or '')}")
        if not (task.answer or "").strip():
            return failure(f"task '{task.key}' has no answer; give its row an 'answer' column with calls or a response")
        formed = has_layout(text, wanted.layout)
        share, why = self._share(text, wanted)
        form_low, form_high, low, high = self._ranges(step)
        parts = {"format": form_high if formed else form_low, "correct": 0.0}
        if wanted.calls:
            parts["correct"] = low if share is None else (high - low) * share + low
        if self.length:
            parts["length"] = self._length(text, step)
        solved = formed and (not wanted.calls or share == 1.0)
        return Score(
            value=float(sum(parts.values())),
            status="ok" if solved else "wrong",
            answer=text,
            explanation=why if formed else f"not of the form {' '.join(wanted.layout)}; {why}",
            parts={name: Score(value=float(value), status="ok") for name, value in parts.items()},
        )

    def _share(self, text: str, wanted: Reference) -> tuple[float | None, str]:
        """How much of the calls is right, in [0, 1], None for unreadable ones; and an explanation."""
        if not wanted.calls:
            return 1.0, f"no call wanted{', but there is one' if f'<{CALL}>' in text else ''}"
        try:
            calls = read_calls(text)
        except BadJSON as error:
            return None, str(error)
        share = matched(calls, wanted.calls, self.match, self.ordered)
        return share, f"{share:.0%} of {len(wanted.calls)} calls"

    def _ranges(self, step: int) -> tuple[float, float, float, float]:
        """Smallest and largest R_format and R_correct."""
        if self.schedule == "two_stage":
            return (0.0, 1.0, self.low / 3, self.high / 3) if step < 30 else (0.0, 0.5, self.low, self.high)
        if self.schedule == "smooth":
            progress = step / SMOOTH_STEPS
            most = min(2.0 + progress, 3.0)
            return min(-2.0 + 2.0 * progress, -1.0), max(2.0 - progress, 1.0), -most, most
        return 0.0, 1.0, self.low, self.high

    def _length(self, text: str, step: int) -> float:
        thought = text.partition(f"<{THINK}>")[2].partition(f"</{THINK}>")[0]
        words = 384 + 256 * step / 105 if self.length_grows else 512
        return min(1.0, round(len(thought.split()) / words, 2))


def matched(calls: Sequence[ToolCall], wanted: Sequence[ToolCall], match: str, ordered: bool) -> float:
    """The sum s over its largest value, in [0, 1]."""
    if len(calls) == len(wanted) and all(map(_equal, calls, wanted)):
        return 1.0
    total = overlap([call.name for call in calls], [call.name for call in wanted], ordered)
    left = list(calls)
    for one in wanted:
        values = [_value(call, one, match, ordered) if call.name == one.name else 0.0 for call in left]
        best = max(range(len(left)), key=values.__getitem__, default=None)
        if best is not None and values[best] > 0.0:
            total += values[best]
            del left[best]
    most = 1.0 + sum(1.0 if match == "intermediate" else 1.0 + len(one.parameters) for one in wanted)
    if match == "coarse":
        return float(total == most)
    return total / most


def overlap(a: Sequence[str], b: Sequence[str], ordered: bool = False) -> float:
    """J of two lists of names: 1 if both are empty, 0 if one is; ordered, 1 for equal lists and else 0."""
    if not a or not b or ordered:
        return float(list(a) == list(b))
    shared = (Counter(a) & Counter(b)).total()
    return shared / (len(a) + len(b) - shared)


def _value(call: ToolCall, wanted: ToolCall, match: str, ordered: bool) -> float:
    """What a call of the right name counts for."""
    if match == "intermediate":
        return float(_equal(call, wanted))
    equal = sum(
        name in call.parameters and same(call.parameters[name], value) for name, value in wanted.parameters.items()
    )
    return overlap(list(call.parameters), list(wanted.parameters), ordered) + equal


def _equal(a: ToolCall, b: ToolCall) -> bool:
    return a.name == b.name and same(a.parameters, b.parameters)
