"""Other tasks with demonstrated episodes, which are made by running actions in an environment.

Each demonstration of a task is split after every stop string of the environment, and observations are inserted between
the parts. With `actions`, each turn is a random one of them instead: a policy with valid actions but no strategy. The
player ``solver`` is the environment's own, and ``legal`` takes random actions that the environment lists, or else
random calls of its tools, or of those actions that its text shows as examples.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Literal

from pydantic import NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Contained, Environment, EnvironmentFailed, Observation
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.engines import wait_for
from posttrain.errors import UserError
from posttrain.types import Task, Utterance


@frozen
class Played(Tasks):
    """Tasks with an episode per demonstration, or with one random episode."""

    tasks: Tasks
    """The source of the tasks."""
    environment: Environment
    """The environment of the episodes."""
    actions: tuple[str, ...] = ()
    """Actions to choose from at random; empty uses the demonstrations of the tasks."""
    turns: PositiveInt = 8
    """Most turns of a random episode."""
    player: Literal["given", "solver", "legal"] = "given"
    """Who plays: ``given`` are the demonstrations or `actions`; ``solver`` is the environment's own player, and a
    ``legal`` one where it has none."""
    seed: NonNegativeInt = 0
    """Seed of the random actions."""

    def load(self) -> Sequence[Task]:
        """The tasks of the source, in its order. Raises `UserError` for one that cannot be played."""
        tasks = self.tasks.load()
        self.environment.check_alone(tasks)
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
            if self.player == "given":
                played = [await self._episode(task, script, rng) for script in scripts]
            else:
                played = [await self._episode(task, [None] * self.turns, rng)]
        except EnvironmentFailed as error:
            raise UserError(f"task {task.key} cannot be played: {error}") from None
        return replace(task, demonstrations=(), episodes=tuple(episode for episode in played if episode))

    async def _episode(self, task: Task, script: Sequence[str | None], rng: Random) -> tuple[Utterance, ...]:
        """The first observation, and alternating turns; the last one is the policy's. None is the player's turn."""
        utterances: list[Utterance] = []
        async with self.environment.open(task, rng.random) as instance:
            seen = instance.begin()
            if seen.text:
                utterances.append(Utterance(actor="environment", text=seen.text))
            for given in script:
                text = await self._turn(task, instance, seen, rng) if given is None else given
                utterances.append(Utterance(actor="policy", text=text, ended=not text.endswith(self.environment.stop)))
                outcome = await instance.step(text)
                if outcome.done:
                    break
                seen = outcome.observation
                utterances.append(Utterance(actor="environment", text=seen.text))
        while utterances and utterances[-1].actor == "environment":
            utterances.pop()
        return tuple(utterances)

    async def _turn(self, task: Task, instance: Contained, seen: Observation, rng: Random) -> str:
        """The player's turn. Raises `UserError` where there is none."""
        text = await instance.solution() if self.player == "solver" else None
        if text is None and not seen.legal:
            text = await instance.example()
        if text is None and not seen.legal:
            raise UserError(
                f"task {task.key} cannot be played: the environment '{self.environment.kind}' has no solver, lists "
                "no legal actions and shows none; give it a solver, or take a model that can act and leave imitation "
                "out (sft=null)"
            )
        return rng.choice(seen.legal or ()) if text is None else text

    def _turns(self, text: str) -> list[str]:
        """A demonstration cut after every stop string of the environment."""
        ends = "|".join(map(re.escape, self.environment.stop))
        parts = re.split(f"({ends})", text) if ends else [text]
        turns = ["".join(parts[at : at + 2]) for at in range(0, len(parts), 2)]
        return [turn for turn in turns if turn]
