"""Write generated tasks into a file that tasks=FILE reads, and print what a reward gives to probes of them.

KIND is a kind of `posttrain list tasks`; its settings follow as name=value. to=FILE.jsonl is the file; without it
nothing is written and the first tasks are printed. A reward scores probes of three tasks (the reference, nothing, near
misses, cheats, ...), as `posttrain audit` does, and the mean value of each kind of probe is printed: reward=REWARD, or
else, with a file, the reward that this kind is for, where one needs neither a model nor a sandbox; reward=none is none.

    posttrain tasks arithmetic size=500 'terms=[3, 4]' to=sums.jsonl
    posttrain tasks repairs size=500 level=3 to=repairs.jsonl
    posttrain tasks tool_calls size=500 to=calls.jsonl reward=calls --form '<call>{answer}</call>'
    posttrain run grpo tasks=sums.jsonl
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from posttrain.cli._output import print_json, print_table, trusting, verb

if TYPE_CHECKING:
    from posttrain.types import Task

SHOWN = 3


@verb
@trusting
@click.argument("kind")
@click.argument("settings", nargs=-1, metavar="[to=FILE.jsonl] [reward=REWARD] [NAME=VALUE]...")
@click.option("--form", default="{answer}", show_default=True, help="The form of a completion with an answer.")
def command(kind: str, settings: tuple[str, ...], form: str, as_json: bool) -> None:
    """Makes the tasks, writes and probes them."""
    from posttrain.audit.samples import COUNT, SCORED_BY
    from posttrain.cli._component import component
    from posttrain.components.tasks import Tasks

    own = [text for text in settings if not text.startswith(("to=", "reward="))]
    to = next((text.removeprefix("to=") for text in settings if text.startswith("to=")), None)
    reward = next((text.removeprefix("reward=") for text in settings if text.startswith("reward=")), None)
    source = component(Tasks, kind, own)
    tasks = source.load()
    written = _write(Path(to), tasks) if to is not None else None
    if reward is None and to is not None:
        reward = SCORED_BY.get(kind)
    probed = _probed(reward, tasks, form) if reward and reward != "none" else None
    if as_json:
        print_json({"kind": kind, "tasks": len(tasks), "file": written, "probes": probed})
        return
    click.echo(source.describe())
    if written is None:
        for task in tasks[:SHOWN]:
            click.echo(json.dumps(row_of(task), ensure_ascii=False))
    else:
        click.echo(f"{written}: {len(tasks)} rows")
    if probed is not None:
        rows = [
            (name, f"{n['probes']:g}", f"{n['rewarded']:g}", f"{n['errors']:g}", f"{n['mean']:.3g}")
            for name, n in probed.items()
        ]
        click.echo(f"probes of {COUNT} tasks by the reward {reward}:")
        print_table(("probes", "tried", "rewarded", "errors", "mean value"), rows)


def row_of(task: "Task") -> dict[str, Any]:
    """A task as a row of a file that is read as the same task."""
    row: dict[str, Any] = {"prompt": task.prompt, "answer": task.answer, "domain": task.domain or None}
    if len(task.demonstrations) == 1:
        row["completion"] = task.demonstrations[0]
    elif task.demonstrations:
        row["completions"] = list(task.demonstrations)
    return {name: value for name, value in row.items() if value is not None} | dict(task.fields)


def _write(path: Path, tasks: "Any") -> str:
    from posttrain.errors import UserError

    if path.suffix != ".jsonl" or not path.absolute().parent.is_dir():
        raise UserError(f"to={path}: rows are written as JSON lines; name a file FILE.jsonl in a folder that exists")
    lost = {what for task in tasks for what in ("images", "episodes", "preferences", "rated") if getattr(task, what)}
    if lost:
        raise UserError(
            f"these tasks have {', '.join(sorted(lost))}, which this file cannot hold; name the kind in the recipe"
        )
    path.write_text("".join(json.dumps(row_of(task), ensure_ascii=False) + "\n" for task in tasks), encoding="utf-8")
    return str(path)


def _probed(reward: str, tasks: "Any", form: str) -> Any:
    """By kind of probe, counts and the mean value."""
    from posttrain.audit.auditing import Settings, audit
    from posttrain.audit.samples import COUNT
    from posttrain.cli._component import made_reward

    made = made_reward(reward, [])
    return dict(audit(made, list(tasks)[:COUNT], Settings(form=form)).kinds)
