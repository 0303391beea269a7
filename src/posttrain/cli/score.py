"""Score the completions of a file by a reward; nothing is trained.

REWARD is written as in a recipe: a kind of `posttrain list reward`, file.py:name, or {kind: ..., settings}; its
settings follow as name=value. FILE is read as tasks=FILE would be, and needs a column of completions beside those of
the task (prompt, answer, ...). The completions of a row are one group.

    posttrain score match answers.jsonl
    posttrain score ./mine.py:score answers.jsonl --out scored.jsonl
    posttrain score gated answers.jsonl gate=format reward=match
    posttrain score comet answers.jsonl --model FOLDER
"""

import json
import math
from pathlib import Path
from typing import Any

import click

from posttrain.cli._completion import role_models
from posttrain.cli._output import print_json, print_table, trusting, verb
from posttrain.errors.foreign import printable

SHOWN = 20


@verb
@trusting
@click.argument("reward")
@click.argument("file")
@click.argument("settings", nargs=-1, metavar="[NAME=VALUE]...")
@role_models("A model that the reward scores with.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="A file for all scores, FILE.jsonl.")
def command(
    reward: str, file: str, settings: tuple[str, ...], models: tuple[str, ...], out: Path | None, as_json: bool
) -> None:
    """Reads the rows, scores them, prints the scores."""
    from pydantic import TypeAdapter

    from posttrain.cli._component import made_reward
    from posttrain.cli._judge import open_judge
    from posttrain.components.tasks import Tasks
    from posttrain.errors import UserError
    from posttrain.errors.places import naming
    from posttrain.evaluation.completions import score_completions
    from posttrain.recipes.overrides import parse_value

    if out is not None and (out.suffix != ".jsonl" or not out.absolute().parent.is_dir()):
        raise UserError(
            f"--out {out}: scores are written as JSON lines; name a file FILE.jsonl in a folder that exists"
        )
    source = TypeAdapter(Tasks).validate_python(parse_value(file))
    with naming(source.place):
        judge = open_judge(reward, settings, models).scorer if models else None
        with_models = judge.reward if judge is not None else made_reward(reward, list(settings))
        found = score_completions(with_models, source.load(), judge.scores if judge is not None else None)
    rows: list[dict[str, Any]] = [
        {
            "task": item.task.key,
            "completion": item.completion,
            "value": item.score.value if math.isfinite(item.score.value) else None,
            "status": item.score.status,
            "answer": item.score.answer,
            "explanation": item.score.explanation,
            "parts": {n: p.value if math.isfinite(p.value) else None for n, p in item.score.parts.items()},
        }
        for item in found
    ]
    if out is not None:
        out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    values = [row["value"] for row in rows if row["value"] is not None]
    counts = {status: sum(row["status"] == status for row in rows) for status in ("ok", "wrong", "error")}
    mean = sum(values) / len(values) if values else None
    if as_json:
        print_json({"reward": reward, "completions": len(rows), "mean": mean, **counts, "scores": rows})
        return
    shown = [
        (row["status"], "" if row["value"] is None else f"{row['value']:g}", _short(row["completion"]), _short(why))
        for row in rows[:SHOWN]
        for why in (row["explanation"],)
    ]
    print_table(("status", "value", "completion", "why"), shown)
    if len(rows) > SHOWN:
        click.echo(f"... and {len(rows) - SHOWN} more; --out FILE.jsonl writes all")
    average = "" if mean is None else f"; mean value {mean:.4g}"
    click.echo(f"{len(rows)} completions: {', '.join(f'{n} {status}' for status, n in counts.items())}{average}")


def _short(text: str) -> str:
    """A text in one line of at most 50 characters."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= 50 else f"{line[:47]}..."
