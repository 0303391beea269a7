"""A class of the user's, which imports nothing of this package: ``file.py:Name`` or ``package.module:Name``.

    reset(seed, ...)     starts; what it returns is shown. Further parameters are fields of the task, by name
    step(action)         takes the text of a turn, and returns a text, or Gymnasium's five values
    any other method     without `step`: a tool. It must have types
    reward(), done, legal, snapshot(), restore(state), solver(), close()     optional; `get_reward` is TRL's name

`done` and `legal` may be values or methods. `solver` returns the next turn of a player who solves the task. The value
of the episode is `reward()` at its end.
"""

import inspect
from collections.abc import Mapping
from typing import Any, cast

from posttrain.components.environments._foreign import Adapter, Seen, called, finite, load, written
from posttrain.components.environments._foreign.tools import Tool, of_method, perform
from posttrain.errors import UserError
from posttrain.grading.turn_calls import CallForm

RESERVED = ("reset", "step", "reward", "get_reward", "done", "legal", "snapshot", "restore", "solver", "close")


def open_adapter(name: str, arguments: dict[str, Any], view: str, calls: str) -> Adapter:
    """The environment of a class, or of a function that makes one."""
    return Plain(called(load(name), arguments), cast(CallForm, calls))


class Plain(Adapter):
    """One episode."""

    def __init__(self, made: Any, form: CallForm) -> None:
        if not callable(getattr(made, "reset", None)):
            raise UserError(f"{type(made).__name__} has no method reset(seed, ...), so no episode can start")
        self._made, self._form = made, form
        names = [n for n in dir(type(made)) if n[0] != "_" and n not in RESERVED]
        methods = [getattr(made, n) for n in names if callable(inspect.getattr_static(type(made), n))]
        self.tools: dict[str, Tool] = {} if hasattr(made, "step") else {m.__name__: of_method(m) for m in methods}
        if not self.tools and not hasattr(made, "step"):
            raise UserError(f"{type(made).__name__} has neither a method step(action) nor another one, a tool")
        taken = inspect.signature(made.reset).parameters.values()
        self.rest = any(p.kind is p.VAR_KEYWORD for p in taken)
        self.fields = {p.name: p.default is p.empty for p in taken if p.kind is not p.VAR_KEYWORD}

    def reset(self, seed: int, fields: Mapping[str, Any]) -> Seen:
        """Start, with the fields of the task that `reset` names."""
        given = {"seed": seed, **fields}
        known = given if self.rest else {name: given[name] for name in self.fields if name in given}
        return Seen(text=written(self._made.reset(**known)), legal=self._legal())

    def step(self, action: str) -> Seen:
        """Perform a turn: by `step`, or by the tools that it calls."""
        seen = perform(action, self._form, self.tools) if self.tools else _seen(self._made.step(action))
        seen.legal = self._legal()
        seen.terminated = seen.terminated or bool(self._optional("done", False))
        return seen

    def value(self) -> float:
        """What `reward` returns."""
        method = getattr(self._made, "reward", None) or getattr(self._made, "get_reward", None)
        return finite(method()) if callable(method) else 0.0

    def snapshot(self) -> Any:
        """What `snapshot` returns."""
        return self._made.snapshot() if hasattr(self._made, "snapshot") else None

    def restore(self, state: Any) -> None:
        """Go on from a snapshot."""
        self._made.restore(state)

    def solution(self) -> str | None:
        """What `solver` returns."""
        return written(self._made.solver()) if hasattr(self._made, "solver") else None

    def close(self) -> None:
        """Close it, where it can be."""
        if callable(getattr(self._made, "close", None)):
            self._made.close()

    def _legal(self) -> list[str] | None:
        legal = self._optional("legal", None)
        return None if legal is None else [written(action) for action in legal]

    def _optional(self, name: str, default: Any) -> Any:
        value = getattr(self._made, name, default)
        return value() if callable(value) else value


def _seen(result: Any) -> Seen:
    """A text, or observation, reward, terminated, truncated and information."""
    if not isinstance(result, tuple):
        return Seen(text=written(result))
    if len(result) != 5:
        raise TypeError(f"step returned {len(result)} values; a text, or the five of Gymnasium, are needed")
    observation, reward, terminated, truncated, _ = result
    return Seen(
        text=written(observation), reward=finite(reward), terminated=bool(terminated), truncated=bool(truncated)
    )
