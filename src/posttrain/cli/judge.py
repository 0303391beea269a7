"""Score the answers of a file by a judge, its models included; nothing is trained.

JUDGE is a reward, with its models as --model; a YAML file with reward and models; a run or a folder with a reward head;
the address of an endpoint; or planted:FAULT, a simulated one. FILE has rows with prompt, chosen and rejected, which are
compared in both orders, or with prompt and completion, which are scored as they are by posttrain score. A principle
stands at the end of each prompt. With a store nothing is asked twice, in this command and in later ones.

    posttrain judge reward_model answers.jsonl --model runs/reward-1
    posttrain judge likelihood pairs.jsonl --model SmolLM2-135M-Instruct --store verdicts.db
    posttrain judge http://127.0.0.1:8000/v1 answers.jsonl --principle short.md --out scored.jsonl
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from posttrain.cli._completion import role_models
from posttrain.cli._output import print_json, print_table, trusting, verb
from posttrain.errors.foreign import printable

if TYPE_CHECKING:
    from posttrain.cli._judge import Opened
    from posttrain.types import Task

SHOWN = 20


@verb
@trusting
@click.argument("judge")
@click.argument("file")
@click.argument("settings", nargs=-1, metavar="[NAME=VALUE]...")
@role_models("A model of the reward.")
@click.option("--principle", type=click.Path(path_type=Path, dir_okay=False), help="A file with what makes one better.")
@click.option("--store", type=click.Path(path_type=Path, dir_okay=False), help="A file that keeps verdicts on pairs.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="A file for all scores, FILE.jsonl.")
@click.option("--device", default="auto", show_default=True, type=click.Choice(["auto", "cpu", "cuda"]))
def command(
    judge: str,
    file: str,
    settings: tuple[str, ...],
    models: tuple[str, ...],
    principle: Path | None,
    store: Path | None,
    out: Path | None,
    device: str,
    as_json: bool,
) -> None:
    """Opens the judge, reads the rows, scores or compares, prints."""
    from posttrain.cli._judge import open_judge, principled, show_endpoints, tasks_of
    from posttrain.errors import UserError

    if out is not None and (out.suffix != ".jsonl" or not out.absolute().parent.is_dir()):
        raise UserError(f"--out {out}: scores are written as JSON lines; name a file FILE.jsonl in a folder there is")
    tasks = principled(tasks_of(file), principle)
    opened = open_judge(judge, settings, models, device)
    if any(task.preferences for task in tasks):
        found = _compared(opened, tasks, store)
    elif store is None:
        found = _scored(opened, tasks)
    else:
        raise UserError("--store keeps verdicts on pairs; this file has none, so leave --store out")
    endpoints = show_endpoints(opened)
    if out is not None:
        out.write_text("".join(json.dumps(row) + "\n" for row in found["rows"]), encoding="utf-8")
    if as_json:
        print_json({"judge": judge, **found, **({"endpoints": endpoints} if endpoints else {})})
        return
    columns = [name for name in found["rows"][0] if name != "task"]
    print_table(columns, [[_cell(row[name]) for name in columns] for row in found["rows"][:SHOWN]])
    if len(found["rows"]) > SHOWN:
        click.echo(f"... and {len(found['rows']) - SHOWN} more; --out FILE.jsonl writes all")
    click.echo("; ".join(f"{name} {_cell(value)}" for name, value in found.items() if name != "rows"))


def _compared(opened: "Opened", tasks: "Sequence[Task]", store: Path | None) -> dict[str, Any]:
    """Verdicts on the pairs of tasks, in both orders."""
    from posttrain.audit.judges import gold_pairs
    from posttrain.audit.judges.measures import accuracy, ask
    from posttrain.cli._judge import kept

    judge, cache = kept(opened, store)
    asked = ask(judge, gold_pairs(tasks))
    rows = [
        {
            "task": one.pair.task.key,
            "chosen": one.pair.chosen,
            "rejected": one.pair.rejected,
            "margin": one.first.margin,
            "margin_swapped": None if one.second.margin is None else -one.second.margin,
            "win": one.win,
            "fault": one.first.fault or one.second.fault,
        }
        for one in asked
    ]
    found = accuracy(asked)
    found_anew = {} if cache is None else {"asked": cache.asked}
    share = None if math.isnan(found.value) else found.value
    return {"pairs": len(rows), "accuracy": share, "low": found.low, "high": found.high, **found_anew, "rows": rows}


def _scored(opened: "Opened", tasks: "Sequence[Task]") -> dict[str, Any]:
    """Scores of the completions of tasks; those of a task are one group."""
    from posttrain.errors import UserError

    rows: list[dict[str, Any]] = []
    values: list[float] = []
    for task in tasks:
        texts = [*task.demonstrations, *(rated.completion for rated in task.rated)]
        for text, score in zip(texts, opened.scorer.scores(task, texts) if texts else (), strict=True):
            value = score.value if math.isfinite(score.value) else None
            values += [] if value is None else [value]
            rows.append(
                {
                    "task": task.key,
                    "completion": text,
                    "value": value,
                    "status": score.status,
                    "explanation": score.explanation,
                }
            )
    if not rows:
        raise UserError("no row has a completion or a pair; give the file a column completion, or chosen and rejected")
    errors = sum(row["status"] == "error" for row in rows)
    mean = sum(values) / len(values) if values else None
    return {"completions": len(rows), "mean": mean, "errors": errors, "rows": rows}


def _cell(value: Any) -> str:
    """A value in one line of at most 40 characters."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    line = printable(" ".join(str(value).split()))
    return line if len(line) <= 40 else f"{line[:37]}..."
