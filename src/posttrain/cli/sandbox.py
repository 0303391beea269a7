"""Attack and time the sandbox for model-written programs on this machine.

Without an ACTION: which tier this machine has, what that tier does not protect, and why no stronger one is available.
``attack`` runs every bundled hostile program (exit code 1 if one is not contained), as a started job and, where warm
Python jobs are forked, as a forked one. ``bench`` compares its time with a plain subprocess. ``--tier`` takes another
tier than the strongest; ``--write FILE`` writes the result for docs/trust.md.

    posttrain sandbox
    posttrain sandbox attack
    posttrain sandbox bench --tier namespaces
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from posttrain.cli._output import print_json, print_table, verb

STARTED, FORKED = "started", "forked"
"""How a job starts: as a new program, or forked from a waiting interpreter."""
_NONE: dict[str, Any] = {"columns": ["attack", "", "against"], "rows": []}


@verb
@click.argument("action", type=click.Choice(["show", "attack", "bench"]), default="show")
@click.option("--tier", type=click.Choice(["cgroup", "namespaces", "landlock", "none"]), help="Default: the strongest.")
@click.option("--only", multiple=True, metavar="NAME", help="One attack; repeatable.")
@click.option("--runs", default=100, show_default=True, type=click.IntRange(1), help="Programs to time.")
@click.option("--write", type=click.Path(dir_okay=False, path_type=Path), help="Write the result to a JSON file.")
def command(action: str, tier: Any, only: tuple[str, ...], runs: int, write: Path | None, as_json: bool) -> None:
    """Prints the tier, attacks it, or times it."""
    from posttrain.sandbox import find_tier

    if action == "show":
        found = find_tier()
        if as_json:
            print_json(found.record())
            return
        click.echo(found.sentence)
        for stronger, reason in found.why_not.items():
            click.echo(f"no tier '{stronger}': {reason}")
        if found.why_no_forks:
            click.echo(f"warm Python jobs are started, not forked: {found.why_no_forks}")
        return
    tier = tier or find_tier().tier
    rows = _attack(tier, only) if action == "attack" else _bench(tier, runs)
    if write is not None:
        _keep(write, action, tier, rows)
    if as_json:
        print_json({"tier": tier, "rows": rows})
    else:
        click.echo(f"tier '{tier}'")
        print_table(list(rows[0]), [[str(value) for value in row.values()] for row in rows])
    held = all(row.get("verdict", "contained") != "broken" and not row.get("breaks a promise") for row in rows)
    click.get_current_context().exit(int(not held))


def _attack(tier: Any, only: tuple[str, ...]) -> list[dict[str, Any]]:
    """Runs the attacks; one that escapes breaks a promise only where the tier makes it."""
    from posttrain.component import nearest
    from posttrain.errors import RunFailed, UserError
    from posttrain.sandbox import attacks
    from posttrain.sandbox.pool import Pool
    from posttrain.sandbox.tiers import NOT_HELD, obstacle

    known = {attack.name: attack for attack in attacks.all_attacks()}
    for name in only:
        if name not in known:
            raise UserError(f"there is no attack '{name}'; {nearest(name, known)}")
    if reason := obstacle(tier):
        raise RunFailed(f"tier '{tier}' is not available here: {reason}")
    pool = Pool(tier, 1)
    try:
        chosen = [known[name] for name in only or known]
        ways = [(STARTED, False), *([(FORKED, True)] if pool.forks else [])]
        findings = [(way, finding) for way, warm in ways for finding in attacks.run(pool, chosen, warm=warm)]
    finally:
        pool.close()
    return [
        {**asdict(f), "way": way, "breaks a promise": f.verdict == "escaped" and f.promise not in NOT_HELD[tier]}
        for way, f in findings
    ]


def _keep(path: Path, action: str, tier: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes a part of docs/trust.md. Attacks on several tiers are columns of one table, in the order of the runs."""
    part: dict[str, Any] = {"command": f"posttrain sandbox {action} --tier TIER --write {path}"}
    if action == "bench":
        table = {"caption": f"Tier {tier}.", "columns": list(rows[0]), "rows": [list(row.values()) for row in rows]}
        path.write_text(json.dumps({"title": "The sandbox, timed", **part, "tables": [table]}, indent=1) + "\n")
        return
    from posttrain.sandbox.attacks import all_attacks

    old = json.loads(path.read_text())["tables"][0] if path.exists() else _NONE
    results = {row[0]: dict(zip(old["columns"], row, strict=True)) for row in old["rows"]}
    for row in rows:
        result = row["verdict"] if row["outcome"] == "ok" else f"{row['verdict']} ({row['outcome']})"
        earlier = results.get(row["attack"], {})
        column = tier if row["way"] == STARTED else f"{tier}, {FORKED}"
        results[row["attack"]] = earlier | {"attack": row["attack"], "against": row["promise"], column: result}
    any_forked = any(row["way"] == FORKED for row in rows)
    summaries = {attack.name: attack.summary for attack in all_attacks()}
    columns = list(dict.fromkeys([*old["columns"], tier, *([f"{tier}, {FORKED}"] * any_forked)]))
    body = [[({"": summaries[name]} | row).get(column) for column in columns] for name, row in sorted(results.items())]
    table = {"columns": columns, "rows": body}
    path.write_text(json.dumps({"title": "The sandbox, attacked", **part, "tables": [table]}, indent=1) + "\n")


def _bench(tier: Any, runs: int) -> list[dict[str, Any]]:
    from posttrain.sandbox.bench import measure

    return measure(tier, runs)
