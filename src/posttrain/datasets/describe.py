"""What was found in a data set, in a few lines for the terminal."""

from collections.abc import Iterable, Sequence

from posttrain.datasets.layout import Layout
from posttrain.datasets.values import shorten
from posttrain.types import Task


def describe(name: str, tasks: Sequence[Task], layout: Layout | None = None, keys_from: str | None = None) -> str:
    """The number of tasks, what each column was taken for and how often it is there, and the first prompt."""
    lines = [f"{name}: {_count(len(tasks), 'task')}"]
    lines += [f"  {meaning:<15}{found}" for meaning, found in _meanings(tasks, layout, keys_from)]
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


def _meanings(tasks: Sequence[Task], layout: Layout | None, keys_from: str | None) -> Iterable[tuple[str, str]]:
    """What was found, and in which column."""
    layout = layout or Layout()
    total = len(tasks)
    asked = [c for c in (layout.prompt, layout.context, layout.messages) if c] or ["shared beginning"]
    if layout.text is None and layout != Layout():
        yield "prompt", f"{' + '.join(asked)} ({'chat' if not isinstance(tasks[0].prompt, str) else 'text'})"
    answers = sum(task.answer is not None for task in tasks)
    if answers:
        yield "answer", _share(layout.answer, answers, total)
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
    """Whether a text prompt and its demonstration would be one word when put together."""
    return isinstance(task.prompt, str) and any(
        task.prompt[-1:].isalnum() and demonstration[:1].isalnum() for demonstration in task.demonstrations
    )
