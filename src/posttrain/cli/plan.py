"""Plan a budget for annotation, or how a step is executed on several processes or many GPUs.

With cluster=ray: seconds of a step by phase, idle shares and memory of each kind of process, and up to three faster
placements with as many processes, from short runs on this machine.

With budget=: how many demonstrations and preference pairs it buys, share by share.

budget= has one budget or several with commas, costs= the cost of a demonstration and of a pair, shares= the shares of
the budget for demonstrations. --grid trains RECIPE (sft_dpo, or one with an sft and a preference stage) on every
split, each from the initial model, and prints accuracy by share; finished runs are not repeated. Other path=value
pairs are changes to the recipe. Where code makes the tasks and none are named, as many are made as the largest split
needs.

    posttrain plan budget=2000 costs=1:3
    posttrain plan budget=100,400,1600 shares=0,0.1,0.25,0.5,0.75,1 --grid --seeds 2
    posttrain plan budget=2000 costs=1:3 --grid
    posttrain plan sft_dpo budget=500 tasks=mine.jsonl model=FOLDER --grid
    posttrain plan ppo model=FOLDER gpus=16:h100 prompt=512
    posttrain plan grpo model=FOLDER cluster=ray cluster.samplers=8 gpus=16:h100
    posttrain plan grpo cluster=ray cluster.samplers=2 cluster.learners=2 learner.micro_batch_tokens=256
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from posttrain.cli._completion import complete_recipe
from posttrain.cli._output import print_json, print_table, trusting, verb


@verb
@trusting
@click.argument("words", nargs=-1, required=True, metavar="[RECIPE] NAME=VALUE...", shell_complete=complete_recipe)
@click.option("--grid", "runs", is_flag=True, help="Train on every split.")
@click.option("--seeds", default=1, show_default=True, type=click.IntRange(min=1), help="Runs of each split.")
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(min=1), help="Runs at the same time.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder of the runs.")
def command(words: tuple[str, ...], runs: bool, seeds: int, jobs: int, out: Path | None, as_json: bool) -> None:
    """Splits the budgets, and with --grid trains on each split; or places calls."""
    from posttrain.errors import UserError
    from posttrain.recipes import budgets
    from posttrain.recipes.files import find_recipe

    named = [word for word in words if "=" not in word]
    given = {word.partition("=")[0]: word.partition("=")[2] for word in words if "=" in word}
    if "gpus" in given and "budget" not in given:
        _place(named, given, as_json)
        return
    if "cluster" in given and "budget" not in given:
        _forecast(named, given, as_json)
        return
    if "budget" not in given:
        raise UserError("there is no budget; write budget=2000, or several: budget=100,400")
    if len(named) > 1:
        raise UserError(f"a plan is for one recipe, got {len(named)}: {', '.join(named)}")
    found = list(
        budgets.splits(
            budgets.read_numbers(given.pop("budget")),
            budgets.read_costs(given.pop("costs", "1:1")),
            budgets.read_numbers(given.pop("shares", ",".join(budgets.SHARES))),
        )
    )
    if not runs:
        if given or named:
            unused = [*named, *(f"{name}={value}" for name, value in given.items())]
            raise UserError(f"only a grid uses a recipe, got {' '.join(unused)}; add --grid, which trains")
        _print_splits(found, as_json)
        return
    from posttrain.runs import comparison, grid

    def report(text: str) -> None:
        click.echo(text, err=True)

    name, changes = (named or ["sft_dpo"])[0], [f"{path}={value}" for path, value in given.items()]
    words_of_folder = [f"plan-{name}", *sorted(words)]
    recipe = find_recipe(name, changes)
    if any(path.split(".")[0] == "tasks" for path in given):
        grid.check_amounts(recipe, found)
    else:
        recipe = grid.with_enough(recipe, found, report)
    result = grid.grid(
        recipe,
        found,
        seeds=seeds,
        out=out or comparison.default_folder(words_of_folder[:1], words_of_folder[1:]),
        jobs=jobs,
        report=report,
    )
    if as_json:
        print_json(result)
    else:
        _print_grid(result)
    if failures := result["failures"]:
        where, why = next(iter(failures.items()))
        click.echo(f"{len(failures)} runs failed and are left out; {where}: {why}", err=True)
        click.get_current_context().exit(1)


def _place(named: list[str], given: dict[str, str], as_json: bool) -> None:
    """Prints the best placements of a recipe's calls."""
    from posttrain.cli.cluster import print_plans
    from posttrain.cluster.planning.accelerators import read_devices
    from posttrain.cluster.planning.profiles import best_plans
    from posttrain.errors import UserError
    from posttrain.recipes.files import find_recipe
    from posttrain.runs.placing import asked, problem

    devices, accelerator = read_devices(given.pop("gpus"))
    prompt = given.pop("prompt", "512")
    if not prompt.isdecimal() or not int(prompt):
        raise UserError(f"prompt={prompt} is no number of tokens")
    if len(named) != 1:
        raise UserError(f"a plan is for one recipe, got {len(named)}: {', '.join(named) or 'none'}")
    recipe = find_recipe(named[0], [f"{path}={value}" for path, value in given.items()])
    own = asked(recipe, devices, accelerator, int(prompt))
    found = best_plans(problem(recipe, devices, accelerator, int(prompt)), seed=0, proposals=2000)
    if own is not None:
        best = [plan for plan in found["best"] if plan["seconds"] < own["seconds"]]
        found = {"asked": own, **found, "best": best}
    if as_json:
        print_json(found)
        return
    if own is not None:
        _print_asked(own)
    print_plans(found)
    click.echo("estimated from data sheets, not measured")


def _print_asked(own: Mapping[str, Any]) -> None:
    """Prints what a step takes on the samplers and learners of the recipe, a device each."""
    kinds = ", ".join(f"{name} {own[name]}" for name in ("samplers", "learners", "scorers"))
    click.echo(f"asked: {kinds}, one device each: {own['step']:g} s a step; the longest is {own['longest']}")
    print_table(["phase", "seconds"], [[name, f"{value:g}"] for name, value in own["phases"].items()])
    names = list(dict.fromkeys(name for parts in own["memory"].values() for name in parts))
    rows = [
        [kind, *(f"{parts.get(name, 0) / 1e6:.1f}" for name in names), f"{sum(parts.values()) / 1e6:.1f}"]
        for kind, parts in own["memory"].items()
    ]
    print_table(["MB of", *names, "all"], rows)
    click.echo("idle  " + ", ".join(f"{kind} {share:.0%}" for kind, share in own["idle"].items()))
    if not own["fits"]:
        click.echo("does not fit: a process has more than a device's memory")


def _forecast(named: list[str], given: dict[str, str], as_json: bool) -> None:
    """Prints what a step takes on samplers and learners."""
    from posttrain.cluster.ray import Ray
    from posttrain.errors import UserError
    from posttrain.recipes.files import find_recipe
    from posttrain.runs.forecasting import better, check, forecast, profile

    if len(named) != 1:
        raise UserError(f"a plan is for one recipe, got {len(named)}: {', '.join(named) or 'none'}")
    recipe = find_recipe(named[0], [f"{path}={value}" for path, value in given.items()])
    cluster = recipe.cluster
    if not isinstance(cluster, Ray) or cluster.sharding != "none" or cluster.scorers:
        got = f"cluster={getattr(cluster, 'kind', given['cluster'])}"
        if isinstance(cluster, Ray):
            got += f" with cluster.sharding={cluster.sharding} and cluster.scorers={cluster.scorers}"
        raise UserError(
            "plans from runs on this machine are for cluster=ray with samplers and learners that have whole models, "
            f"got {got}; posttrain cluster profile and posttrain cluster plan place calls on named processes"
        )
    check(recipe)
    lag = int(getattr(recipe.schedule, "steps", 0))
    click.echo("measuring four short runs", err=True)
    found = profile(recipe)
    asked = forecast(found, cluster.samplers, cluster.learners, lag)
    others = better(found, asked)
    if as_json:
        print_json({"asked": asked.plain(), "better": [own.plain() for own in others]})
        return
    rows = [
        [
            title,
            str(own.samplers),
            str(own.learners),
            f"{own.seconds:.3f}",
            ", ".join(f"{name} {value:.3f}" for name, value in own.phases.items()),
            own.bottleneck,
            ", ".join(f"{name} {value:.0%}" for name, value in own.idle.items()),
            ", ".join(f"{name} {value >> 20}" for name, value in own.memory.items()),
        ]
        for title, own in [("asked", asked), *((f"faster {i}", own) for i, own in enumerate(others, start=1))]
    ]
    print_table(["", "samplers", "learners", "s a step", "phases, s", "longest", "idle", "MiB of each"], rows)


def _print_splits(found: Any, as_json: bool) -> None:
    """Prints the counts of every split."""
    rows = [
        {
            "budget": float(one.budget),
            "share": float(one.share),
            "demonstrations": one.demonstrations,
            "pairs": one.pairs,
            "spent": float(one.spent),
        }
        for one in found
    ]
    if as_json:
        print_json(rows)
        return
    print_table(list(rows[0]), [[f"{value:g}" for value in row.values()] for row in rows])


def _print_grid(result: Mapping[str, Any]) -> None:
    """Prints the result of every split, and the best share of every budget."""
    from posttrain.runs.amounts import with_interval

    def cell(spread: Mapping[str, Any] | None) -> str:
        return "-" if spread is None else with_interval(spread["mean"], spread["interval"], "share")

    columns = ["budget", "share", "demonstrations", "pairs", "spent"]
    table = [
        [*(f"{row[name]:g}" for name in columns), str(row["seeds"]), cell(row["accuracy"]), cell(row["form"])]
        for row in result["cells"]
    ]
    print_table([*columns, "seeds", "accuracy", "answers in the form"], table)
    for budget, share in result["best"].items():
        click.echo(f"budget {budget}: the highest mean accuracy is that of share {share:g}")
    click.echo(f"runs and numbers  {result['folder']}")
