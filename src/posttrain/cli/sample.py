r"""Sample completions of a prompt.

MODEL is a bundled name, a Hugging Face folder, a model of the hub (owner/name), or the folder of a run. PROMPT is
continued as is; with --chat it is a user's message in the model's chat template. The same seed gives the same
completions.

    posttrain sample pebble "12+30="
    posttrain sample runs/quickstart-1 "Q: 47+35-8\nA:" -n 4 --temperature 0.7
    posttrain sample pebble "Spell: horse" --chat
    posttrain sample runs/visual_rft-1 "Find every red square.\n" --image picture.png
    posttrain sample pebble "Q: 47+35-8\nA:" --search '{kind: tree, delimiter: ;}' --value runs/rest_rl-1
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from posttrain.cli._completion import complete_model
from posttrain.cli._output import print_json, verb
from posttrain.errors.foreign import printable
from posttrain.runs.measuring import SEARCH_HELP, VALUE_HELP

if TYPE_CHECKING:
    from posttrain.types import Completion, Task


@verb
@click.argument("model", shell_complete=complete_model)
@click.argument("prompt")
@click.option("-n", "count", default=1, show_default=True, type=click.IntRange(1), help="Completions.")
@click.option("--temperature", default=1.0, show_default=True, type=click.FloatRange(0.0), help="0 is greedy.")
@click.option("--top-p", default=1.0, show_default=True, type=click.FloatRange(0.0, 1.0, min_open=True))
@click.option("--top-k", default=0, show_default=True, type=click.IntRange(0), help="0 keeps every token.")
@click.option("--max-tokens", default=128, show_default=True, type=click.IntRange(1))
@click.option("--stop", multiple=True, help="Text that ends a completion; repeatable.")
@click.option("--chat", is_flag=True, help="PROMPT is a message, not text to continue.")
@click.option(
    "--image",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An image before the text, or where the text has <image>; repeatable.",
)
@click.option("--base", metavar="FOLDER", help="Model that an adapter is made for, where MODEL is one.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@click.option("--search", help=f"Print the best completions that a search finds. {SEARCH_HELP}")
@click.option("--value", help=VALUE_HELP)
def command(
    model: str,
    prompt: str,
    count: int,
    temperature: float,
    top_p: float,
    top_k: int,
    max_tokens: int,
    stop: tuple[str, ...],
    chat: bool,
    files: tuple[Path, ...],
    base: str | None,
    seed: int,
    search: str | None,
    value: str | None,
    as_json: bool,
) -> None:
    """Loads, samples, prints."""
    from posttrain.engines import Sampling
    from posttrain.engines.native import Native
    from posttrain.errors import UserError
    from posttrain.models import Model
    from posttrain.policies.loading import load_policy
    from posttrain.runs.launch import find_device, model_source
    from posttrain.runs.measuring import best_completions, read_search, search_models, with_sampling

    sampling = Sampling(temperature=temperature, top_p=top_p, top_k=top_k, max_tokens=max_tokens, stop=stop)
    policy = load_policy("policy", Model(source=model_source(model), base=base), {}, find_device("auto"))
    servers = {"policy": Native().serve(policy, seed)}
    sampler = servers["policy"].bind("sample")
    if value is not None and search is None:
        raise UserError("--value is for a search, but there is no search; add --search tree")
    task = _task(prompt, chat, files)
    given = sampler.prompt(task)
    if not len(given):
        raise UserError("the prompt is empty; this model needs at least one token to continue")
    values: list[float | None] = [None] * count
    if search is None:
        completions = asyncio.run(sampler.sample(given.token_ids, count, sampling, given.vectors))
    else:
        own = model if (Path(model) / "recipe.yaml").is_file() else None
        method = with_sampling(read_search(search), sampling)
        for role, source in search_models(method, {}, run=None, value=value or own).items():
            servers[role] = Native().serve(load_policy(role, source, {}, find_device("auto")), seed)
        samplers = {role: server.bind("sample") for role, server in servers.items()}
        found = asyncio.run(method.search(task, samplers))
        completions, values = best_completions(found, count)
    if as_json:
        text = task.prompt if isinstance(task.prompt, str) else task.prompt[-1]["content"]
        print_json({"model": model, "prompt": text, "completions": list(map(_as_json, completions, values))})
    else:
        _print(completions, values)


def _task(prompt: str, chat: bool, files: Sequence[Path]) -> "Task":
    """The prompt as a task: text or a message, with its images."""
    from posttrain.types import IMAGE, Image, Message, Task

    text = prompt.replace("\\n", "\n")  # a shell passes \n as two characters
    if files and IMAGE not in text:
        text = IMAGE * len(files) + text
    images = tuple(Image(path=str(file), name=str(file)) for file in files)
    return Task(key="sample", prompt=(Message(role="user", content=text),) if chat else text, images=images)


def _as_json(completion: "Completion", value: float | None) -> dict[str, object]:
    """A completion as JSON."""
    entry: dict[str, object] = {
        "text": completion.text,
        "token_ids": [int(i) for i in completion.token_ids],
        "logp": [float(p) for p in completion.logp],
        "stop_reason": completion.stop_reason,
    }
    return entry if value is None else {**entry, "value": value}


def _print(completions: "Sequence[Completion]", values: Sequence[float | None]) -> None:
    """Prints completions as text."""
    for number, (completion, value) in enumerate(zip(completions, values, strict=True), start=1):
        if value is not None:
            click.secho(f"value {value:.3f}", dim=True)
        if len(completions) > 1:
            mean = float(completion.logp.mean()) if len(completion.logp) else 0.0
            click.secho(
                f"[{number}] {len(completion.token_ids)} tokens, ended by {completion.stop_reason}, "
                f"mean log-probability {mean:.3f}",
                dim=True,
            )
        click.echo(printable(completion.text))
