"""A small run in a process that can be broken at any place, and how its outcome is checked."""

import contextlib
import gc
import importlib.util
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posttrain.cli import main
from posttrain.policies.folder import new_folder
from tests.runs.processes import contents

IMPORTS = """
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.methods.sft_rl.sft import sft
"""
IMPORTS_BEFORE = """
from posttrain.recipe_changes import rl_of, sft_of
from posttrain.recipes.ppo import ppo
from posttrain.recipes.sft import sft
"""
"""The same in commits before methods/, which `python -m benchmarks.power --against` compares with."""
RECIPE = """
from dataclasses import replace

def score(completion, task):
    return (sum(map(ord, completion)) + len(task.prompt)) % 7 / 6

def small():
    "Imitation, then PPO with a critic and a reference: something of everything that a checkpoint can hold."
    recipe = ppo()
    imitation = replace(sft_of(sft()), max_steps=2, batch=4)
    return replace(recipe, name="small", stages={"sft": imitation, "rl": replace(rl_of(recipe), steps=5, prompts=2)})
"""
SETTINGS = (
    "mine.py:small",
    "model=tiny",
    "tasks=sums.jsonl",
    "evaluation.holdout=4",
    "evaluation.every=2",
    "rollout.n=3",
    "rollout.sampling.max_tokens=8",
    "reward={kind: function, path: 'mine.py:score', time_limit: null}",  # in the run's process, which it harms
    "checkpoints.every_steps=2",
    "threads=1",
)
RUN = Path("runs/small-1")
_IMPORTED = ("posttrain.", "torch.", "transformers", "ruamel", "duckdb", "numpy", "safetensors", "tokenizers", "jinja2")
"""What takes long to import, and can be imported at any time."""
TRACES = ("Traceback", "bug in posttrain")
Sabotage = Callable[[], None]


@dataclass(frozen=True)
class Ended:
    """How a process ended; a negative code is a signal."""

    code: int
    output: str


@dataclass
class Tally:
    """The outcomes of one kind of fault."""

    fault: str
    tried: int = 0
    same: int = 0
    """Ended, or was resumed to end, bit for bit like the run that was left alone."""
    stopped: int = 0
    """Ended in a clear message first."""
    wrong: list[str] = field(default_factory=list)
    """Anything else."""
    note: str = ""

    def count(self, *problems: str, same: bool = False, stopped: bool = False) -> None:
        """Add one trial; `problems` are what was not as it should be, empty ones are none."""
        found = [problem for problem in problems if problem]
        self.tried += 1
        self.same += same and not found
        self.stopped += stopped and not found
        self.wrong += found


class Workshop:
    """A folder with a model, tasks and a recipe; runs of it in forked processes, which start in milliseconds."""

    def __init__(self, folder: Path, seed: int, *settings: str) -> None:
        """Makes everything and runs the recipe once, left alone; `settings` come after `SETTINGS`."""
        self.settings = (*SETTINGS, *settings)
        self.rng = random.Random(seed)
        self.reports = True
        """Whether runs end with a report, which takes as long as the run, and which nothing is compared with."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        os.chdir(folder)
        before = importlib.util.find_spec("posttrain.recipe_changes") is not None
        Path("mine.py").write_text((IMPORTS_BEFORE if before else IMPORTS) + RECIPE)
        rows = [{"question": f"{i}+{i % 7}=", "answer": str(i + i % 7), "solution": f" {i + i % 7}"} for i in range(40)]
        Path("sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        new_folder(Path("tiny"), layers=1, width=32, heads=2, kv_heads=1, context=64)
        began = time.monotonic()
        ended = self.run(count_operations_and_modules)
        self.seconds = time.monotonic() - began
        assert ended.code == 0, ended.output
        self.operations = int(Path("operations").read_text())
        self.undisturbed = contents(RUN)
        shutil.move(RUN, "alone")
        for name in Path("modules").read_text().split():
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        gc.collect()
        gc.freeze()  # or each child would look through all of it

    def run(self, sabotage: Sabotage | None = None, meanwhile: Callable[[int], None] | None = None) -> Ended:
        """A new run, in place of the one before."""
        shutil.rmtree(RUN, ignore_errors=True)
        return self.command(["run", *self.settings], sabotage, meanwhile)

    def resume(self, sabotage: Sabotage | None = None, meanwhile: Callable[[int], None] | None = None) -> Ended:
        """The run, continued."""
        return self.command(["resume", str(RUN)], sabotage, meanwhile)

    def command(
        self,
        arguments: Sequence[str],
        sabotage: Sabotage | None = None,
        meanwhile: Callable[[int], None] | None = None,
    ) -> Ended:
        """A command in a process of its own; `meanwhile` gets its id while it runs."""
        log = self.folder / f"output-{time.monotonic_ns()}"
        child = os.fork()
        if not child:
            _be_the_child(arguments, sabotage, log, report=self.reports)
        if meanwhile is not None:
            meanwhile(child)
        _, status = os.waitpid(child, 0)
        output = log.read_text(errors="replace") if log.exists() else ""
        log.unlink(missing_ok=True)
        return Ended(os.waitstatus_to_exitcode(status), output)

    def difference(self, lost: Sequence[str] = ()) -> str:
        """What is not as in the run that was left alone, but for these `lost` numbers of evaluations; else empty."""
        ours = contents(RUN)
        names = sorted(name for name in ours | self.undisturbed if ours.get(name) != self.undisturbed.get(name))
        if lost and _evaluations(RUN, lost) == _evaluations(Path("alone"), lost):
            names = [name for name in names if name != "evals.jsonl"]
        left = [p.name for p in RUN.rglob(".*") if p.name != ".lock"]
        return f"differs from the undisturbed run in {names}" if names else f"left behind {left}" if left else ""

    def resumed_the_same(self) -> str:
        """Resume to the end; what was wrong with it, empty when nothing was."""
        return ended_well(self.resume()) or self.difference()

    def interrupted(self) -> None:
        """A run that was killed in its sixth step, with two checkpoints."""
        if not Path("interrupted").is_dir():
            ended = self.run(kill_after_steps(5))
            assert ended.code == -signal.SIGKILL, ended.output
            shutil.copytree(RUN, "interrupted")
        shutil.rmtree(RUN, ignore_errors=True)
        shutil.copytree("interrupted", RUN)


def _evaluations(run: Path, without: Sequence[str]) -> list[dict[str, Any]]:
    rows = map(json.loads, (run / "evals.jsonl").read_text().splitlines())
    return [{name: value for name, value in row.items() if name not in without} for row in rows]


def without_report() -> None:
    """Have this process write no report."""
    from posttrain.runs import launch

    vars(launch)["write_report"] = lambda folder: None


def _be_the_child(arguments: Sequence[str], sabotage: Sabotage | None, log: Path, *, report: bool) -> None:
    """Run a command and leave, without whatever the parent would do at its end."""
    code = 99
    try:
        os.environ["CI"] = "true"
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        if not report:
            without_report()
        if sabotage is not None:
            sabotage()
        code = main(list(arguments))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def clear_stop(ended: Ended, code: int, *words: str) -> str:
    """What is wrong with a stop that should have this code and these words in its message; empty when nothing is."""
    if ended.code != code:
        return f"ended with {ended.code}, not {code}: {ended.output[-300:]}"
    absent = [word for word in (*words, "error: ") if word not in ended.output]
    shown = [trace for trace in TRACES if trace in ended.output]
    return f"said {shown or ''}, not {absent}: {ended.output[-300:]}" if absent or shown else ""


def ended_well(ended: Ended, *words: str) -> str:
    """What is wrong with a run that should have come to its end and printed these words; empty when nothing is."""
    absent = [word for word in words if word not in ended.output]
    return f"ended with {ended.code}, without saying {absent}: {ended.output[-300:]}" if ended.code or absent else ""


# Sabotage: what a process does to itself


def die() -> None:
    """The end that no handler sees."""
    os.kill(os.getpid(), signal.SIGKILL)


def _on_file_operations(act: Callable[[str], None]) -> None:
    """Call `act` with the path before each file operation of Python on a run's files."""

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if (event == "open" or event.startswith(("os.", "shutil."))) and arguments:
            path = os.fsdecode(arguments[0]) if isinstance(arguments[0], str | bytes | os.PathLike) else ""
            if str(RUN) in path:
                act(path)

    sys.addaudithook(hook)


def count_operations_and_modules() -> None:
    """Leave the number of file operations in a file, and what is imported in another, for later runs to find it so."""
    seen = 0

    def act(path: str) -> None:
        nonlocal seen
        seen += 1
        if path.endswith(".report.html.tmp"):
            Path("modules").write_text("\n".join(name for name in list(sys.modules) if name.startswith(_IMPORTED)))
        descriptor = os.open("operations", os.O_WRONLY | os.O_CREAT)
        os.pwrite(descriptor, str(seen).encode(), 0)
        os.close(descriptor)

    _on_file_operations(act)


def kill_at_operation(number: int, part: str = "") -> Sabotage:
    """Die before the given file operation on a path that holds `part`."""

    def sabotage() -> None:
        left = number

        def act(path: str) -> None:
            nonlocal left
            left -= part in path
            if left <= 0 and part in path:
                die()

        _on_file_operations(act)

    return sabotage


def kill_in_a_line(number: int) -> Sabotage:
    """Die when half of the given line of the record is written."""

    def sabotage() -> None:
        from posttrain.runs import journal

        left, write = number, os.write

        def write_half(descriptor: int, content: bytes) -> int:
            nonlocal left
            left -= 1
            if left <= 0:
                write(descriptor, content[: len(content) // 2])
                die()
            return write(descriptor, content)

        patched = type(sys)("os")
        patched.__dict__.update(os.__dict__, write=write_half)
        journal.os = patched  # type: ignore[attr-defined]

    return sabotage


def kill_in_evaluation(number: int) -> Sabotage:
    """Die when the answers of the given evaluation have been scored, and nothing of it is written."""

    def sabotage() -> None:
        from posttrain.evaluation import greedy as evaluation
        from posttrain.runs import run

        left, evaluate = number, evaluation.evaluate

        def scored_and_dead(*arguments: object, **settings: object) -> object:
            nonlocal left
            left -= 1
            evaluated = evaluate(*arguments, **settings)  # type: ignore[arg-type]
            if left <= 0:
                die()
            return evaluated

        vars(run)["evaluate"] = scored_and_dead

    return sabotage


def at_the_end_of_step(step: int, act: Sabotage) -> Sabotage:
    """Do something when a step is in the record, and its rollouts are not."""

    def sabotage() -> None:
        from posttrain.runs.store import RunStore

        log_metrics = RunStore.log_metrics

        def log_and_act(store: RunStore, number: int, *arguments: object) -> None:
            log_metrics(store, number, *arguments)  # type: ignore[arg-type]
            if number == step:
                act()

        RunStore.log_metrics = log_and_act  # type: ignore[method-assign, assignment]

    return sabotage


def kill_after_steps(steps: int) -> Sabotage:
    """Die when that many steps are in the record."""
    return at_the_end_of_step(steps, die)


def shake_clocks(seed: int) -> Sabotage:
    """Every reading of a clock gives any time at all: days back, years ahead."""

    def sabotage() -> None:
        rng = random.Random(seed)
        moment, since = time.localtime, time.strftime
        for name in ("time", "monotonic", "perf_counter"):
            setattr(time, name, lambda: rng.uniform(0.0, 4e9))
        time.strftime = lambda form, *_: since(form, moment(rng.uniform(0.0, 4e9)))

    return sabotage
