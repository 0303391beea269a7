"""Serve a model over the OpenAI protocol.

MODEL is a bundled name, a Hugging Face folder, a model of the hub (owner/name), or the folder of a run. Concurrent
requests are decoded in one batch. Ctrl-C finishes pending requests; a second one stops at once.

    posttrain serve pebble
    posttrain serve runs/grpo-1 --port 8080 --name judge
    posttrain serve my-model --host 0.0.0.0 --api-key-env SERVE_KEY
    posttrain serve pebble --protocol vllm --record requests.jsonl
"""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from posttrain.cli._completion import complete_model
from posttrain.cli._listening import answer, is_own_machine, listen, reach_of, url_of
from posttrain.cli._output import print_json, verb
from posttrain.runs.garbage import as_usual

if TYPE_CHECKING:
    from posttrain.engines.native import Native
    from posttrain.policies import Policy
    from posttrain.serving.server import Service


@verb
@click.argument("model", shell_complete=complete_model)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 is all of them.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--name", help="The model's name for clients.  [default: its own]")
@click.option("--slots", default=64, show_default=True, type=click.IntRange(1), help="Completions decoded at a time.")
@click.option("--waiting", default=1024, show_default=True, type=click.IntRange(1), help="Most completions at once.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Seed of requests without one.")
@click.option("--base", metavar="FOLDER", help="Model that an adapter is made for, where MODEL is one.")
@click.option(
    "--protocol",
    default="openai",
    show_default=True,
    type=click.Choice(["openai", "vllm", "sglang"]),
    help="Also speak the requests of engine=vllm or engine=sglang, as a stand-in for those programs.",
)
@click.option("--record", type=click.Path(dir_okay=False, path_type=Path), help="File for the stand-in's requests.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable with the key that clients must send.")
def command(
    model: str,
    host: str,
    port: int,
    name: str | None,
    slots: int,
    waiting: int,
    seed: int,
    base: str | None,
    protocol: str,
    record: Path | None,
    api_key_env: str | None,
    as_json: bool,
) -> None:
    """Loads the model and answers requests."""
    from posttrain.cli._connections import limits_here
    from posttrain.engines.native import Native
    from posttrain.errors import UserError
    from posttrain.models import Model
    from posttrain.policies.loading import load_policy
    from posttrain.runs.launch import find_device, model_source
    from posttrain.serving.access import OWN_NAMES
    from posttrain.serving.server import Service

    key = os.environ.get(api_key_env, "").strip() if api_key_env else ""
    if api_key_env and not key:
        raise UserError(f"--api-key-env names the environment variable {api_key_env}, which is not set")
    source = Model(source=model_source(model), base=base)
    policy = load_policy("policy", source, {}, find_device("auto"))
    listening = listen(host, port)
    where, url = listening.getsockname()[0], f"{url_of(listening)}/v1"
    limits = limits_here()
    settings: dict[str, Any] = {
        "api_key": key,
        "most_waiting": waiting,
        "most_requests": max(1, limits.connections * 3 // 4),  # so that others can still connect
        "hosts": OWN_NAMES if is_own_machine(where) else (),
        "private": [str(place) for given in (model, source.source) for place in _spellings(given)],
    }
    engine, own_name = Native(slots=slots), name or Path(model).absolute().name
    if protocol == "openai":
        service = Service(engine.serve_text(policy, seed), own_name, **settings)
    else:
        service = _stand_in(protocol, engine, policy, seed, own_name, record, settings)
    if as_json:
        print_json({"url": url, "model": service.name, "pid": os.getpid()})
    else:
        click.echo(f"{service.name} at {url}{reach_of(listening)}; Ctrl-C ends it")
    if not key and not is_own_machine(where):
        click.secho("all who can reach this address may use it; --api-key-env requires a key", fg="yellow", err=True)
    as_usual()
    asyncio.run(answer(service.app(), listening, limits))
    if not as_json:
        click.echo("stopped")


def _stand_in(
    protocol: str,
    engine: "Native",
    policy: "Policy",
    seed: int,
    name: str,
    record: Path | None,
    settings: dict[str, Any],
) -> "Service":
    """The server that also speaks another program's requests."""
    from typing import cast

    from posttrain.models import Model
    from posttrain.policies.loading import load_policy
    from posttrain.runs.launch import find_device
    from posttrain.serving.stand_in import Program, StandIn

    def load(folder: Path) -> Any:
        return engine.serve_text(load_policy("policy", Model(source=str(folder)), {}, find_device("auto")), seed)

    server: Any = engine.serve_text(policy, seed)
    return StandIn(server, name, cast("Program", protocol), load=load, record=record, **settings)


def _spellings(place: str) -> list[Path]:
    """A path as errors may name it; none where it is only a name."""
    path = Path(place)
    return [path.resolve(), path.absolute(), path] if path.exists() else []
