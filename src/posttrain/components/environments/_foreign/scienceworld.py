"""ScienceWorld (Wang et al. 2022, arXiv:2203.07540): ``scienceworld:boil``, a task by name; it needs Java.

The variation is drawn by the seed. The reward of a turn is what it adds to the score, from 0 to 1. Legal actions are
those that the simulator lists, without the ones that it lists only for one object more. A second episode of one Java
process differs from the first of a seed; each has a process of its own here, so that it repeats. Java does not start
within the default limit of memory: set ``memory_mib=null``.
"""

import importlib
from collections.abc import Mapping
from typing import Any

from posttrain.components.environments._foreign import Adapter, Seen
from posttrain.errors import UserError


def open_adapter(name: str, arguments: dict[str, Any], view: str, calls: str) -> Adapter:
    """The task of a name."""
    simulator = vars(importlib.import_module("scienceworld"))["ScienceWorldEnv"]
    steps = int(arguments.pop("steps", 100))
    simplified = str(arguments.pop("simplifications", "easy"))
    made = simulator("", envStepLimit=steps)
    if name not in made.task_names:
        made.close()
        raise UserError(f"scienceworld:{name}: there is no such task; there are {', '.join(made.task_names)}")
    return Science(made, name, simplified)


class Science(Adapter):
    """One episode."""

    def __init__(self, made: Any, task: str, simplified: str) -> None:
        self._made, self._task, self._simplified = made, task, simplified

    def reset(self, seed: int, fields: Mapping[str, Any]) -> Seen:
        """Start: what is to be done, and what can be seen."""
        variation = seed % self._made.get_max_variations(self._task)
        self._made.load(self._task, variation, self._simplified, generateGoldPath=True)
        text, found = self._made.reset()
        self._score, self._gold = 0.0, list(self._made.get_gold_action_sequence())
        return Seen(text=f"{self._made.get_task_description()}\n{text}", legal=list(found["valid"]))

    def step(self, action: str) -> Seen:
        """Perform a line."""
        line = action.strip().splitlines()[0] if action.strip() else ""
        if not line:
            return Seen(text="This is no action.", valid=False)
        text, _, over, found = self._made.step(line)
        before, self._score = self._score, max(0.0, found["score"] / 100)
        known = not text.startswith(("No known action", "Unknown action"))
        legal = None if over else list(found["valid"])
        return Seen(text=text, reward=self._score - before, terminated=bool(over), valid=known, legal=legal)

    def solution(self) -> str | None:
        """The next action of the simulator's own path."""
        return self._gold.pop(0) if self._gold else "look around"

    def close(self) -> None:
        """End the simulator."""
        self._made.close()
