"""Fuzz a Python or C function with a model: which of its lines can be reached, and what crashes or hangs it?

TARGET is file.py:function or file.c:function. The file runs in the sandbox alone, with the standard library; for C, gcc
and gcov must be installed, and the function takes one text, bytes with their size, or numbers. A model of --model
writes inputs for lines that nothing has reached, from the conditions around them; the others are edits of what reached
new lines. Without a model all are edits. Give a run of r1_fuzz, or any model with a --prompt of your own.

    posttrain fuzz target.py:parse --budget 5000
    posttrain fuzz target.py:f --model runs/r1_fuzz-1 --budget 5000 --expected ValueError
    posttrain fuzz target.py:parse --corpus afl_out --out more --json
    posttrain fuzz target.c:parse --budget 1000 --expected SIGABRT

An input is the text or the bytes of the function's only parameter where that is annotated with str or bytes, else
literals with commas between them; of C the declaration decides, and a crash is a signal such as SIGSEGV. The folder has
AFL++'s form: --out takes default/queue, crashes and hangs, with a file for each input; --corpus reads such a folder.
After an interruption the same command goes on, also with a larger budget.

Exit codes: 0 nothing crashed or hung, 1 something did, 2 the input is wrong.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from posttrain.cli._completion import complete_model
from posttrain.cli._output import print_json, verb
from posttrain.errors.foreign import printable

if TYPE_CHECKING:
    from posttrain.runs.fuzzing import Session, State, Write

PROMPT = "f({parameters}) {guards}\\n:"
SHOWN = 20


@verb
@click.argument("target", metavar="FILE:FUNCTION")
@click.option("--model", shell_complete=complete_model, help="Writes inputs; without it all are edits of others.")
@click.option("--budget", default=5000, show_default=True, type=click.IntRange(1, 10**8), help="Inputs to try.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="[default: fuzz-FUNCTION]")
@click.option("--corpus", type=click.Path(path_type=Path), help="A folder with first inputs, such as AFL++'s.")
@click.option("--form", type=click.Choice(["str", "bytes", "literals"]), help="What an input is. [default: see above]")
@click.option("--expected", default="", metavar="NAME,...", help="Exceptions or signals that are no crashes.")
@click.option(
    "--edits", default=0.5, show_default=True, type=click.FloatRange(0.0, 1.0), help="Share of edits beside a model."
)
@click.option("--prompt", default=PROMPT, show_default=True, help="With {function}, {parameters}, {guards} and {line}.")
@click.option("--temperature", default=1.0, show_default=True, type=click.FloatRange(0.0))
@click.option("--max-tokens", default=48, show_default=True, type=click.IntRange(1))
@click.option(
    "--ticks",
    default=100_000,
    show_default=True,
    type=click.IntRange(1),
    help="Rounds of loops, or blocks of C, until it hangs.",
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
def command(
    target: str,
    model: str | None,
    budget: int,
    out: Path | None,
    corpus: Path | None,
    form: str | None,
    expected: str,
    edits: float,
    prompt: str,
    temperature: float,
    max_tokens: int,
    ticks: int,
    seed: int,
    as_json: bool,
) -> None:
    """Reads the target, fuzzes, prints what was found."""
    from posttrain.runs.fuzzing import Session, digest, form_of, found, fuzz, prompt_of, read_seeds, read_target
    from posttrain.sandbox import open_pool

    made, sha256 = read_target(target)
    kind, seeds = form_of(made, form), read_seeds(corpus) if corpus is not None else {}
    names = sorted(name for name in expected.split(",") if name)
    prompt_of(made, 1, prompt.replace("\\n", "\n"))
    settings: dict[str, Any] = {"target": sha256, "function": made.function, "form": kind, "model": model}
    settings |= {"corpus": {name: digest(content) for name, content in seeds.items()}, "expected": names}
    settings |= {"ticks": ticks, "seed": seed}
    write: Write | None = None
    if model is not None:
        settings |= {"prompt": prompt, "temperature": temperature, "max_tokens": max_tokens, "edits": edits}

        def prompted(line: int) -> str:
            return prompt_of(made, line, prompt.replace("\\n", "\n"))

        write = _writer(model, prompted, temperature, max_tokens, seed)
    session = Session(
        target=made,
        folder=out or Path(f"fuzz-{made.function}"),
        pool=open_pool(),
        form=kind,
        write=write,
        edits=edits,
        expected=frozenset(names),
        seeds=seeds,
        ticks=ticks,
        seed=seed,
        settings=settings,
    )
    result = {"target": target, "model": model, **found(session, _fuzzed(session, budget, fuzz))}
    if as_json:
        print_json(result)
    else:
        _show(result)
    if result["crashes"] or result["hangs"]:
        raise click.exceptions.Exit(1)


def _fuzzed(session: "Session", budget: int, fuzz: object) -> "State":
    """Fuzz with a bar of what was tried and what was found."""
    assert callable(fuzz)
    with click.progressbar(length=budget, label="inputs", file=sys.stderr, item_show_func=lambda own: own) as bar:

        def show(state: "State") -> None:
            own = {kind: len(saved) for kind, saved in state.saved.items()}
            lines = f"{len(state.covered)}/{len(session.target.parents)} lines"
            text = f"{lines}, {own['crashes']} crashes, {own['hangs']} hangs"
            bar.update(state.tried - bar.pos, text)

        found: State = fuzz(session, budget, show)
    return found


def _writer(model: str, prompted: Callable[[int], str], temperature: float, max_tokens: int, seed: int) -> "Write":
    """What the model writes for a line."""
    from posttrain.engines import Sampling
    from posttrain.engines.native import Native
    from posttrain.models import Model
    from posttrain.policies.loading import load_policy
    from posttrain.runs.fuzzing import ASKED
    from posttrain.runs.launch import find_device, model_source
    from posttrain.types import Task

    policy = load_policy("policy", Model(source=model_source(model)), {}, find_device("auto"))
    server = Native().serve(policy, seed)
    sampling = Sampling(temperature=temperature, max_tokens=max_tokens)

    async def write(line: int, batch: int, number: int) -> Sequence[str]:
        sampler = server.bind("fuzz", batch, number)
        given = sampler.prompt(Task(key="fuzz", prompt=prompted(line)))
        return [own.text for own in await sampler.sample(given.token_ids, ASKED, sampling, given.vectors)]

    return write


def _show(result: dict[str, object]) -> None:
    """Prints what was found."""
    missing, needs, by = result["not_covered"], result["needs"], result["by"]
    assert isinstance(missing, list) and isinstance(needs, dict) and isinstance(by, dict)
    click.echo(
        f"{result['tried']} inputs, {result['refused']} of another form than the function takes; {result['covered']} "
        f"of {result['lines']} lines of the file reached"
    )
    ways = ", ".join(f"{count} by {way}" for way, count in by.items())
    click.echo(f"corpus of {result['corpus']} in {result['folder']}{f': {ways}' if ways else ''}")
    if missing:
        click.echo(
            f"never reached: line {', '.join(map(str, missing[:SHOWN]))}{' ...' if len(missing) > SHOWN else ''}"
        )
    for line, needed in list(needs.items())[:3]:
        if needed:
            click.echo(f"line {line} is behind {printable(needed)}")
    one_of = {"crashes": "crash", "hangs": "hang"}
    for kind in one_of:
        entries = result[kind]
        assert isinstance(entries, list)
        for one in entries[:SHOWN]:
            place = f"after line {one['line']}" if one["line"] else "before any line"
            click.echo(
                f"{kind[:-2] if kind == 'crashes' else 'hang'}: {one['end']} {place}: {printable(repr(one['input']))}"
            )
        click.echo(f"{len(entries) or 'no'} {kind if len(entries) != 1 else one_of[kind]}")
