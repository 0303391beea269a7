"""Berkeley Function Calling Leaderboard, dialogues over several turns: ``bfcl:multi_turn_base``.

The package pins versions, so it runs in a Python of its own: ``arguments.python`` is that interpreter, by default the
one of this run. The dialogue is drawn by the seed, or named by the field ``task_id``. A turn without a call gets the
user's next request, and the last one ends the episode. After each request states and answers are compared with those
of its reference calls; the value is 1 where all agree.

Source: Patil et al. 2025, "The Berkeley Function Calling Leaderboard", and the package bfcl-eval 2026.3.23.

Differs: calls are JSON and never evaluated as Python. Of the categories those without missing functions.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from posttrain.components.environments._foreign import Adapter, Seen
from posttrain.components.environments._foreign.servers import Piped
from posttrain.components.environments._foreign.tools import Misfit, Tool, hermes, of_schema, perform, read_python
from posttrain.errors import UserError
from posttrain.grading.turn_calls import CallForm

CATEGORIES: Final = ("multi_turn_base", "multi_turn_long_context", "multi_turn_miss_param")


def open_adapter(name: str, arguments: dict[str, Any], view: str, calls: str) -> Adapter:
    """The dialogues of a category."""
    if name not in CATEGORIES:
        raise UserError(f"bfcl:{name}: there is no such category; there are {', '.join(CATEGORIES)}")
    return BFCL(name, str(arguments.get("python", sys.executable)), cast(CallForm, calls))


class BFCL(Adapter):
    """One episode, in a process of the other Python."""

    def __init__(self, category: str, python: str, form: CallForm) -> None:
        self._form, self.tools, self.fields = form, dict[str, Tool](), {"task_id": False}
        script = Path(__file__).with_name("bfcl_worker.py")
        try:
            self._process = Piped([python, str(script), category])
        except OSError as error:
            raise UserError(f"bfcl: python={python}: {error}; give the interpreter that has bfcl-eval") from None
        self._order(order="ready")

    def reset(self, seed: int, fields: Mapping[str, Any]) -> Seen:
        """Start a dialogue: its tools, and the first request."""
        found = self._order(order="reset", seed=seed, task_id=fields.get("task_id"))
        self.tools.update({schema["name"]: of_schema(schema, self._call) for schema in found["tools"]})
        self._requests, self._gold, self._place, self._shown = found["requests"], found["gold"], 0, False
        listed = "\n".join(json.dumps(dict(tool.schema)) for tool in self.tools.values())
        return Seen(text=f"Tools:\n{listed}\n{self._requests[0]}")

    def step(self, action: str) -> Seen:
        """Run the calls of a turn, or go to the next request."""
        seen = perform(action, self._form, self.tools)
        if seen.terminated:
            self._order(order="turn")
            self._place, self._shown = self._place + 1, False
            if self._place < len(self._requests):
                return Seen(text=self._requests[self._place])
        return seen

    def value(self) -> float:
        """Whether all requests that there are have been met."""
        return float(self._order(order="value"))

    def solution(self) -> str | None:
        """The reference calls of a request, then a word."""
        self._shown = not self._shown
        calls = [read_python(call, self.tools) for call in self._gold[self._place]] if self._shown else []
        return "\n".join(hermes(name, arguments) for name, arguments in calls) or "Done."

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def _order(self, **order: Any) -> Any:
        try:
            answer = self._process.order(order)
        except (OSError, ValueError):
            raise RuntimeError("the process of bfcl-eval ended; see its package and arguments.python") from None
        if "missing" in answer:
            raise UserError(f"bfcl: {answer['missing']}; pip install bfcl-eval in the environment of arguments.python")
        if "misfit" in answer:
            raise Misfit(answer["misfit"])
        return answer["value"]

    def _call(self, name: str, arguments: dict[str, Any]) -> str:
        text = str(self._order(order="call", name=name, arguments=arguments))
        if text.startswith("Error during execution: "):
            raise RuntimeError(text.removeprefix("Error during execution: "))
        return text
