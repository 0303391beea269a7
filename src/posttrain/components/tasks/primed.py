"""Other tasks with the episodes of a player that show all of some behaviours, whether their answers are right or not.

The player is the environment's own. An episode shows a behaviour where the environment's measure of that name is 1; a
behaviour that had no occasion counts as not shown. Tasks without such an episode are left out.

Source: the choice of demonstrations of Behavior Priming, arXiv:2510.06534: trajectories of a strong model in which a
judge finds all four behaviours, with any answer; at most 20,000 rows. There are 10 trajectories of each question.

Differs: an episode is one demonstration with all its turns, where the release makes a row of each turn.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Environment, EnvironmentFailed
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.engines import wait_for
from posttrain.errors import UserError
from posttrain.types import Task, Utterance


@frozen
class Primed(Tasks):
    """Keeps the tasks in which the player shows the behaviours."""

    tasks: Tasks
    """The source of the tasks."""
    environment: Environment
    """The environment, with a player of its own."""
    behaviours: tuple[str, ...] = ()
    """Names of measures that must all be 1; none keeps every episode."""
    answers: Literal["any", "right", "wrong"] = "any"
    """Which episodes are kept, by the environment's verdict."""
    turns: PositiveInt = 8
    """Most turns of an episode."""
    most: Annotated[int, Field(ge=1, le=1_000_000)] = 20_000
    """Most tasks, from the first."""

    def load(self) -> Sequence[Task]:
        """The tasks with their episodes. Raises `UserError` where there is none."""
        tasks = self.tasks.load()
        self.environment.check_alone(tasks)
        kept = wait_for(self._all(tasks))[: self.most]
        if not kept:
            raise UserError(
                f"in none of {len(tasks)} tasks does the player of '{self.environment.kind}' show "
                f"{', '.join(self.behaviours) or 'an episode'} with {self.answers} answers; name fewer behaviours, "
                "or give more tasks"
            )
        return tuple(kept)

    def describe(self) -> str:
        """The source, and an example."""
        return describe(f"{self.tasks.kind} tasks whose player shows {', '.join(self.behaviours)}", self.load())

    async def _all(self, tasks: Sequence[Task]) -> list[Task]:
        played = [(task, await self._episode(task)) for task in tasks]
        return [replace(task, demonstrations=(), episodes=(own,)) for task, own in played if own]

    async def _episode(self, task: Task) -> tuple[Utterance, ...]:
        """The player's episode; empty where it is not kept."""
        shown: list[Utterance] = []
        try:
            async with self.environment.open(task, Random(f"primed:{task.key}").random) as instance:
                seen = instance.begin()
                for turn in range(self.turns):
                    if seen.text or turn:
                        shown.append(Utterance(actor="environment", text=seen.text))
                    text = await instance.solution()
                    if text is None:
                        return ()
                    ended = not (self.environment.stop and text.endswith(self.environment.stop))
                    shown.append(Utterance(actor="policy", text=text, ended=ended))
                    outcome = await instance.step(text)
                    seen = outcome.observation
                    if outcome.done:
                        break
                await instance.finish()
                verdict, measures = instance.verdict(), instance.measures()
        except EnvironmentFailed as error:
            raise UserError(f"task {task.key} cannot be played: {error}") from None
        has_all = all(measures.get(name, 0.0) == 1.0 for name in self.behaviours)
        solved = verdict is not None and verdict.solved
        return tuple(shown) if has_all and self.answers in ("any", "right" if solved else "wrong") else ()
