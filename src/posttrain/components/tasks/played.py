"""Other tasks with episodes to imitate, which are made by playing in a world.

A task's demonstrations are played: each is cut after every one of the world's stop strings, and what the world answers
comes in between. Where `actions` are given, they are played instead, every turn one of them at random: a player who
knows the forms of the world and nothing of how to win.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from pydantic import NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Environment, WorldFailed
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.engines import wait_for
from posttrain.errors import UserError
from posttrain.types import Task, Utterance


@frozen
class Played(Tasks):
    """Tasks with an episode for each demonstration, or one at random."""

    tasks: Tasks
    """What is played."""
    environment: Environment
    """Where."""
    actions: tuple[str, ...] = ()
    """Turns to choose from at random; empty plays the tasks' own demonstrations."""
    turns: PositiveInt = 8
    """Turns after which an episode ends anyway."""
    seed: NonNegativeInt = 0
    """Which actions are chosen."""

    def load(self) -> Sequence[Task]:
        """The tasks of the source, in its order. Raises `UserError` for one that cannot be played."""
        tasks = self.tasks.load()
        self.environment.check(tasks)
        return tuple(wait_for(self._all(tasks)))

    def describe(self) -> str:
        """The source, and an example."""
        return describe(f"{self.tasks.kind} tasks played in {self.environment.kind}", self.load())

    async def _all(self, tasks: Sequence[Task]) -> list[Task]:
        return [await self._played(task) for task in tasks]

    async def _played(self, task: Task) -> Task:
        rng = Random(f"played:{self.seed}:{task.key}")
        scripts = [self._turns(text) for text in task.demonstrations]
        if self.actions:
            scripts = [[rng.choice(self.actions) for _ in range(self.turns)]]
        try:
            played = [await self._episode(task, script, rng) for script in scripts]
        except WorldFailed as error:
            raise UserError(f"task {task.key} cannot be played: {error}") from None
        return replace(task, demonstrations=(), episodes=tuple(episode for episode in played if episode))

    async def _episode(self, task: Task, script: Sequence[str], rng: Random) -> tuple[Utterance, ...]:
        """What is seen first, and the turns that follow: the policy has the last word."""
        said: list[Utterance] = []
        async with self.environment.open(task, rng.random) as world:
            if opening := world.begin().text:
                said.append(Utterance(actor="environment", text=opening))
            for text in script:
                said.append(Utterance(actor="policy", text=text, ended=not text.endswith(self.environment.stop)))
                outcome = await world.step(text)
                if outcome.done:
                    break
                said.append(Utterance(actor="environment", text=outcome.observation.text))
        while said and said[-1].actor == "environment":
            said.pop()
        return tuple(said)

    def _turns(self, text: str) -> list[str]:
        """A demonstration cut after every stop string of the world."""
        ends = "|".join(map(re.escape, self.environment.stop))
        parts = re.split(f"({ends})", text) if ends else [text]
        turns = ["".join(parts[at : at + 2]) for at in range(0, len(parts), 2)]
        return [turn for turn in turns if turn]
