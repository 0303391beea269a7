"""Check the processes that a run with cluster=ray would have: nodes, versions, ports.

Without --address a Ray of one's own is started and ended. Ports that answer from another address are open to all who
reach this machine; a Ray asks them for its token.

    posttrain cluster check
    posttrain cluster check --address HOST:6379
"""

from typing import Any

import click

from posttrain.cli._output import print_json, print_table


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
        [node["address"], f"{node['cpus']:g}", f"{node['gpus']:g}", f"{node['memory_gib']:g}"]
        for node in found["nodes"]
    ]
    print_table(["node", "CPUs", "GPUs", "GiB"], rows)
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
