"""View runs in a browser: every rollout token by token, and the history of every task.

PLACES are runs, or folders that hold runs; ``runs`` unless given. Each request reads the files of the run, so
a run in progress can be watched. Only an index for search is written,
and nothing leaves this machine. Ctrl-C stops it.

    posttrain view
    posttrain view runs/grpo-1 --open
    posttrain view runs comparisons/first-look --port 8600

Only this machine can connect. From another one, forward the port: ``ssh -L 8600:localhost:8600 MACHINE``. With
``--host`` others can connect too, with the printed key. Every page is JSON with ``?as=json``.
"""

import asyncio
import os
import secrets
import webbrowser
from pathlib import Path

import click

from posttrain.cli._completion import complete_runs
from posttrain.cli._listening import answer, is_own_machine, listen, reach_of, url_of
from posttrain.cli._output import print_json, reading_verb
from posttrain.runs.garbage import as_usual


@reading_verb
@click.argument("places", nargs=-1, type=click.Path(path_type=Path), shell_complete=complete_runs)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 is all of them.")
@click.option("--port", default=8600, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--open", "opened", is_flag=True, help="Open a browser there.")
def command(places: tuple[Path, ...], host: str, port: int, opened: bool, as_json: bool) -> None:
    """Finds the runs and answers requests."""
    from posttrain.viewer.app import OWN_NAMES, Viewer
    from posttrain.viewer.library import Library

    library = Library(places or (Path("runs"),))
    listening = listen(host, port)
    ours = is_own_machine(listening.getsockname()[0])
    key = "" if ours else secrets.token_urlsafe(16)
    viewer = Viewer(library, key=key, hosts=OWN_NAMES if ours else ("*",))
    url = url_of(listening) + (f"/?key={key}" if key else "/")
    if as_json:
        print_json({"url": url, "runs": len(library.runs()), "pid": os.getpid()})
    else:
        found = len(library.runs())
        click.echo(f"{found} run{'s' if found != 1 else ''} at {url}{reach_of(listening)} (Ctrl-C ends it)")
    if opened:
        webbrowser.open(url)
    as_usual()
    asyncio.run(answer(viewer.app(), listening))
    if not as_json:
        click.echo("stopped")
