"""The next action of a recorded shopper, as JSON: its form, its type, then what it names, level by level.

    {"rationale": "...", "action": {"type": "click", "name": "add_to_cart"}}

Source: Shop-R1, arXiv:2507.17842, section 3. Types are click (name), type_and_submit (name, text) and terminate. With S
the ROUGE-L of two texts where it is above `similar`, else 0:

    0.5  one object of this form            otherwise nothing at all
    0.3  the type is right                  otherwise nothing below
    click            0.2 for a name                                    + scale S(name)
    type_and_submit  0.1 for a name, 0.1 for a text, + 0.1 S(name)     + scale S(text)
    terminate        nothing, so that it has 0.8 at most

`scale` is the paper's difficulty-aware scale, 1000 and constant. ``binary`` is 1 for the action as it is, beside the
form. A completion is correct where type, name and text are those of the answer but for case and white space.

The answer of a task is the action as JSON.

Differs: the paper names no variant of ROUGE-L; it is the F-measure of words of any script in lower case, above the
threshold, not at it. What an action must not have (a terminate with a name) breaks its form. A third-party program
scales each example by 0.85 to 1.15; this one does not.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.rewards import Gold, Reward, RewardContext, failure
from posttrain.errors import TaskFault, UserError
from posttrain.grading.similarity import cut, rouge_l
from posttrain.grading.strict_json import BadJSON, read_json
from posttrain.types import Group, Score, Task, Trajectory

FIELDS = {"click": ("name",), "type_and_submit": ("name", "text"), "terminate": ()}
"""What an action of each type may have."""
FORM, TYPE, NAMED, PRESENT = 0.5, 0.3, 0.2, 0.1


@frozen
class NextAction(Reward):
    """Scores a rationale and an action against the recorded one."""

    scale: NonNegativeFloat = 1000.0
    """What the similarity of the longest text is multiplied by."""
    similar: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.75
    """ROUGE-L that must be exceeded."""
    levels: Literal["hierarchical", "binary"] = "hierarchical"
    """Whether parts of an action are rewarded, or the whole of it only."""

    @property
    def needs_answer(self) -> bool:
        """The recorded action."""
        return True

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task whose answer is no action."""
        for task in tasks:
            action_of(task)

    def gold(self, task: Task) -> Gold | None:
        """The recorded action with a rationale."""
        return Gold(answer=task.answer, form='{"rationale": "so", "action": {answer}}') if task.answer else None

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare each action."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        try:
            wanted = action_of(trajectory.task)
        except UserError as error:
            return failure(str(error))
        found = read_action(trajectory.completion)
        if isinstance(found, str):
            return Score(value=0.0, status="wrong", explanation=found, parts=_parts(False, False))
        right = _plain(found) == _plain(wanted)
        typed = found["type"] == wanted["type"]
        if self.levels == "binary":
            value = FORM + right
        else:
            value = FORM + (TYPE + self._below(found, wanted) if typed else 0.0)
        return Score(
            value=value,
            status="ok" if right else "wrong",
            answer=" ".join(found.values())[:200],
            explanation=f"{found['type']}, recorded is {wanted['type']}"
            + (", the same" if right else "")
            + cut(*found.values(), *wanted.values(), words=True, letters=True),
            parts=_parts(True, typed),
        )

    def _below(self, found: dict[str, str], wanted: dict[str, str]) -> float:
        """What is added below a right type."""
        name, text = (self._same(found.get(key, ""), wanted.get(key, "")) for key in ("name", "text"))
        if found["type"] == "click":
            return NAMED * bool(found.get("name")) + self.scale * name
        if found["type"] == "type_and_submit":
            present = PRESENT * bool(found.get("name")) + PRESENT * bool(found.get("text"))
            return present + PRESENT * name + self.scale * text
        return 0.0

    def _same(self, found: str, wanted: str) -> float:
        """S."""
        value = rouge_l(found, wanted, letters=True)
        return value if value > self.similar else 0.0


def action_of(task: Task) -> dict[str, str]:
    """The recorded action of a task. Raises `UserError`."""
    try:
        action = read_json(task.answer or "")
    except BadJSON as error:
        fault: str | None = str(error)
    else:
        fault = _fault(action)
        if fault is None and any(not action.get(key) for key in FIELDS[action["type"]]):
            fault = f"lacks one of {', '.join(FIELDS[action['type']])}"
    if fault is not None:
        raise TaskFault(
            task.key,
            f"the answer of task '{task.key}' {fault}: {(task.answer or '')!r:.80}; it must be an action such as "
            '{"type": "click", "name": "buy"}, {"type": "type_and_submit", "name": "search", "text": "tea"} or '
            '{"type": "terminate"}',
        )
    return dict(action)


def read_action(text: str) -> dict[str, str] | str:
    """The action of a completion, or what is wrong with its form."""
    try:
        read = read_json(text.strip())
    except BadJSON as error:
        return f"the completion {error}"
    if not isinstance(read, dict) or read.keys() != {"rationale", "action"} or not isinstance(read["rationale"], str):
        return "the completion is no object with a rationale and an action"
    fault = _fault(read["action"])
    return dict(read["action"]) if fault is None else f"the action {fault}"


def _fault(action: Any) -> str | None:
    """What is wrong with an action, if anything."""
    if not isinstance(action, dict) or not isinstance(action.get("type"), str) or action["type"] not in FIELDS:
        return f"has no type of {', '.join(FIELDS)}"
    if extra := action.keys() - {"type", *FIELDS[action["type"]]}:
        return f"has {', '.join(sorted(extra))[:60]}, which a {action['type']} has not"
    return None if all(isinstance(own, str) for own in action.values()) else "has a value that is no text"


def _plain(action: dict[str, str]) -> dict[str, str]:
    return {key: " ".join(own.lower().split()) for key, own in action.items()}


def _parts(formed: bool, typed: bool) -> dict[str, Score]:
    found = {"form": formed, "type": typed}
    return {name: Score(value=float(own), status="ok" if own else "wrong") for name, own in found.items()}
