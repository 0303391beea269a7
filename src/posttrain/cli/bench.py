"""Measure how fast this machine samples and trains, as a share of its limits.

Models have random weights: 0.2M, 3.2M and 25M parameters, 135M in the shape of SmolLM2 with its 49,152 tokens, or with
--device cuda the shapes of Qwen2.5-0.5B and 1.5B. Memory is that of a step's two phases, with what it consists of.
Measurements alternate, A B A B; each figure is the median of the rounds, with its share of the limit: the same work at
the rate of a matrix product, measured in the same rounds. Without options it takes a minute or two; run nothing else
meanwhile.

    posttrain bench
    posttrain bench --what sampling,learning --dtypes float32,bfloat16 --threads 1
    posttrain bench --sizes 135M --what memory --samples 16
    posttrain bench --all --out bench.json
    posttrain bench --device cuda
"""

import json
from pathlib import Path

import click

from posttrain.cli._output import print_json, print_table, verb


@verb
@click.option("--sizes", help="Models, separated by commas: 0.2M,3.2M,25M,135M.  [default: 3.2M]")
@click.option("--dtypes", help="float32, bfloat16 or both.  [default: float32]")
@click.option("--workloads", default="fixed,ragged", show_default=True, help="Lengths: fixed, ragged or both.")
@click.option("--batches", help="Sequences decoded at a time.  [default: 256]")
@click.option("--what", help="Of sampling,learning,grpo,memory,growth,start_up.  [default: all]")
@click.option("--samples", default=128, show_default=True, type=click.IntRange(8), help="Completions of a step.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="Measurements of each.")
@click.option("--threads", type=click.IntRange(1), help="CPU threads.  [default: all cores]")
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda"]))
@click.option("--all", "everything", is_flag=True, help="All sizes, both types, batches of 128 and 256.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the result to a JSON file.")
def command(
    sizes: str | None,
    dtypes: str | None,
    workloads: str,
    batches: str | None,
    what: str | None,
    samples: int,
    rounds: int,
    threads: int | None,
    device: str,
    everything: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Measures, prints, writes."""
    from posttrain.runs.environment import available_cores
    from posttrain.runs.launch import find_device
    from posttrain.runs.speed.benchmark import measure, plan_of
    from posttrain.runs.speed.tables import COLUMNS, rows

    find_device("cuda" if device == "cuda" else "cpu")
    plan = plan_of(
        device=device,
        everything=everything,
        sizes=sizes,
        dtypes=dtypes,
        workloads=workloads,
        batches=batches,
        what=what,
        rounds=rounds,
        threads=threads or available_cores(),
        samples=samples,
    )
    result = measure(plan, lambda text: click.echo(text, err=True))
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=1) + "\n")
    if as_json:
        print_json(result)
        return
    machine = result["machine"]
    threads_used = f"{machine['threads']} threads of {machine['cores']} cores"
    click.echo(f"{machine['cpu']}, {threads_used}, torch {machine['packages']['torch']}")
    print_table(COLUMNS, rows(result["figures"]))
