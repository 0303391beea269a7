"""Serve a model over the OpenAI protocol.

MODEL is a bundled name, a Hugging Face folder, or the folder of a run. What is asked at the same time is decoded
together. Ctrl-C finishes what was begun; a second one does not wait.

    posttrain serve pebble
    posttrain serve runs/grpo-1 --port 8080 --name judge
    posttrain serve my-model --host 0.0.0.0 --api-key-env SERVE_KEY
"""

import asyncio
import os
from pathlib import Path

import click

from posttrain.cli._listening import answer, is_own_machine, listen, url_of
from posttrain.cli._output import print_json, verb
from posttrain.runs.garbage import as_usual


@verb
@click.argument("model")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 is every one.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--name", help="What clients call the model; its own name unless given.")
@click.option("--slots", default=64, show_default=True, type=click.IntRange(1), help="Completions decoded at a time.")
@click.option("--waiting", default=1024, show_default=True, type=click.IntRange(1), help="More at a time are put off.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Of requests that bring none.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable with a key that clients must give.")
def command(
    model: str,
    host: str,
    port: int,
    name: str | None,
    slots: int,
    waiting: int,
    seed: int,
    api_key_env: str | None,
    as_json: bool,
) -> None:
    """Load, listen, answer."""
    import uvicorn

    from posttrain.engines.native import Native
    from posttrain.errors import UserError
    from posttrain.models import Model
    from posttrain.policies.loading import load_policy
    from posttrain.runs.launch import find_device, model_source
    from posttrain.serving.server import Service

    key = os.environ.get(api_key_env, "").strip() if api_key_env else ""
    if api_key_env and not key:
        raise UserError(f"--api-key-env names the environment variable {api_key_env}, which is not set")
    policy = load_policy("policy", Model(source=model_source(model)), {}, find_device("auto"))
    service = Service(
        Native(slots=slots).serve(policy, seed),
        name or Path(model).absolute().name,
        api_key=key,
        most_waiting=waiting,
    )
    listening = listen(host, port)
    config = uvicorn.Config(service.app(), log_level="warning", access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    where, url = listening.getsockname()[0], f"{url_of(listening)}/v1"
    if as_json:
        print_json({"url": url, "model": service.name, "pid": os.getpid()})
    else:
        click.echo(f"{service.name} at {url}; Ctrl-C ends it")
    if not key and not is_own_machine(where):
        click.secho(
            "anybody who can reach this address may use it; --api-key-env asks for a key", fg="yellow", err=True
        )
    as_usual()
    asyncio.run(answer(server, listening))
    if not as_json:
        click.echo("stopped")
