"""Conversion of the result of a user's function to a `Score`; invalid results become an ``error``."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from numbers import Real
from typing import Any

from posttrain.components.rewards import failure
from posttrain.grading.conventions import Log
from posttrain.grading.extraction import shown
from posttrain.types import Score

NOT_APPLICABLE = "not applicable: the function returned None"


def as_score(result: Any, correct_at: float) -> Score:
    """A number, bool, None, mapping with ``score`` or ``value``, or `Score`, as a score."""
    if isinstance(result, Score):
        return _sound(result)
    if isinstance(result, Mapping):
        return _from_mapping(result, correct_at)
    if result is None:
        return not_applicable()
    value = as_number(result)
    if value is None:
        return failure(
            f"the function returned {shown(_written(result, repr))}, a {type(result).__name__}; "
            "it must return a number, a bool, None, a dict with 'score', or a Score"
        )
    if not math.isfinite(value):
        return failure(f"the function returned {value}")
    return Score(value=value, status="ok" if value >= correct_at else "wrong")


def not_applicable() -> Score:
    """The score of a rollout that a reward does not apply to."""
    return replace(failure(NOT_APPLICABLE), applies=False)


def from_openrlhf(result: Any, log: Log) -> Any:
    """The rewards in what a function for OpenRLHF returned; its ``scores`` and ``extra_logs`` go into the log."""
    if not isinstance(result, Mapping) or "rewards" not in result:
        return result
    extra = result.get("extra_logs")
    for name, values in {"score": result.get("scores"), **(extra if isinstance(extra, Mapping) else {})}.items():
        listed = _listed(values)
        if listed is not None and len(listed) == log.num_completions:
            log.extra(str(name), listed)
        elif values is not None:
            log.metric(str(name), values)
    return result["rewards"]


def _listed(values: Any) -> list[Any] | None:
    """The items of a list or of an array with one axis; None for any other value."""
    if isinstance(values, str | Mapping):
        return None
    try:
        return list(values)
    except TypeError:
        return None


def as_number(value: Any) -> float | None:
    """A number of any library, or an array of one element, as a float; None for anything else."""
    if not isinstance(value, Real | Decimal):
        try:
            value = value.item()
        except (AttributeError, TypeError, ValueError, RuntimeError):  # no array, or one of several elements
            return None
    if not isinstance(value, Real | Decimal):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf  # an integer that no float holds


def as_part(value: Any) -> Score | None:
    """One of several numbers that a function returned, for the record; None if it is not a finite number."""
    number = as_number(value)
    if number is None or not math.isfinite(number):
        return None
    return Score(value=number, status="wrong" if value is False else "ok")


def with_notes(score: Score, notes: Mapping[str, Any]) -> Score:
    """The score with numbers added to its parts, and other values to its explanation."""
    parts = {name: as_part(value) for name, value in notes.items()}
    texts = [f"{name}: {_written(value)}" for name, value in notes.items() if parts[name] is None and value is not None]
    return replace(
        score,
        parts={**score.parts, **{name: part for name, part in parts.items() if part is not None}},
        explanation="; ".join(text for text in (score.explanation, *texts) if text),
    )


def _written(value: Any, how: Callable[[Any], str] = str) -> str:
    """A value of the user's as text, even if its own ``__str__`` raises."""
    try:
        return how(value)
    except Exception as error:
        return f"({type(value).__name__} that cannot be written: {type(error).__name__})"


def _sound(score: Score) -> Score:
    if score.status == "error":
        return replace(score, value=math.nan)
    value = as_number(score.value)
    if value is None or not math.isfinite(value) or score.status not in ("ok", "wrong"):
        what = f"a Score of {shown(_written(score.value, repr))} with status {shown(_written(score.status, repr))}"
        return failure(f"the function returned {what}", answer=score.answer, parts=score.parts)
    return replace(score, value=value)


def _from_mapping(result: Mapping[Any, Any], correct_at: float) -> Score:
    names = [name for name in ("score", "value") if name in result]
    if not names:
        keys = ", ".join(map(repr, result)) or "nothing"
        return failure(f"the function returned a dict without 'score' or 'value'; it has {shown(keys)}")
    scored = as_score(None if isinstance(result[names[0]], Mapping) else result[names[0]], correct_at)
    if isinstance(result[names[0]], Mapping):
        scored = failure(f"the function returned a dict whose '{names[0]}' is itself a dict")
    answer = result.get("answer", result.get("pred"))
    if answer is not None:
        scored = replace(scored, answer=_written(answer))
    rest = {str(key): value for key, value in result.items() if key not in (names[0], "answer", "explanation")}
    explained = [_written(text) for text in (scored.explanation, result.get("explanation")) if text]
    return with_notes(replace(scored, explanation="; ".join(explained)), rest)
