"""Rows of the list of runs. A run that cannot be read is a row with the reason; the list is shown all the same."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from posttrain.errors import PosttrainError
from posttrain.errors.foreign import guard
from posttrain.runs.reading import JOURNAL, read_own
from posttrain.runs.state import state_of
from posttrain.runs.store import RunStore

Page = dict[str, Any]
T = TypeVar("T")


class Gain(TypedDict):
    """A gain as a row shows it."""

    value: float
    interval: Annotated[list[float], Field(min_length=2, max_length=2)]


class Row(TypedDict):
    """What a row shows of a summary."""

    recipe: str | None
    steps: int | None
    accuracy_before: float | None
    accuracy_after: float | None
    seconds: float | None
    gain: Gain | None


class Evaluation(TypedDict):
    """What is shown of an evaluation."""

    step: int
    name: str
    accuracy: float | None


EMPTY: Page = dict.fromkeys(Row.__annotations__)
_ROW = TypeAdapter(Row)
_EVALUATIONS = TypeAdapter(list[Evaluation])


def or_problem(read: Callable[[], T], otherwise: T) -> tuple[T, str]:
    """What is read, or the other value and why it could not be: whatever is wrong with a run stays with that run."""
    try:
        return read(), ""
    except PosttrainError as error:
        return otherwise, str(error)
    except Exception as error:
        return otherwise, f"it is damaged ({type(error).__name__}: {error})"


def line(name: str, folder: Path) -> Page:
    """One row of the list of runs; from the summary of a run that has ended."""
    found, problem = or_problem(
        lambda: _read(folder), {**EMPTY, "started": "", "finished": False, "state": "", "why": ""}
    )
    return {"name": name, **found, "problem": problem}


def evaluations(entries: list[dict[str, Any]]) -> list[Page]:
    """Number, step, name and accuracy of each."""
    return [{"number": i, **entry} for i, entry in enumerate(_checked(_EVALUATIONS, entries, "evals.jsonl"))]


def choices(found: Mapping[str, Path]) -> list[Page]:
    """The evaluations of every run that can be read."""
    none: list[Page] = []
    return [
        {"run": name, "evaluations": or_problem(partial(_evaluations_of, folder), none)[0]}
        for name, folder in found.items()
    ]


def _read(folder: Path) -> Page:
    with RunStore.open(folder, reading=True) as store:
        summary, history = store.summary(), store.history()
        finished = bool(summary)
        if not finished:
            entries = store.evaluations()
            first, last = (entries[i] if entries else {} for i in (0, -1))
            summary = {
                "recipe": store.recipe_tree().get("name"),
                "steps": lines(folder / "metrics.jsonl"),
                "accuracy_before": first.get("accuracy"),
                "accuracy_after": last.get("accuracy") if len(entries) > 1 else None,
            }
        shown = _checked(_ROW, {**EMPTY, **summary}, "summary.json" if finished else "recipe.yaml")
    started = history[0].get("time") if history else None
    state = state_of(folder, history)
    return {
        **shown,
        "started": started if isinstance(started, str) else "",
        "finished": finished,
        "state": state.name,
        "why": state.why,
    }


def _checked(kind: TypeAdapter[Any], value: Any, name: str) -> Any:
    """A value of this kind, what else is in it left out. Raises `UserError` with the name of the file."""
    with guard(name):
        return kind.validate_python(value)


def _evaluations_of(folder: Path) -> list[Page]:
    with RunStore.open(folder, reading=True) as store:
        return evaluations(store.evaluations())


def lines(path: Path) -> int:
    """Whole lines of a journal."""
    try:
        return read_own(path, JOURNAL).count(b"\n")
    except FileNotFoundError:
        return 0
