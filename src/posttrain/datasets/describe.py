"""A short description of a data set for the terminal."""

from collections.abc import Iterable, Mapping, Sequence

from posttrain.datasets.layout import Layout
from posttrain.datasets.values import shorten
from posttrain.types import Task


def describe(
    name: str,
    tasks: Sequence[Task],
    layout: Layout | None = None,
    keys_from: str | None = None,
    places: Mapping[str, str] | None = None,
) -> str:
    """The number of tasks, the role and frequency of each column, and the first prompt; `places` by key of the task."""
    lines = [f"{name}: {_count(len(tasks), 'task')}"]
    lines += [f"  {meaning:<15}{found}" for meaning, found in _meanings(tasks, layout, keys_from, places or {})]
    if tasks:
        lines.append(f"  {'first prompt':<15}{prompt_text(tasks[0])}")
    if any(map(_runs_together, tasks)):
        lines.append("  note: demonstrations follow their prompts directly, with no space or line break between")
    return "\n".join(lines)


def prompt_text(task: Task) -> str:
    """The prompt on one line, shortened."""
    if isinstance(task.prompt, str):
        return shorten(task.prompt) if task.prompt else "none (plain text)"
    return " ".join(f"{message['role']}: {shorten(message['content'], 60)}" for message in task.prompt[-2:])


def first_places(places: Sequence[str]) -> str:
    """The number of places and the first of them, by line: ``3 rows: mine.jsonl lines 2, 5 and 9``."""
    shown = places[:5]
    start = shown[0].rpartition(" ")[0]
    together = all(place.rpartition(" ")[0] == start for place in shown) and len(shown) > 1
    numbers = [place.rpartition(" ")[2] if together else place for place in shown]
    listed = numbers[0] if len(numbers) == 1 else f"{', '.join(numbers[:-1])} and {numbers[-1]}"
    listed = f"{', '.join(numbers)}, ..." if len(places) > len(shown) else listed
    return f"{_count(len(places), 'row')}: " + (f"{start}s {listed}" if together else listed)


def _meanings(
    tasks: Sequence[Task], layout: Layout | None, keys_from: str | None, places: Mapping[str, str]
) -> Iterable[tuple[str, str]]:
    """Each role that was found, and its column."""
    layout = layout or Layout()
    total = len(tasks)
    columns = [c for c in (layout.prompt, layout.context, layout.messages) if c] or ["shared prefix"]
    if layout.text is None and layout != Layout():
        yield "prompt", f"{' + '.join(columns)} ({'chat' if not isinstance(tasks[0].prompt, str) else 'text'})"
    if layout.choices:
        yield "choices", f"{layout.choices} (shown below the prompt; the answer is a label)"
    answers = sum(task.answer is not None for task in tasks)
    if answers:
        yield "answer", _share(layout.answer, answers, total)
    if 0 < answers < total and places:
        missing = [places[task.key] for task in tasks if task.answer is None]
        yield "no answer", first_places(missing)
    shown = sum(bool(task.demonstrations) for task in tasks)
    if shown:
        yield "demonstrations", _share(layout.demonstrations or layout.messages or layout.text, shown, total)
    pictured = sum(bool(task.images) for task in tasks)
    if pictured:
        yield "images", _share(layout.images, pictured, total)
    if layout.chosen:
        yield "preferences", f"{layout.chosen} over {layout.rejected}"
    if layout.rating:
        yield "rated", f"{layout.completion} by {layout.rating}"
    domains = {task.domain for task in tasks} - {""}
    if domains:
        values = _count(len(domains), "value")
        yield "domain", f"{layout.domain} ({values})" if layout.domain else values
    if layout != Layout():
        yield "key", keys_from or "hash of prompt and answer"
        taken = {layout.answer, layout.demonstrations, layout.chosen, layout.rejected, layout.completion}
        taken |= {layout.rating, layout.domain, layout.images, keys_from}
        others = dict.fromkeys(c for task in tasks for c in task.fields if c not in taken)
        if others:
            yield "other fields", ", ".join(others)


def _share(column: str | None, count: int, total: int) -> str:
    given = "all" if count == total else f"{count:,} of {total:,}"
    return f"{column} ({given})" if column else given


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _runs_together(task: Task) -> bool:
    """Whether a text prompt and its demonstration would run together into one word."""
    return isinstance(task.prompt, str) and any(
        task.prompt[-1:].isalnum() and demonstration[:1].isalnum() for demonstration in task.demonstrations
    )
