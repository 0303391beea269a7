"""Measure posttrain and its peers in turns, A B A B, and write docs/measured/performance/peers_SIZE_WORKLOAD.json.

    python -m benchmarks.peers                                        3.2M, both workloads: about ten minutes
    python -m benchmarks.peers --sizes 25M --workloads ragged         another model
    python -m benchmarks.peers --sides posttrain,trl --rounds 3       less of it
    python -m benchmarks.peers --sizes 135M --samples 64 --apart      tries TRL's micro-batches first
    python -m benchmarks.peers --device cuda                          Qwen2.5-0.5B's shape in bfloat16, on a GPU
    python -m benchmarks.peers --missing                              what is not there yet: goes on after a stop

The peers run in `.venv-peers` (`make bench-peers` makes it), posttrain in this environment, each as a child that stays
alive and measures its own wall time, with the same number of threads, the same model folder, prompts and reward.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.peers.outcome import compared, same_results, summary
from posttrain.runs.environment import available_cores
from posttrain.runs.speed.benchmark import LEARNING_ROWS, command_line, environment, gpu, machine, model_folder
from posttrain.runs.speed.children import Child, ChildFailed
from posttrain.runs.speed.sizes import CUDA_SIZES, SIZES
from posttrain.runs.speed.workloads import NAMES

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "docs" / "measured" / "performance"
PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
OURS = [sys.executable, "-m", "posttrain.runs.speed.worker"]
TRAINERS = ("posttrain", "trl", "trl_cb", "bare")
SAMPLERS = ("posttrain", "generate")
CONTINUOUS = {"page_size": 32, "num_blocks": 2048, "max_batch_tokens": 512, "allow_block_sharing": False}
"""Left to itself, continuous batching takes half of the machine's memory; this holds every sequence at once."""


class Side:
    """A contestant: a child, the question that starts it, and what it has answered."""

    def __init__(self, figure: Mapping[str, Any], turn: Callable[[], dict[str, Any]]):
        self.figure, self._turn = dict(figure), turn
        self.rounds: list[dict[str, Any]] = []
        self.steps: list[dict[str, Any]] = []
        """The same, with the warm-up: the curves begin at the first step."""
        self.child: Child | None = None
        self.failed: str | None = None

    @property
    def name(self) -> str:
        """Who does what."""
        return f"{self.figure['side']} {self.figure['measure']} {self.figure['dtype']}"

    def take(self, *, kept: bool) -> str:
        """Take a turn; a side that fails is out, and the reason is kept."""
        if self.failed is not None:
            return "-"
        try:
            result = self._turn()
        except ChildFailed as error:
            self.failed = str(error)
            return "failed"
        self.steps.append(result)
        if kept:
            self.rounds.append(result)
        return f"{result['seconds']:.2f}"


def main() -> int:
    options = read_options()
    if shutil.which(options.peers_python) is None:
        print(f"error: there is no {options.peers_python}; make bench-peers makes .venv-peers", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as models:
        for size in options.sizes:
            for workload in options.workloads:
                for dtype in options.dtypes if options.apart else [None]:
                    measure_and_write(options, size, workload, dtype, Path(models))
    return 0


def measure_and_write(options: argparse.Namespace, size: str, workload: str, dtype: str | None, models: Path) -> None:
    """Measure a model and a workload, in one number type alone if it is given, into a file of their own."""
    where = "" if options.device == "cpu" else f"{options.device}_"
    target = options.out / f"peers_{where}{size}_{workload}{'' if dtype is None else f'_{dtype}'}.json"
    if options.missing and target.exists():
        say(f"{target.name} is there already")
        return
    own = {} if dtype is None else {"dtypes": [dtype], "peer_dtypes": [dtype]}
    result = measure(argparse.Namespace(**{**vars(options), **own}), size, workload, models)
    target.write_text(json.dumps(result if dtype is None else {**result, "dtype": dtype}, indent=1) + "\n")
    say(f"wrote {target.name}")
    for line in result["comparison"]:
        say(f"  {line['what']}: {line['ratio']:.2f}")


def measure(options: argparse.Namespace, size: str, workload: str, models: Path) -> dict[str, Any]:
    """One model and one workload, all sides in turns."""
    model = str(model_folder(models, size, workload))
    with ExitStack() as stack:
        sides = list(make_sides(options, size, workload, model, stack))
        for number in range(-options.warm_up, options.rounds):
            said = []
            for side in sides:
                said.append(side.take(kept=number >= 0))
                if number == -options.warm_up:
                    say(f"  first turn of {side.name}: {said[-1]} s")
            say(f"{size} {workload} {f'round {number + 1}' if number >= 0 else 'warm-up'}: {' '.join(said)} s")
        end(sides)
    return {
        "command": command_line("python -m benchmarks.peers"),
        "machine": machine(options.threads) | gpu(options.device),
        "peers": peer_versions(options.peers_python),
        "size": size,
        "workload": workload,
        "figures": summary(sides),
        "comparison": compared(sides),
        "same_results": same_results(sides, Path(model)),
    }


def make_sides(options: argparse.Namespace, size: str, workload: str, model: str, stack: ExitStack) -> Any:
    """Start the children, one after the other, and give their sides in the order of the turns."""
    own = {"model": model, "workload": workload, "threads": options.threads, "device": options.device}
    base = {"size": size, "workload": workload}
    for dtype in dict.fromkeys([*options.dtypes, *options.peer_dtypes]):
        spec = {"measure": "limits", "size": size, "dtype": dtype, "threads": options.threads, "device": options.device}
        cases = {
            "limits": {**spec, "rows": sorted({*options.batches, options.samples}), "learning_rows": LEARNING_ROWS}
        }
        ours = start("limits", OURS, options, stack, cases=cases)
        figure = {**base, "measure": "limits", "side": "machine", "dtype": dtype}
        yield Side(figure, lambda child=ours[0]: child.request(do="turn", case="limits"))
    for name in [side for side in TRAINERS if side in options.sides]:
        for dtype in options.dtypes if name == "posttrain" else options.peer_dtypes:
            figure = {**base, "measure": "grpo", "side": name, "dtype": dtype, "samples": options.samples}
            asked = {**own, "dtype": dtype, "samples": options.samples}
            if name == "posttrain":
                question: dict[str, Any] = {"grpo": asked}
            elif name == "trl" and options.micro_batches:
                asked["kind"], asked["continuous_batching"] = name, None
                question, figure["tried"] = best_micro_batch(asked, options)
                figure["micro_batch"] = question["micro_batch"]
            else:
                question = {**asked, "kind": name, "continuous_batching": CONTINUOUS if name == "trl_cb" else None}
            yield from one_side(figure, OURS if name == "posttrain" else theirs(options), options, stack, question)
    for batch in options.batches:
        for name in [side for side in SAMPLERS if side in options.sides]:
            for dtype in options.dtypes:
                figure = {**base, "measure": "sampling", "side": name, "dtype": dtype, "batch": batch}
                asked = {**own, "dtype": dtype, "samples": batch}
                if name == "posttrain":
                    case = {**asked, "measure": "sampling", "size": size, "slots": batch}
                    child, _ = start(f"posttrain sampling {dtype}", OURS, options, stack, cases={"sampling": case})
                    yield Side(figure, lambda child=child: child.request(do="turn", case="sampling"))
                else:
                    yield from one_side(figure, theirs(options), options, stack, {**asked, "kind": "generate"})


def best_micro_batch(asked: dict[str, Any], options: argparse.Namespace) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The question with the micro-batch whose step takes the least time, and what each took. One after the other, since
    each takes gigabytes.
    """
    if len(options.micro_batches) == 1:
        return {**asked, "micro_batch": options.micro_batches[0]}, []
    tried: list[dict[str, Any]] = []
    for size in options.micro_batches:
        result: dict[str, Any] = {"micro_batch": size}
        with ExitStack() as stack:
            try:
                child, _ = start(f"trl, micro-batch {size}", theirs(options), options, stack, **asked, micro_batch=size)
                turns = [child.request(do="turn")["seconds"] for _ in range(options.warm_up + options.tries)]
                result["seconds"] = turns[options.warm_up :]
                result |= child.end()
            except ChildFailed as error:
                result["failed"] = str(error)
        say(f"  micro-batch {size}: {result.get('seconds', 'failed')} s")
        tried.append(result)
    done = [result for result in tried if "seconds" in result]
    if not done:
        raise SystemExit(f"trl takes no step with any micro-batch: {tried[-1]['failed']}")
    best = min(done, key=lambda result: statistics.median(result["seconds"]))
    return {**asked, "micro_batch": best["micro_batch"]}, tried


def one_side(
    figure: dict[str, Any], command: Sequence[str], options: argparse.Namespace, stack: ExitStack, question: Any
) -> Any:
    """A side whose child does one thing; it reports where it cannot even start."""
    side = Side(figure, dict)
    try:
        child, ready = start(side.name, command, options, stack, **question)
    except ChildFailed as error:
        side.failed = str(error)
        say(f"{side.name} does not start: {str(error).splitlines()[0]}")
        yield side
        return
    figure["seconds_to_ready"] = ready["seconds_to_ready"]
    if "logp" in ready:
        figure["logp"] = ready["logp"]
    side = Side(figure, lambda: child.request(do="turn"))
    side.child = child
    yield side


def start(
    name: str, command: Sequence[str], options: argparse.Namespace, stack: ExitStack, **question: Any
) -> tuple[Child, dict[str, Any]]:
    """A child that is ready."""
    say(f"starting {name}")
    own = environment(options.threads)
    if command is not OURS:
        own["PYTHONPATH"] = os.pathsep.join([str(ROOT), own["PYTHONPATH"]])
    child = Child(name, command, own, limit=options.limit)
    stack.callback(child.close)
    return child, child.start(**question)


def end(sides: Sequence[Side]) -> None:
    """Ask every trainer how much memory it took, of a GPU too."""
    for side in sides:
        if side.child is not None and side.failed is None and side.figure["measure"] == "grpo":
            side.figure |= side.child.end()


def theirs(options: argparse.Namespace) -> list[str]:
    """The command of a child of the peers."""
    return [options.peers_python, "-m", "benchmarks.peers.theirs"]


def peer_versions(python: str) -> dict[str, str]:
    """What the peers' environment has of what it requires."""
    lines = (ROOT / "benchmarks" / "peers" / "requirements.txt").read_text().splitlines()
    names = [line.split("==")[0] for line in lines if "==" in line]
    ask = "import sys; from importlib.metadata import version; print(*(version(name) for name in sys.argv[1:]))"
    told = subprocess.run([python, "-c", ask, *names], capture_output=True, text=True, check=True).stdout
    return dict(zip(names, told.split(), strict=True))


def read_options() -> argparse.Namespace:
    def listed(known: Sequence[str]) -> Callable[[str], list[str]]:
        def read(text: str) -> list[str]:
            words = text.split(",")
            if wrong := [word for word in words if word not in known]:
                raise argparse.ArgumentTypeError(f"'{wrong[0]}' is not one of {', '.join(known)}")
            return words

        return read

    def counts(text: str) -> list[int]:
        return [int(n) for n in text.split(",")]

    dtypes = ("float32", "bfloat16")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sizes", type=listed(list(SIZES)), help="3.2M; on a GPU qwen2.5-0.5b")
    parser.add_argument("--workloads", type=listed(NAMES), default=list(NAMES))
    parser.add_argument("--sides", type=listed((*TRAINERS, "generate")), default=[*TRAINERS, "generate"])
    parser.add_argument("--dtypes", type=listed(dtypes), help="posttrain's: both; on a GPU bfloat16")
    parser.add_argument("--peer-dtypes", type=listed(dtypes), help="float32; on a GPU bfloat16")
    parser.add_argument("--batches", type=counts, default=[256])
    parser.add_argument("--samples", type=int, default=128, help="of a step of GRPO")
    parser.add_argument("--apart", action="store_true", help="each type in a run and a file of its own, for memory")
    parser.add_argument("--micro-batches", type=counts, help="of TRL, of which the fastest is taken; at 135M 8,16,32")
    parser.add_argument("--tries", type=int, default=1, help="steps of each micro-batch that are measured")
    parser.add_argument("--rounds", type=int, default=8, help="that are kept")
    parser.add_argument("--warm-up", type=int, default=1)
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for one answer")
    parser.add_argument("--missing", action="store_true", help="leave alone what is there already")
    parser.add_argument("--peers-python", default=str(PEERS_PYTHON), help="that has the peers: .venv-peers' own")
    parser.add_argument("--out", type=Path, default=OUTPUT)
    options = parser.parse_args()
    gpu = options.device == "cuda"
    options.sizes = options.sizes or ([CUDA_SIZES[0]] if gpu else ["3.2M"])
    if options.micro_batches is None:
        options.micro_batches = [8, 16, 32] if "135M" in options.sizes else []
    options.dtypes = options.dtypes or (["bfloat16"] if gpu else list(dtypes))
    options.peer_dtypes = options.peer_dtypes or ["bfloat16" if gpu else "float32"]
    return options


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
