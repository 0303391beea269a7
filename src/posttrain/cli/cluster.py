"""Check the processes that a run with cluster=ray would have, measure their memory, and plan placements.

Without --address a Ray of one's own is started and ended. Ports that answer from another address are open to all who
reach this machine; a Ray requires its token of them. All take --json.

    posttrain cluster check
    posttrain cluster check --address HOST:6379
    posttrain cluster memory MODEL --learners 4
    posttrain cluster profile RECIPE NAME=VALUE... --processes 2 --out PROFILE.json
    posttrain cluster plan PROFILE.json --out PLAN.yaml
    posttrain run PLAN.yaml
"""

import json
from pathlib import Path
from typing import Any

import click

from posttrain.cli._completion import complete_recipe
from posttrain.cli._output import print_json, print_table, trusting


@click.group(help=__doc__.replace("\n\n    posttrain", "\n\n\b\n    posttrain", 1))
def command() -> None:
    """Checks of clusters."""


@command.command("check")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value, for programs.")
@click.option("--address", default="", help="A Ray that is there: HOST:PORT, or auto.")
def check(address: str, as_json: bool) -> None:
    """Starts or joins Ray, and shows what a run would find."""
    from posttrain.cluster import checking

    found = checking.check(address)
    if as_json:
        print_json(found)
    else:
        _print(found)
    if found["left"]:
        click.get_current_context().exit(1)


def _print(found: dict[str, Any]) -> None:
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    click.echo(f"versions  {versions}")
    rows = [
        [node["address"], f"{node['cpus']:g}", f"{node['gpus']:g}", f"{node['memory_gib']:g}", node["sandbox"]]
        for node in found["nodes"]
    ]
    print_table(["node", "CPUs", "GPUs", "GiB", "sandbox"], rows)
    opened = [port for port in found["ports"] if port["answers"]]
    for port in opened:
        click.echo(f"port {port['port']} ({port['address']}, process {port['process']}) answers from another address")
    if opened:
        click.echo(
            "Who reaches these ports and has the token runs any code as you; gloo and torch's store ask for "
            "nothing. Run on a private network."
        )
    click.echo(f"started in {found['seconds_to_start']:.1f} s, ended in {found['seconds_to_end']:.1f} s")
    left = found["left"]
    click.echo(f"left behind: {', '.join(map(str, left)) if left else 'nothing'}")


@command.command("memory")
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value, for programs.")
@click.option("--learners", default=2, show_default=True, type=click.IntRange(min=2), help="Processes that learn.")
@click.option("--dtype", default="float32", show_default=True, type=click.Choice(["float32", "bfloat16"]))
@click.option("--address", default="", help="A Ray that is there: HOST:PORT, or auto.")
def memory(model: str, as_json: bool, learners: int, dtype: str, address: str) -> None:
    """Measure what each of several learners has of a MODEL with cluster.sharding=fsdp, after one update of AdamW."""
    import torch

    from posttrain.cluster import checking
    from posttrain.models import Model
    from posttrain.policies.loading import load_policy

    given: Any = {"source": model, "trained": True, "dtype": dtype}
    policy = load_policy("policy", Model(**given), {}, torch.device("cpu"))
    found = checking.memory(policy, learners, address)
    if as_json:
        print_json(found)
        return
    names = ["weights", "gradients", "optimizer", "whole"]
    rows = [
        [title, *(f"{own[name]:,}" for name in names), f"{sum(own.values()):,}"]
        for title, own in [*((f"learner {i}", own) for i, own in enumerate(found["learners"])), ("one", found["one"])]
    ]
    print_table(["bytes of", *names, "all"], rows)


@command.command("profile")
@trusting
@click.argument("words", nargs=-1, required=True, metavar="RECIPE NAME=VALUE...", shell_complete=complete_recipe)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value, for programs.")
@click.option("--processes", default=2, show_default=True, type=click.IntRange(1, 64), help="Processes to place on.")
@click.option("--steps", default=4, show_default=True, type=click.IntRange(min=2), help="Steps on each mesh.")
@click.option(
    "--sharding",
    default="none",
    show_default=True,
    type=click.Choice(["none", "fsdp"]),
    help="Whether several processes of a call have a part of its model each.",
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Where to write it.")
def profile(words: tuple[str, ...], as_json: bool, processes: int, steps: int, sharding: Any, out: Path | None) -> None:
    """Measure how long each call of a RECIPE's step takes on each mesh of processes of this machine.

    The recipe is run for some steps on each: one process, two, four, ... The first step is not counted.
    """
    from posttrain.recipes.files import find_recipe
    from posttrain.runs.profiling import profile

    recipe = find_recipe(words[0], words[1:])
    found = profile(recipe, processes, steps, lambda text: click.echo(text, err=True), sharding)
    if out is not None:
        out.write_text(json.dumps(found, indent=1) + "\n")
    if as_json:
        print_json(found)
        return
    rows = [
        [call["name"], ",".join(map(str, own["devices"])), f"{own['seconds']:.3f}", f"{own['static']:,}"]
        for call in found["calls"]
        for own in call["candidates"]
    ]
    print_table(["call", "processes", "seconds", "bytes of weights"], rows)
    click.echo(f"seconds of a step without a call  {found['other']:.3f}")


@command.command("plan")
@click.argument("profile", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value, for programs.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of the search.")
@click.option("--proposals", default=2000, show_default=True, type=click.IntRange(min=1), help="Steps of the search.")
@click.option(
    "--accept",
    default="relative",
    show_default=True,
    type=click.Choice(["relative", "released"]),
    help="Which longer plans the search goes to: by per cent, or by the rule of ReaLHF's code.",
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write a recipe that executes plan 1.")
def plan(profile: Path, as_json: bool, seed: int, proposals: int, accept: Any, out: Path | None) -> None:
    """Find where the calls of a step are best executed, from a PROFILE of how long each takes where.

    The search is that of ReaLHF; where there are few plans, all are tried. docs/scale.md shows a profile.
    """
    from posttrain.cluster.planning.profiles import best_plans, placed_recipe, read_profile
    from posttrain.recipes.yaml_writer import tree_to_yaml

    found = best_plans(read_profile(profile), seed=seed, proposals=proposals, accept=accept)
    if out is not None:
        out.write_text(tree_to_yaml(placed_recipe(profile, found["best"][0])))
    if as_json:
        print_json(found)
        return
    print_plans(found)


def print_plans(found: dict[str, Any]) -> None:
    """Print what `posttrain.cluster.planning.profiles.best_plans` found."""
    click.echo(f"{found['plans']:,} plans, tried: {found['tried']}")
    for number, own in enumerate(found["best"], start=1):
        _print_plan(f"plan {number}", own)
    if found["symmetric"] is not None:
        _print_plan("the same devices for all calls", found["symmetric"])
    if found["best"]:
        shares = ", ".join(f"{device}: {share:.0%}" for device, share in found["idle"].items())
        click.echo(f"idle in plan 1, by device  {shares}")


def _print_plan(title: str, found: dict[str, Any]) -> None:
    click.echo(f"{title}: {found['seconds']:g} s, {found['bytes']:,} bytes on the fullest device")
    rows = [
        [name, ",".join(map(str, own["devices"])), "x".join(map(str, own["layout"])), f"{own['seconds']:g}"]
        for name, own in found["calls"].items()
    ]
    print_table(["call", "devices", "layout", "seconds"], rows)
