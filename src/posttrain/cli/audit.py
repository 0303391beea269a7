"""Audit a reward before training with it: are only correct completions rewarded?

REWARD is written as in a recipe: a kind of `posttrain list reward`, file.py:name, or {kind: ..., settings}. Then come
tasks=... and the reward's settings as name=value. Without tasks a few bundled ones are used.

    posttrain audit match
    posttrain audit ./mine.py:score tasks=mine.jsonl
    posttrain audit match tasks=mine.jsonl --attack 2000
    posttrain audit format --about form --form '<think>so</think><answer>{answer}</answer>'

Exit codes: 0 nothing found, 1 something found, 2 the input is wrong.
"""

from typing import TYPE_CHECKING, Any

import click

from posttrain.cli._output import print_json, print_table, trusting, verb
from posttrain.errors.foreign import printable

if TYPE_CHECKING:
    from posttrain.audit.auditing import Report
    from posttrain.components.rewards import Reward

SHOWN = 40


@verb
@trusting
@click.argument("reward")
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
@click.option("--oracle", help="For --attack: the reward that decides what is correct. [default: the reference alone]")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="For --attack: which edits.")
def command(
    reward: str,
    settings: tuple[str, ...],
    form: str,
    about: str,
    skip: str,
    limit: float,
    attack: int,
    oracle: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Makes the reward, scores the probes, prints the findings."""
    from posttrain.audit.auditing import Settings, audit
    from posttrain.audit.samples import sample_tasks
    from posttrain.recipes.overrides import parse_value

    given = [setting.removeprefix("tasks=") for setting in settings if setting.startswith("tasks=")]
    made = made_reward(reward, [setting for setting in settings if not setting.startswith("tasks=")])
    tasks = sample_tasks(made.kind, parse_value(given[-1]) if given else None)
    skipped = [kind for kind in skip.split(",") if kind]
    chosen = Settings(form=form, about=about, skip=skipped, cpu_seconds=limit)  # type: ignore[arg-type]
    report = audit(made, tasks, chosen)
    if attack:
        from posttrain.audit.attack import attacked

        decides = made_reward(oracle, []) if oracle else None
        report = report.with_findings(
            "attack", *attacked(made, tasks, chosen, budget=attack, seed=seed, oracle=decides)
        )
    if as_json:
        print_json({"reward": reward, "tasks": len(tasks), **report.as_json()})
    else:
        _show(report)
    if not report.clean:
        raise click.exceptions.Exit(1)


def made_reward(text: str, settings: list[str]) -> "Reward":
    """The reward. Raises `UserError`."""
    from posttrain.cli._component import component
    from posttrain.components.rewards import Reward
    from posttrain.recipes.overrides import parse_value

    value: Any = parse_value(text)
    if isinstance(value, str):
        value = Reward.from_text(value)
    if not isinstance(value, dict) or "kind" not in value:
        from posttrain.errors import UserError

        raise UserError(f"'{text}' is not a reward; write a kind, file.py:name, or {{kind: ..., settings}}")
    fixed = {name: item for name, item in value.items() if name != "kind"}
    return component(Reward, str(value["kind"]), settings, fixed)


def _show(report: "Report") -> None:
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
        click.echo(
            f"    {'' if finding.value is None else f'value {finding.value:g}; '}{printable(finding.explanation)}"
        )
    if len(report.findings) > SHOWN:
        click.echo(f"... and {len(report.findings) - SHOWN} more; --json prints all")
    tried = sum(int(n["probes"]) for n in report.kinds.values())
    click.echo(f"{tried} probes, {len(report.findings) or 'no'} findings")
