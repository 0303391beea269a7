r"""Whether a completion lists all solutions of its task and nothing else, in any order.

Source: ToTRL, arXiv:2505.12717, equation 5: the form is checked first, then exact equality of the set of solutions.
There is no partial credit: a missing one and an additional one both score 0, and so does a completion without a list.

The list is what follows the last `marker`, separated by `separator`; white space is ignored, and repetitions too. The
task's solutions are its field ``solutions``. With ``need: one`` one correct solution is enough, and others may be
wrong. The form of what comes before is a gate: ``{kind: gated, gate: {kind: format, tags: [tot]}, reward:
solution_set}``.

Differs: the magnitudes of the paper's reward are not published.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from posttrain.component import frozen, nearest
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.errors import TaskFault
from posttrain.grading.extraction import shown
from posttrain.types import Group, Score, Task, Trajectory


@frozen
class SolutionSet(Reward):
    """Scores 1 for the whole set of solutions, 0 for any other."""

    marker: Annotated[str, Field(min_length=1)] = "####"
    """Text before the list."""
    separator: Annotated[str, Field(min_length=1)] = ";"
    """Text between solutions."""
    column: str = "solutions"
    """Field of a task with its solutions, a list of texts."""
    need: Literal["all", "one"] = "all"
    """Whether all solutions are needed, or one of them."""

    def check(self, tasks: Sequence[Task]) -> None:
        """Every task must have its solutions."""
        for task in tasks:
            if not self._solutions(task):
                raise TaskFault(
                    task.key,
                    f"task {task.key} has no list of solutions in the field '{self.column}'; "
                    f"{nearest(self.column, task.fields)}; give each row all of its solutions, as a list of texts",
                )

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare the lists."""
        return [self._score(trajectory) for trajectory in group]

    def _solutions(self, task: Task) -> set[str]:
        found = task.fields.get(self.column)
        valid = isinstance(found, Sequence) and not isinstance(found, str)
        return {_plain(str(one)) for one in found} if valid and found else set()

    def _score(self, trajectory: Trajectory) -> Score:
        gold = self._solutions(trajectory.task)
        if not gold:
            return failure(f"task '{trajectory.task.key}' has no list of solutions in the field '{self.column}'")
        if trajectory.stop_reason == "length":
            return Score(
                value=0.0, status="wrong", explanation="was cut at the token limit, so that its list may go on"
            )
        _, found, listed = trajectory.completion.rpartition(self.marker)
        given = {plain for one in listed.split(self.separator) if (plain := _plain(one))} if found else set()
        if not given:
            return Score(value=0.0, status="wrong", explanation=f"no list after {self.marker}")
        right = bool(given & gold) if self.need == "one" else given == gold
        counts = f"{len(given & gold)} of {len(gold)} solutions, {len(given - gold)} others"
        answer = shown(listed.strip())
        return Score(value=float(right), status="ok" if right else "wrong", answer=answer, explanation=counts)


def _plain(text: str) -> str:
    return "".join(text.split())
