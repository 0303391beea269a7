"""Audit a reward before training with it: are only correct completions rewarded?

REWARD is written as in a recipe: a kind of `posttrain list reward`, file.py:name, or {kind: ..., settings}. Then come
tasks=... and the reward's settings as name=value. Without tasks a few bundled ones are used.

    posttrain audit match
    posttrain audit ./mine.py:score tasks=mine.jsonl
    posttrain audit match tasks=mine.jsonl --attack 2000
    posttrain audit match tasks=mine.jsonl --attack 2000 --finds finds.jsonl
    posttrain audit format --about form --form '<think>so</think><answer>{answer}</answer>'

With --finds the finds of an attack are added to a file, with their rewards, and those in it are probes of every later
audit.

With --judge a judge is audited instead, on gold pairs: rows with prompt, chosen, rejected, and where they are known
strength, category, principle, writer_chosen and writer_rejected. JUDGE is what posttrain judge takes; planted:FAULT, a
simulated one, needs no gold. The effects of order, length and own style are fitted beside that of the label, keys and
instructions are tried on it, and judge.html shows all.

    posttrain audit --judge likelihood --model SmolLM2-135M-Instruct --gold gold.jsonl
    posttrain audit --judge planted:longer

Exit codes: 0 nothing found, 1 something found, 2 the input is wrong.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from posttrain.cli._completion import role_models
from posttrain.cli._output import print_json, print_table, trusting, verb
from posttrain.errors.foreign import printable

if TYPE_CHECKING:
    from posttrain.audit.auditing import Finding, Report, Settings
    from posttrain.audit.judges.auditing import JudgeReport
    from posttrain.components.rewards import Reward
    from posttrain.types import Task

SHOWN = 40


@verb
@trusting
@click.argument("reward", required=False)
@click.argument("settings", nargs=-1, metavar="[tasks=TASKS] [NAME=VALUE]...")
@click.option("--form", default="{answer}", show_default=True, help="The form of a completion with an answer.")
@click.option("--about", default="answer", show_default=True, type=click.Choice(["answer", "form"]))
@click.option("--skip", default="", metavar="KIND,...", help="Kinds of probes to leave out.")
@click.option("--limit", default=5.0, show_default=True, help="Seconds of processor time for one score.")
@click.option(
    "--attack",
    default=0,
    metavar="N",
    type=click.IntRange(0, 1_000_000),
    help="Search for rewarded completions that are not correct, by N edits of answers, prompts and nothing.",
)
@click.option(
    "--finds",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Finds of attacks (JSON lines): earlier ones are tried again as probes, new ones are added.",
)
@click.option("--oracle", help="For --attack: the reward that decides what is correct. [default: the reference alone]")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="For --attack: which edits.")
@click.option("--judge", help="Audit a judge on gold pairs.")
@click.option("--gold", metavar="TASKS", help="For --judge: its gold pairs.")
@role_models("For --judge: its model.")
@click.option("--writer", default="", help="For --judge: the name of its own model among the writers.")
@click.option(
    "--keys", default=40, show_default=True, type=click.IntRange(0), help="For --judge: pairs that keys meet."
)
@click.option("--store", type=click.Path(path_type=Path, dir_okay=False), help="For --judge: keeps verdicts.")
@click.option(
    "--page",
    default="judge.html",
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="For --judge: the page that is written.",
)
def command(
    reward: str | None,
    settings: tuple[str, ...],
    form: str,
    about: str,
    skip: str,
    limit: float,
    attack: int,
    finds: Path | None,
    oracle: str | None,
    seed: int,
    judge: str | None,
    gold: str | None,
    models: tuple[str, ...],
    writer: str,
    keys: int,
    store: Path | None,
    page: Path,
    as_json: bool,
) -> None:
    """Makes the reward, scores the probes, prints the findings."""
    if judge is not None:
        words = [*([reward] if reward else []), *settings]
        _judge(judge, gold, words, models, writer=writer, keys=keys, store=store, page=page, as_json=as_json)
        return
    if reward is None:
        raise click.UsageError("Missing argument 'REWARD'.")
    if gold is not None or models:
        raise click.UsageError("--gold and --model are for --judge JUDGE; write that, or leave them out.")
    _reward(reward, settings, form, about, skip, limit, attack, finds, oracle, seed, as_json)


def _reward(
    reward: str,
    settings: tuple[str, ...],
    form: str,
    about: str,
    skip: str,
    limit: float,
    attack: int,
    finds: Path | None,
    oracle: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Audits a reward that uses no model."""
    from posttrain.audit.auditing import Settings, audit
    from posttrain.audit.samples import sample_tasks
    from posttrain.cli._component import made_reward
    from posttrain.recipes.overrides import parse_value

    given = [setting.removeprefix("tasks=") for setting in settings if setting.startswith("tasks=")]
    made = made_reward(reward, [setting for setting in settings if not setting.startswith("tasks=")])
    tasks = sample_tasks(made.kind, parse_value(given[-1]) if given else None)
    skipped = [kind for kind in skip.split(",") if kind]
    chosen = Settings(form=form, about=about, skip=skipped, cpu_seconds=limit)  # type: ignore[arg-type]
    report = audit(made, tasks, chosen)
    decides = made_reward(oracle, []) if oracle else None
    for kind, findings, counts in _searched(made, tasks, chosen, attack, finds, decides, seed):
        report = report.with_findings(kind, findings, counts)
    if as_json:
        print_json({"reward": reward, "tasks": len(tasks), **report.as_json()})
    else:
        _show(report, oracle)
    if not report.clean:
        raise click.exceptions.Exit(1)


def _searched(
    reward: "Reward",
    tasks: "Sequence[Task]",
    chosen: "Settings",
    attack: int,
    path: Path | None,
    oracle: "Reward | None",
    seed: int,
) -> "Iterator[tuple[str, list[Finding], dict[str, float]]]":
    """Findings and counts of earlier finds, and of an attack whose finds are added to the file."""
    from posttrain.audit.attack import counts_of, searched, tried_again
    from posttrain.audit.auditing import finding_of

    known = _read_finds(path) if path is not None else {}
    if path is not None and known:
        again = tried_again(reward, tasks, chosen, known)
        rewarded = [item for item in again if item.score.status == "ok"]
        yield "finds", [finding_of("false positive", one, one.score.explanation) for one in rewarded], counts_of(again)
    if not attack:
        return
    everything, found = searched(reward, tasks, chosen, budget=attack, seed=seed, oracle=oracle)
    yield "attack", [finding_of("false positive", one, one.score.explanation) for one in found], counts_of(everything)
    if path is not None:
        new = [one for one in found if one.probe.text not in known.get(one.task.key, ())]
        with path.open("a", encoding="utf-8") as file:
            for one in new:
                file.write(json.dumps({"task": one.task.key, "text": one.probe.text, "value": one.score.value}) + "\n")


def _read_finds(path: Path) -> dict[str, list[str]]:
    """Texts by the key of their task; none without a file. Raises `UserError` for lines that are no finds."""
    from posttrain.errors import UserError
    from posttrain.errors.foreign import guard, parse_json, read_text

    if not path.exists():
        if not path.absolute().parent.is_dir():
            raise UserError(
                f"no folder {path.parent} to write {path.name} into; make it first, or give another --finds"
            )
        return {}
    found: dict[str, list[str]] = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        with guard(f"{path}:{number} is no JSON"):
            entry = parse_json(line)
        if not isinstance(entry, dict) or not all(isinstance(entry.get(name), str) for name in ("task", "text")):
            raise UserError(f"{path}:{number} is no find: an object with task and text")
        found.setdefault(entry["task"], []).append(entry["text"])
    return found


def _show(report: "Report", oracle: str | None) -> None:
    rows = [
        (kind, f"{n['probes']:g}", f"{n['rewarded']:g}", f"{n['errors']:g}", f"{n['slowest']:.3f}")
        for kind, n in report.kinds.items()
    ]
    print_table(("probes", "tried", "rewarded", "errors", "slowest, s"), rows)
    click.echo("")
    for finding in report.findings[:SHOWN]:
        click.echo(
            f"{finding.fault}: {finding.kind}, {finding.probe}, task {finding.task}: {printable(finding.completion)}"
        )
        value = [] if finding.value is None else [f"value {finding.value:g}"]
        explained = [printable(finding.explanation)] if finding.explanation else []
        click.echo(f"    {'; '.join([*value, *explained])}")
    if len(report.findings) > SHOWN:
        click.echo(f"... and {len(report.findings) - SHOWN} more; --json prints all")
    tried = sum(int(n["probes"]) for n in report.kinds.values())
    count = len(report.findings)
    click.echo(f"{tried} probes, {count or 'no'} finding{'s' * (count != 1)}")
    if oracle is None and any(finding.kind == "attack" for finding in report.findings):
        click.echo(
            "finds of --attack are texts whose last line, tag or box is more than the reference: read them, or give "
            "the reward that decides as --oracle"
        )


def _judge(
    judge: str,
    gold: str | None,
    settings: list[str],
    models: tuple[str, ...],
    *,
    writer: str,
    keys: int,
    store: Path | None,
    page: Path,
    as_json: bool,
) -> None:
    """Audits a judge, prints its figures, writes the page."""
    from posttrain.audit.judges import gold_pairs
    from posttrain.audit.judges.auditing import audit_judge
    from posttrain.audit.judges.planted import gold as generated
    from posttrain.cli._judge import PLANTED, kept, open_judge, show_endpoints, tasks_of
    from posttrain.errors import UserError
    from posttrain.runs.judge_page import judge_page

    if gold is None and not judge.startswith(PLANTED):
        raise UserError("an audit of a judge needs pairs of which one is known to be better; give them as --gold FILE")
    if not page.absolute().parent.is_dir():
        raise UserError(f"no folder {page.parent} to write {page.name} into; make it first, or give another --page")
    pairs = gold_pairs(generated(67, 0, contrasted=60), "own") if gold is None else gold_pairs(tasks_of(gold), writer)
    opened = open_judge(judge, settings, models)
    report = audit_judge(kept(opened, store)[0], pairs, attacked=keys)
    show_endpoints(opened)
    page.write_text(judge_page(report.as_json()), encoding="utf-8")
    if as_json:
        print_json({**report.as_json(), "page": str(page)})
    else:
        _show_judge(report, page)
    if not report.clean:
        raise click.exceptions.Exit(1)


def _show_judge(report: "JudgeReport", page: Path) -> None:
    figures = report.figures
    accuracy = figures["accuracy"]
    click.echo(
        f"{printable(report.judge)}: {report.pairs} pairs in both orders; accuracy {accuracy['value']:.3f} "
        f"[{accuracy['low']:.3f}, {accuracy['high']:.3f}], in both orders {figures['strict']['value']:.3f}, flips "
        f"{figures['flips']['value']:.3f}, ties {figures['ties']:.3f}, unreadable {figures['unreadable']:.3f}"
    )
    rows = [
        (name, f"{row['value']:+.2f}", f"[{row['low']:+.2f}, {row['high']:+.2f}]", f"{row['p']:.2g}", row["verdict"])
        for name, row in report.effects.items()
    ]
    print_table(("effect", "nats", "95 %", "p (Holm)", ""), rows)
    if report.attacks:
        worst = max(report.attacks, key=lambda one: one.alone)
        click.echo(f"worst key alone: {worst.key!r} outranks {worst.alone:.0%} of {worst.pairs} right answers")
    for fault in report.faults:
        click.echo(f"{fault.fault}: {printable(fault.words)}")
    click.echo(f"{len(report.faults) or 'no'} fault{'s' * (len(report.faults) != 1)}; {page}")
