"""Rubrics of the library verifiers: weighted functions in one object, called as one reward function.

Only attributes are read (``funcs`` and ``weights``, in earlier versions ``reward_funcs`` and ``reward_weights``,
``parser`` and ``class_objects``), so the library need not be installed.

Differs: a function that raises makes the score an error; the library takes 0.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from posttrain.errors import UserError

_ATTRIBUTES = (("funcs", "weights"), ("reward_funcs", "reward_weights"))
_OF_GROUPS = ("prompts", "completions", "answers", "states", "infos", "tasks")
"""Parameters of a function that scores a group."""


def is_rubric(value: Any) -> bool:
    """Whether a value is a rubric."""
    return not inspect.isroutine(value) and not isinstance(value, type) and _parts(value) is not None


def from_rubric(rubric: Any, spelling: str) -> Callable[..., Any]:
    """A function that returns the weighted sum of a rubric's functions, and the result of each by its name.

    Raises `UserError` for a rubric with a function that scores a group.
    """
    parts = _parts(rubric)
    assert parts is not None, "see is_rubric"
    functions, weights = parts
    for function in functions:
        if taken := [name for name in inspect.signature(function).parameters if name in _OF_GROUPS]:
            raise UserError(
                f"reward function '{spelling}': the rubric's function {_name(function)} takes {taken[0]}, so it scores "
                "a group; only functions of one rollout are supported. Write it as a function for TRL, for groups"
            )
    shared = {**dict(getattr(rubric, "class_objects", None) or {})}
    if getattr(rubric, "parser", None) is not None:
        shared.setdefault("parser", rubric.parser)

    async def score(prompt: Any, completion: Any, answer: Any, task: Any, state: Any, info: Any) -> dict[str, Any]:
        given = {"prompt": prompt, "completion": completion, "answer": answer, "task": task}
        values = {**shared, **given, "state": state, "info": info}
        results: dict[str, Any] = {}
        total = 0.0
        for function, weight in zip(functions, weights, strict=True):
            result = function(**_taken(function, values))
            result = await result if inspect.isawaitable(result) else result
            results[_name(function)] = float(result)
            total += weight * float(result)
        return {"score": total, **results}

    return score


def _parts(value: Any) -> tuple[Sequence[Callable[..., Any]], Sequence[float]] | None:
    for functions, weights in _ATTRIBUTES:
        found, weighed = getattr(value, functions, None), getattr(value, weights, None)
        if (
            isinstance(found, list | tuple)
            and found
            and all(map(callable, found))
            and isinstance(weighed, list | tuple)
        ):
            return found, weighed or [1.0] * len(found)
    return None


def _taken(function: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return dict(values)
    return {name: values[name] for name in parameters if name in values}


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
