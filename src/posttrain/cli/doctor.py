"""Check this machine: Python, torch, memory, disk, GPU, extras, and whether the bundled model runs.

Every line has a status (ok, warn or fail), the finding, and advice. The exit code is 1 if a check failed.

    posttrain doctor
    posttrain doctor --json
"""

from dataclasses import asdict

import click

from posttrain.cli._output import print_json, reading_verb

COLORS = {"ok": "green", "warn": "yellow", "fail": "red"}


@reading_verb
def command(as_json: bool) -> None:
    """Runs the checks and prints each result."""
    from posttrain.cli._machine import checks

    found = []
    for check in checks():
        found.append(check)
        if not as_json:
            status = click.style(f"{check.status:<4}", fg=COLORS[check.status])
            click.echo(f"{status}  {check.name:<13}  {check.found}{f'; {check.advice}' if check.advice else ''}")
    failed = any(check.status == "fail" for check in found)
    if as_json:
        print_json({"ok": not failed, "checks": [asdict(check) for check in found]})
    click.get_current_context().exit(int(failed))
