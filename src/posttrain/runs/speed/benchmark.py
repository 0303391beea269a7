"""Runs the benchmark: its processes, their order, and the results."""

import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from posttrain.component import nearest
from posttrain.errors import RunFailed, UserError
from posttrain.errors.temporary import temporary_folder
from posttrain.runs.speed.children import Child, ChildFailed
from posttrain.runs.speed.sizes import CPU_SIZES, CUDA_SIZES, SIZES
from posttrain.runs.speed.workloads import NAMES, end_probability

MEASURES = ("sampling", "learning", "grpo", "memory", "growth", "start_up")
SHARED = frozenset({"sampling", "learning", "grpo", "growth"})
"""Those of which the share of the limit is given."""
WAITING = (256, 1024)
"""Requests of the measurement of growth, for as many places as the first number."""
LEARNING_ROWS = 4096
"""Rows of the products whose rate limits the learner: beyond that, it does not change."""
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to measure."""

    sizes: Sequence[str] = ("3.2M",)
    dtypes: Sequence[str] = ("float32",)
    workloads: Sequence[str] = ("fixed", "ragged")
    batches: Sequence[int] = (256,)
    measures: Sequence[str] = MEASURES
    rounds: int = 5
    warm_up: int = 1
    threads: int = 1
    device: str = "cpu"
    grpo_samples: int = 128
    learning_samples: int = 128
    waiting: Sequence[int] = WAITING
    growth_size: str | None = None
    """The size whose growth is measured, where there are several; None is each."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One case of a child."""

    figure: Mapping[str, Any]
    """Identifies the result: measure, size, dtype, workload, batch."""
    take: Callable[[], dict[str, Any]]


@dataclass
class Taken:
    """The results of a case, round by round."""

    figure: Mapping[str, Any]
    rounds: list[dict[str, Any]] = field(default_factory=list)


def measure(plan: Plan, say: Say) -> dict[str, Any]:
    """Measures the plan, size after size."""
    figures: list[dict[str, Any]] = []
    with temporary_folder("speed") as folder:
        for size in plan.sizes:
            figures += _measure_size(plan, size, folder, say)
    if "start_up" in plan.measures:
        figures += _measure_start_up(plan, say)
    described = machine(plan.threads) | gpu(plan.device)
    return {"command": command_line("posttrain"), "machine": described, "figures": figures}


def command_line(program: str) -> str:
    """The command line without its output file."""
    words = list(sys.argv[1:])
    while "--out" in words:
        place = words.index("--out")
        del words[place : place + 2]
    return " ".join([program, *(word for word in words if not word.startswith("--out="))])


def machine(threads: int) -> dict[str, Any]:
    """The properties of the machine that affect the figures, without paths."""
    from posttrain.runs.environment import describe_environment

    described = describe_environment({"threads": threads})
    kept = ("cpu", "instructions", "cores", "threads", "memory_bytes", "platform", "python", "packages")
    return {name: described[name] for name in kept} | {"commit": (described["git"] or {}).get("commit")}


def gpu(device: str) -> dict[str, Any]:
    """The GPU and its decoding kernels; empty on a CPU."""
    import torch

    from posttrain.kernels import paged

    if device != "cuda" or not torch.cuda.is_available():
        return {}
    return {"gpu": torch.cuda.get_device_name(), "gpu_kernels": paged.status(torch.device(device))}


def environment(threads: int) -> dict[str, str]:
    """Variables of children: the number of threads, and the path of this package."""
    source = str(Path(__file__).parents[3])
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH", "")]))
    return {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}


def model_folder(folder: Path, size: str, workload: str) -> Path:
    """The model for a workload, made when it is first needed."""
    from posttrain.runs.speed._models import make_model

    return make_model(folder / f"{size}-{workload}", SIZES[size], end_probability(workload))  # type: ignore[arg-type]


def in_turns(turns: Sequence[Turn], rounds: int, warm_up: int, say: Say) -> list[Taken]:
    """Measures every case once per round, alternating: A B A B. Warm-up rounds are not kept."""
    taken = [Taken(turn.figure) for turn in turns]
    for number in range(-warm_up, rounds):
        seconds = []
        for turn, results in zip(turns, taken, strict=True):
            try:
                result = turn.take()
            except ChildFailed as error:
                raise RunFailed(str(error)) from None
            if number >= 0:
                results.rounds.append(result)
            seconds.append(f"{result['seconds']:.2f}")
        say(f"{f'round {number + 1} of {rounds}' if number >= 0 else 'warm-up'}: {' '.join(seconds)} s")
    return taken


def _measure_size(plan: Plan, size: str, folder: Path, say: Say) -> list[dict[str, Any]]:
    """All measurements of models of one size, alternating."""
    from posttrain.runs.speed.figures import summarise

    specs = list(_cases(plan, size, folder))
    runs, memories = list(_runs(plan, size, folder)), list(_memories(plan, size, folder))
    command = [sys.executable, "-P", "-m", "posttrain.runs.speed.worker"]
    with ExitStack() as stack:
        turns: list[Turn] = []
        say(f"{size}: {len(specs) + len(memories)} cases, {len(runs)} runs; seconds of each, round by round")
        for own in filter(None, [specs, *([memory] for memory in memories)]):  # memory is that of a process
            child = Child("cases", command, environment(plan.threads))
            stack.callback(child.close)
            child.start(cases={str(i): spec for i, (_, spec) in enumerate(own)})
            for i, (figure, _) in enumerate(own):
                take = partial(child.request, do="turn", case=str(i))
                turns.append(Turn(figure=figure, take=take))
        runners = []
        for figure, spec in runs:
            runner = Child(f"grpo {spec['dtype']} {spec['workload']}", command, environment(plan.threads))
            stack.callback(runner.close)
            runner.start(grpo=spec)
            runners.append((figure, runner))
            turns.append(Turn(figure=figure, take=lambda runner=runner: runner.request(do="turn")))  # type: ignore[misc]
        taken = in_turns(turns, plan.rounds, plan.warm_up, say)
        memory = [
            {**figure, "measure": "peak_memory", "value": runner.end()["peak_memory_bytes"] / 2**20, "unit": "MiB"}
            for figure, runner in runners
        ]
    return summarise([(t.figure, t.rounds) for t in taken]) + memory


def _cases(plan: Plan, size: str, folder: Path) -> Any:
    """Figures and specifications of the cases of the one child: limits first, then what is held against them."""
    for dtype in plan.dtypes:
        common = {"size": size, "dtype": dtype, "threads": plan.threads, "device": plan.device}
        own = {"size": size, "dtype": dtype}
        rows = sorted(set(plan.batches))
        limits = {**common, "measure": "limits", "rows": rows, "learning_rows": LEARNING_ROWS}
        if SHARED.intersection(plan.measures):
            yield {"measure": "limits", **own}, limits
        for workload in plan.workloads:
            model = str(model_folder(folder, size, workload))
            case = {**common, "model": model, "workload": workload}
            if "sampling" in plan.measures:
                for batch in plan.batches:
                    figure = {"measure": "sampling", **own, "workload": workload, "batch": batch}
                    yield figure, {**case, "measure": "sampling", "samples": batch, "slots": batch}
            if "learning" in plan.measures:
                figure = {"measure": "learning", **own, "workload": workload, "samples": plan.learning_samples}
                yield figure, {**case, "measure": "learning", "samples": plan.learning_samples}
            if "growth" in plan.measures and workload == "fixed" and plan.growth_size in (None, size):
                for waiting in plan.waiting:
                    figure = {"measure": "growth", **own, "workload": workload, "waiting": waiting}
                    yield figure, {**case, "measure": "sampling", "samples": waiting, "slots": plan.waiting[0]}


def _memories(plan: Plan, size: str, folder: Path) -> Any:
    """Figures and specifications of the cases that measure memory."""
    if "memory" not in plan.measures or plan.device != "cpu":
        return
    for dtype in plan.dtypes:
        for workload in plan.workloads:
            figure = {"measure": "memory", "size": size, "dtype": dtype, "workload": workload}
            spec = run_spec(plan, size, dtype, workload, folder) | {"measure": "memory", "size": size}
            yield figure, spec


def _runs(plan: Plan, size: str, folder: Path) -> Any:
    """Figures and specifications of the runs, a child each: memory is that of a process."""
    if "grpo" not in plan.measures:
        return
    for dtype in plan.dtypes:
        for workload in plan.workloads:
            figure = {
                "measure": "grpo",
                "size": size,
                "dtype": dtype,
                "workload": workload,
                "samples": plan.grpo_samples,
            }
            yield figure, run_spec(plan, size, dtype, workload, folder)


def run_spec(plan: Plan, size: str, dtype: str, workload: str, folder: Path) -> dict[str, Any]:
    """The specification of a child that runs GRPO."""
    return {
        "model": str(model_folder(folder, size, workload)),
        "dtype": dtype,
        "workload": workload,
        "samples": plan.grpo_samples,
        "threads": plan.threads,
        "device": plan.device,
    }


def _measure_start_up(plan: Plan, say: Say) -> list[dict[str, Any]]:
    """Starts of fresh processes, alternately warm and cold."""
    from posttrain.runs.speed.start_up import start

    own = environment(plan.threads)
    taken: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for number in range(plan.rounds):
        for cold in (True, False):
            taken[cold].append(start(own, cold=cold))
        say(
            f"start {number + 1} of {plan.rounds}: cold {taken[True][-1]['seconds']:.2f}, "
            f"warm {taken[False][-1]['seconds']:.2f} s"
        )
    figures = []
    for cold, results in taken.items():
        seconds = [result["seconds"] for result in results]
        figure = {"measure": "start_up", "start": "cold" if cold else "warm", "unit": "s"}
        if cold:
            figure["read_from_disk"] = results[0]["read_from_disk"]
        figures.append({**figure, "value": statistics.median(seconds), "rounds": seconds})
    return figures


def plan_of(
    *,
    device: str,
    everything: bool,
    sizes: str | None,
    dtypes: str | None,
    workloads: str,
    batches: str | None,
    what: str | None,
    rounds: int,
    threads: int,
    samples: int = 128,
) -> Plan:
    """The plan of a command line; lists are separated by commas. Raises `UserError`."""
    gpu = device == "cuda"
    both = ("float32", "bfloat16")
    some = ("bfloat16",) if gpu else ("float32",)
    few = ("sampling", "learning") if gpu else MEASURES
    few_batches = ("64", "256") if gpu else ("256", "128") if everything else ("256",)
    some_sizes = CUDA_SIZES if gpu else CPU_SIZES if everything else ("3.2M",)
    chosen = _listed("sizes", sizes, tuple(SIZES), some_sizes)
    return Plan(
        sizes=chosen,
        growth_size="3.2M" if "3.2M" in chosen else None,
        dtypes=_listed("dtypes", dtypes, both, both if everything and not gpu else some),
        workloads=_listed("workloads", "fixed" if gpu and not everything else workloads, NAMES, NAMES),
        batches=[int(n) for n in _listed("batches", batches, None, few_batches)],
        measures=_listed("what", what, MEASURES, few),
        rounds=rounds,
        threads=threads,
        device=device,
        # 16,384 packed tokens for a GPU: 171 sequences of 96.
        learning_samples=168 if gpu else samples,
        grpo_samples=samples,
    )


def _listed(name: str, text: str | None, known: Sequence[str] | None, default: Sequence[str]) -> tuple[str, ...]:
    """The words of a list with commas; numbers where nothing is known."""
    if text is None:
        return tuple(default)
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    for word in words:
        if known is not None and word not in known:
            raise UserError(f"--{name}: '{word}' is not known; {nearest(word, known)}")
        if known is None and not (word.isdigit() and int(word)):
            raise UserError(f"--{name}: '{word}' is not a number above 0")
    if not words:
        raise UserError(f"--{name} is empty; leave it out, or give one of {', '.join(known or default)}")
    return words
