r"""Generated requests with the tools that are offered, answered by calls whose values stand in the request.

The prompt lists tools with their parameters, then the calls: ``Tools: cook(heat, time) walk(km)\nDo: cook heat 3 time
7\n``. The answer is ``{"name": "cook", "parameters": {"heat": 3, "time": 7}}``, one line for each call. Some requests
ask for nothing (``Do: nothing\n``) and are answered by a response.

A demonstration has the layout of ToolRL. With probability `right` its calls are those of the answer; otherwise each
call has a random one of the tools, and of its parameters a random part with random values.
"""

import json
from collections.abc import Sequence
from random import Random
from typing import Annotated, Any, Final

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

TOOLS: Final = (
    *("cook", "walk", "read", "sing", "swim", "draw", "call", "send"),
    *("open", "lock", "find", "sort", "plan", "mail", "ride", "wash"),
)
PARAMETERS: Final = ("km", "heat", "time", "size", "floor", "room", "pages", "speed")
LEVELS: Final = {1: (4, 1, 1), 2: (6, 2, 1), 3: (8, 2, 2), 4: (10, 3, 2), 5: (12, 3, 3)}
"""By level: tools offered, most parameters of a tool, most calls."""
WORDS: Final = (
    *("Tools: ", "\nDo: ", "nothing", "<think>", "</think>", "\n<tool_call>\n", "\n</tool_call>"),
    *("\n<response>", "</response>", '{"name": "', '", "parameters": {', "}}", '": ', ', "', '"', ", ", "; ", "done"),
    *TOOLS,
    *PARAMETERS,
)
"""Texts that are one token each for a model of these tasks."""
Drawn = tuple[tuple[tuple[str, tuple[str, ...]], ...], tuple[tuple[str, tuple[int, ...]], ...]]


@frozen
class ToolRequests(Tasks):
    """Requests with 4 to 12 tools, answered by up to three calls."""

    size: Annotated[PositiveInt, Field(le=10_000)] = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""
    level: Annotated[int, Field(ge=1, le=5)] = 1
    """Difficulty: more tools, parameters and calls."""
    none: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1
    """Share of requests that ask for nothing."""
    right: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2
    """Share of demonstrations whose calls are right."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        return keyed(map(self._task, distinct(self._draw, self.size, f"tool_requests:{self.level}:{self.seed}")))

    def describe(self) -> str:
        """Level, number and an example."""
        return describe(f"requests for tools (level {self.level}, seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> Drawn:
        count, parameters, calls = LEVELS[self.level]
        tools = tuple(
            (name, tuple(sorted(rng.sample(PARAMETERS, rng.randint(0, parameters)))))
            for name in rng.sample(TOOLS, count)
        )
        wanted = [] if rng.random() < self.none else rng.sample(tools, rng.randint(1, calls))
        return tools, tuple((name, tuple(rng.randrange(10) for _ in own)) for name, own in wanted)

    def _task(self, drawn: Drawn) -> Task:
        tools, wanted = drawn[0], drawn[1]
        offered = dict(tools)
        calls = [(name, dict(zip(offered[name], values, strict=True))) for name, values in wanted]
        asked = "; ".join(" ".join([name, *(f"{key} {value}" for key, value in own.items())]) for name, own in calls)
        listed = " ".join(f"{name}({', '.join(own)})" for name, own in tools)
        answer = "\n".join(written(name, own) for name, own in calls)
        return Task(
            key="",
            prompt=f"Tools: {listed}\nDo: {asked or 'nothing'}\n",
            answer=answer or "<think></think>\n<response>done</response>",
            domain=f"{len(calls)} calls" if len(calls) != 1 else "1 call",
            demonstrations=(self._shown(drawn, calls),),
            fields={
                "tools": [{"name": name, "parameters": list(own)} for name, own in tools],
                "calls": [{"name": name, "parameters": own} for name, own in calls],
            },
        )

    def _shown(self, drawn: Drawn, calls: Sequence[tuple[str, dict[str, int]]]) -> str:
        if not calls:
            return "<think></think>\n<response>done</response>"
        rng = Random(f"shown:{self.seed}:{drawn}")
        if rng.random() >= self.right:
            calls = [self._guessed(drawn, rng) for _ in calls]
        block = "\n".join(written(name, own) for name, own in calls)
        return f"<think></think>\n<tool_call>\n{block}\n</tool_call>"

    def _guessed(self, drawn: Drawn, rng: Random) -> tuple[str, dict[str, int]]:
        name, own = rng.choice(drawn[0])
        return name, {key: rng.randrange(10) for key in own if rng.random() < 0.7}


def written(name: str, parameters: dict[str, Any]) -> str:
    """A call as a line of JSON."""
    return json.dumps({"name": name, "parameters": parameters})
