"""Modelled power cuts: the file operations of a small run, what a cut at any of them may leave, and a resume of each.

The run is stopped by SIGTERM ("everything is saved"), resumed, killed in the next step, and resumed to its end, so that
repairs and rewinding are cut as well. A state is right where resume ends bit for bit like the undisturbed run, or stops
clearly before anything was saved; and where the checkpoint that was saved last, or the model, summary and report of the
end, are in it, whole.
"""

import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from benchmarks._crash_states import KINDS, Disk, digest
from benchmarks._faulty import RUN, Sabotage, Tally, Workshop, at_the_end_of_step, clear_stop, die, without_report
from benchmarks._file_trace import Operation, Recorder, Tree, read_trace, read_tree
from posttrain.runs import checkpoints

SHORT = ("stages.rl.steps=3",)
"""Settings of the run: two steps of imitation, then so many of PPO."""
ROOT = RUN.parent
TRACE = Path("trace")
LEAVES = "power cut that leaves: "
"""What the name of a modelled cut begins with."""
_AT_THE_END = ("small-1/model/", "small-1/summary.json", "small-1/report.html")


@dataclass(frozen=True)
class Place:
    """A power cut after an operation."""

    operation: int
    kind: str


def record(shop: Workshop) -> list[Operation]:
    """The operations of the three processes; the run is then at its end."""
    TRACE.unlink(missing_ok=True)
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir()
    stop = at_the_end_of_step(2, lambda: os.kill(os.getpid(), signal.SIGTERM))
    stopped = shop.run(_recorded({}, stop))
    assert stopped.code == 130 and "everything is saved" in stopped.output, stopped.output
    killed = shop.resume(_recorded(_replayed(), at_the_end_of_step(4, die)))
    assert killed.code == -signal.SIGKILL, killed.output
    ended = shop.resume(_recorded(_replayed()))
    assert ended.code == 0, ended.output
    assert _replayed() == read_tree(ROOT), "the trace does not lead to what is there"
    assert not shop.difference(), shop.difference()
    return read_trace(TRACE)


def _replayed() -> Tree:
    """The folder as the trace until now leaves it."""
    disk = Disk()
    for operation in read_trace(TRACE):
        disk.do(operation)
    return disk.now()


def _recorded(known: Tree, sabotage: Sabotage | None = None) -> Sabotage:
    """Have a process record what it does, and what it has saved, as soon as it could say so."""

    def start() -> None:
        recorder = Recorder(ROOT, TRACE, known)
        report_to(recorder.report)
        if sabotage is not None:
            sabotage()
        recorder.start()

    return start


def report_to(report: Callable[[str, str], None]) -> None:
    """Have this process call `report` with ``saved`` and the name of each checkpoint, and with ``ended``."""
    from posttrain.runs import launch

    save, execute = checkpoints.save, launch._execute

    def save_and_report(folder: Path, name: str, *arguments: object) -> Path:
        saved = save(folder, name, *arguments)  # type: ignore[arg-type]
        report("saved", name)
        return saved

    def execute_and_report(*arguments: object, **named: object) -> object:
        summary = execute(*arguments, **named)  # type: ignore[arg-type]
        report("ended", "")
        return summary

    vars(checkpoints)["save"], vars(launch)["_execute"] = save_and_report, execute_and_report


def places(operations: Sequence[Operation], number: int, seed: int) -> list[Place]:
    """About `number` cuts that leave different states: of each kind as many, where there are, at any operation."""
    rng = random.Random(seed)
    tried = set(rng.sample(range(len(operations)), min(len(operations), 2 * number)))
    disk, seen = Disk(), set()
    found: dict[str, list[Place]] = {kind: [] for kind in KINDS}
    for index, operation in enumerate(operations):
        disk.do(operation)
        for kind in KINDS if index in tried else ():
            one = digest(built(disk, Place(index, kind), seed))
            if one not in seen:
                seen.add(one)
                found[kind].append(Place(index, kind))
    for some in found.values():
        rng.shuffle(some)
    chosen = [some[i] for i in range(len(operations)) for some in found.values() if i < len(some)]
    return chosen[:number]


def built(disk: Disk, place: Place, seed: int) -> Tree:
    """The state that a cut leaves of a disk; the same whenever it is built."""
    return KINDS[place.kind](disk, random.Random(f"{seed}/{place.operation}/{place.kind}"))


class Judge:
    """Resumes states in a folder of its own."""

    def __init__(self, shop: Workshop, operations: Sequence[Operation], seed: int) -> None:
        """`shop` is where the operations were recorded, at the end of the run."""
        self.shop, self.operations, self.seed = shop, operations, seed
        self.final = read_tree(ROOT)

    def move(self) -> None:
        """Go on in a copy of the folder, so that several can work at once."""
        folder = Path(tempfile.mkdtemp(prefix="cuts-", dir=self.shop.folder)) / "shop"
        shutil.copytree(".", folder, ignore=shutil.ignore_patterns("cuts-*", ROOT.name))
        self.shop.folder = folder
        os.chdir(folder)

    def judge(self, place: Place) -> tuple[str, bool]:
        """What is wrong with a state and its resume, empty where nothing is; and whether it stopped clearly."""
        disk = Disk()
        for operation in self.operations[: place.operation + 1]:
            disk.do(operation)
        tree = built(disk, place, self.seed)
        shutil.rmtree(ROOT, ignore_errors=True)
        ROOT.mkdir()
        for path, content in tree.items():
            if content is None:
                (ROOT / path).mkdir()
            else:
                (ROOT / path).write_bytes(content)
        gone = lost(disk.reported, tree, self.final)
        ended = self.shop.resume(without_report)
        if ended.code == 2 and not disk.reported:
            return gone or clear_stop(ended, 2), True
        if ended.code:
            return f"{gone} ended with {ended.code}: {ended.output[-400:]}", False
        return gone or self.shop.difference(), False


def lost(reported: Sequence[tuple[str, str]], tree: Tree, final: Tree) -> str:
    """What had been reported and is not there, whole; empty where all is. `final` are the files of the end."""
    saved = [name for kind, name in reported if kind == "saved"]
    newest = checkpoints.newest(RUN / "checkpoints", lambda path, why: None)
    if saved and (newest is None or newest.name < saved[-1]):
        return f"lost: {saved[-1]} was saved, and the newest whole checkpoint is {newest and newest.name}."
    if ("ended", "") in reported:
        kept = {path: content for path, content in final.items() if path.startswith(_AT_THE_END)}
        gone = [path for path, content in kept.items() if tree.get(path, b"") != content]
        return f"lost: the end was reported, and these are gone: {gone}." if gone else ""
    return ""


def sweep(
    shop: Workshop,
    number: int,
    seed: int,
    workers: int = 1,
    meanwhile: Callable[[Sequence[Tally]], None] = lambda tallies: None,
) -> Iterator[Tally]:
    """Resume about `number` states, in several processes; a tally for each kind, `meanwhile` called after every 50."""
    operations = record(shop)
    chosen = places(operations, number, seed)
    global _judge
    _judge = Judge(shop, operations, seed)
    tallies = {kind: Tally(f"{LEAVES}{kind}") for kind in KINDS}
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), _settle) as pool:
        waiting = {pool.submit(_judged, place): place for place in chosen}
        for done in as_completed(waiting):
            place, (problem, stopped) = waiting[done], done.result()
            after = f"after operation {place.operation}, {operations[place.operation][:2]}"
            tallies[place.kind].count(problem and f"{after}: {problem}", same=not stopped, stopped=stopped)
            tried = sum(tally.tried for tally in tallies.values())
            if tried % 50 == 0:
                meanwhile(list(tallies.values()))
            if tried % 50 == 0 or problem:
                print(f"{tried} of {len(chosen)} power cuts{problem and ', wrong: '}{problem}", file=sys.stderr)
    yield from tallies.values()


_judge: Judge


def _settle() -> None:
    _judge.move()


def _judged(place: Place) -> tuple[str, bool]:
    return _judge.judge(place)
