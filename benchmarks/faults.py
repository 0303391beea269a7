"""Break runs in every way that is known, and count the result.

    python -m benchmarks.faults                       a hundred kills and every other fault
    python -m benchmarks.faults --kills 8 --quick     what continuous integration does

Each trial must end bit for bit like the run that was left alone, or in a clear stop after which a resume does. Exit
code 1 when one did not. Full and read-only disks need the right to mount a file system, and are skipped without it.
"""

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks import _power_cuts
from benchmarks._faulty import (
    RUN,
    SETTINGS,
    Sabotage,
    Tally,
    Workshop,
    at_the_end_of_step,
    clear_stop,
    ended_well,
    kill_at_operation,
    kill_in_a_line,
    kill_in_evaluation,
    shake_clocks,
)

OUTPUT = Path(__file__).resolve().parents[1] / "docs" / "measured" / "trust" / "faults.json"
STEPS = 7
Scene = Callable[[Workshop, bool], Iterator[Tally]]


def kills(shop: Workshop, number: int) -> Iterator[Tally]:
    """SIGKILL, `number` times; after each one a copy of what is left is resumed to its end and compared."""
    rng = shop.rng
    ways: dict[str, Callable[[], Sabotage | None]] = {
        "kill -9 at a random moment": lambda: None,
        "kill -9 at any file operation on the run": lambda: kill_at_operation(rng.randint(20, shop.operations)),
        "kill -9 in a checkpoint being written": lambda: kill_at_operation(rng.randint(1, 60), "/.tmp-step"),
        "kill -9 in half a line of the record": lambda: kill_in_a_line(rng.randint(2, 18)),
        "kill -9 in an evaluation": lambda: kill_in_evaluation(rng.randint(1, 4)),
        "kill -9 in the save of the final model": lambda: kill_at_operation(rng.randint(1, 9), "model-writing"),
        "kill -9 while summary and report are written": lambda: kill_at_operation(
            rng.randint(1, 3), rng.choice([".summary.json.tmp", ".report.html.tmp"])
        ),
    }
    tallies = {name: Tally(name) for name in ways}
    shares = [name for name in ways for _ in range(4 if name == next(iter(ways)) else 1)]
    fresh, dead = True, 0
    while dead < number:
        name = shares[dead % len(shares)]
        at = rng.uniform(0.0, shop.seconds) if ways[name]() is None else None
        ended = (shop.run if fresh else shop.resume)(ways[name](), None if at is None else _kill_after(at))
        fresh = ended.code != -signal.SIGKILL or not (RUN / "recipe.yaml").exists()
        if fresh:  # it had ended before its time came, or had not begun
            assert ended.code in (0, -signal.SIGKILL), ended.output
            continue
        dead += 1
        if dead % 10 == 0:
            print(f"{dead} of {number} kills", file=sys.stderr)
        shutil.rmtree("as-killed", ignore_errors=True)
        shutil.copytree(RUN, "as-killed")
        tallies[name].count(shop.resumed_the_same(), same=True)
        shutil.rmtree(RUN)
        shutil.move("as-killed", RUN)
        fresh = rng.random() < 0.3  # else what was killed is resumed, and killed again
    yield from tallies.values()


def _kill_after(seconds: float) -> Callable[[int], None]:
    def meanwhile(process: int) -> None:
        time.sleep(seconds)
        os.kill(process, signal.SIGKILL)

    return meanwhile


def signals(shop: Workshop, quick: bool) -> Iterator[Tally]:
    """Being asked to stop, politely and impatiently."""
    asked = {
        "SIGTERM": [signal.SIGTERM],
        "Ctrl-C": [signal.SIGINT],
        "Ctrl-C twice": [signal.SIGINT, signal.SIGINT],
    }
    for name, numbers in asked.items():
        tally = Tally(name)
        words = ("interrupted",) if len(numbers) > 1 else ("everything is saved. Go on with: posttrain resume",)
        for step in (4,) if quick else range(1, STEPS):
            ended = shop.run(at_the_end_of_step(step, partial(_send, numbers)))
            tally.count(clear_stop(ended, 130, *words) or shop.resumed_the_same(), same=True, stopped=True)
        yield tally


def _send(numbers: Sequence[int]) -> None:
    """Give this process signals, one after the other."""
    for number in numbers:
        os.kill(os.getpid(), number)


def disks(shop: Workshop, quick: bool) -> Iterator[Tally]:
    """Files that may not grow, disks that are full, file systems that become read-only."""
    tally = Tally("a file may not be as large as it has to be")
    for limit in (60_000,) if quick else (1_000, 3_000, 20_000, 60_000, 100_000):
        ended = shop.run(partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit, limit)))
        stop = clear_stop(ended, 1, "cannot write")
        again = shop.resumed_the_same() if (RUN / "recipe.yaml").exists() else ""
        tally.count(stop or again, same=True, stopped=True)
    yield tally
    full, read_only = Tally("the disk is full"), Tally("the file system is read-only")
    with _small_disk(Path("runs")) as why_not:
        if why_not:
            full.note = read_only.note = why_not
            yield from (full, read_only)
            return
        for left in (200_000,) if quick else (0, 4096, 8192, 50_000, 120_000, 200_000, 300_000):
            ended = shop.run(at_the_end_of_step(5, partial(_fill, left)))
            stop = clear_stop(ended, 1, "the disk is full", "posttrain resume")
            Path("runs/filler").unlink()
            full.count(stop or shop.resumed_the_same(), same=True, stopped=True)
        yield full
        shop.interrupted()
        subprocess.run(["mount", "-o", "remount,ro", "runs"], check=True)
        resumed, begun = shop.resume(), shop.command(["run", *SETTINGS])
        subprocess.run(["mount", "-o", "remount,rw", "runs"], check=True)
        read_only.count(clear_stop(begun, 1, "ead-only"), stopped=True)
        read_only.count(clear_stop(resumed, 1, "read-only") or shop.resumed_the_same(), same=True, stopped=True)
        yield read_only


@contextlib.contextmanager
def _small_disk(place: Path) -> Iterator[str]:
    """A file system of 4 MB at a place; gives why there is none, or nothing."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        yield f"not tried: {error}"
        return
    if mounted.returncode:
        yield f"not tried: {mounted.stderr.strip()}"
        return
    try:
        yield ""
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def _fill(left: int) -> None:
    """Take all room of the small disk but `left` bytes."""
    with open("runs/filler", "ab", buffering=0) as filler:
        with contextlib.suppress(OSError):
            while True:
                filler.write(bytes(4096))
        os.truncate("runs/filler", max(0, filler.tell() - left))


def folders(shop: Workshop, quick: bool) -> Iterator[Tally]:
    """Run folders that go away while they are used."""
    deleted, moved = Tally("the run's folder is deleted"), Tally("the run's folder is moved, and put back")
    for step in (5,) if quick else (1, 2, 3, 5, 6):
        ended = shop.run(at_the_end_of_step(step, lambda: shutil.rmtree(RUN)))
        back = "it came back to life" if RUN.exists() else ""
        deleted.count(clear_stop(ended, 1, "has been deleted or moved") or back, stopped=True)
        shutil.rmtree("elsewhere", ignore_errors=True)
        ended = shop.run(at_the_end_of_step(step, lambda: os.rename(RUN, "elsewhere")))
        stop = clear_stop(ended, 1, "If it was moved, put it back")
        shutil.rmtree(RUN, ignore_errors=True)
        os.rename("elsewhere", RUN)
        moved.count(stop or shop.resumed_the_same(), same=True, stopped=True)
    yield from (deleted, moved)


def checkpoint_files(shop: Workshop, quick: bool) -> Iterator[Tally]:
    """Every file of the newest checkpoint one after another, spoiled."""

    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[shop.rng.randrange(len(content))] ^= 1 << shop.rng.randrange(8)
        path.write_bytes(content)

    spoil: dict[str, Callable[[Path], None]] = {
        "a bit of a checkpoint file is flipped": flip,
        "a checkpoint file is cut short": lambda path: os.truncate(path, shop.rng.randrange(path.stat().st_size)),
        "a checkpoint file is gone": Path.unlink,
    }
    shop.interrupted()
    newest = max((RUN / "checkpoints").iterdir())
    files = sorted(path for path in newest.rglob("*") if path.is_file())
    for name, damage in spoil.items():
        tally = Tally(name)
        for path in shop.rng.sample(files, 3) if quick else files:
            shop.interrupted()
            damage(path)
            # Some bits of the manifest are nobody's: the order of keys, a running number. Nothing is wrong then.
            said = () if path.name == "manifest.json" else (f"bad checkpoint: {newest.name} is damaged and was passed",)
            tally.count(ended_well(shop.resume(), *said) or shop.difference(), same=True)
        yield tally
    tally = Tally("every checkpoint is damaged")
    shop.interrupted()
    for checkpoint in (RUN / "checkpoints").iterdir():
        flip(checkpoint / "state.json")
    tally.count(ended_well(shop.resume(), "went back to step 0") or shop.difference(), same=True)
    yield tally


def two_processes(shop: Workshop, quick: bool) -> Iterator[Tally]:
    """A second process on a run in progress."""
    tally = Tally("a second process on the same run")

    def second(process: int) -> None:
        while not (RUN / "metrics.jsonl").exists():
            time.sleep(0.002)
        tally.count(clear_stop(shop.resume(), 2, "is in use by process", str(process)), stopped=True)

    ended = shop.run(None, second)
    tally.count(ended_well(ended) or shop.difference(), same=True)
    yield tally


def clocks(shop: Workshop, quick: bool) -> Iterator[Tally]:
    """Clocks that jump at every look."""
    tally = Tally("clocks jump by days and years")
    for seed in range(1 if quick else 5):
        tally.count(ended_well(shop.run(shake_clocks(seed))) or shop.difference(), same=True)
    shop.interrupted()
    tally.count(ended_well(shop.resume(shake_clocks(99))) or shop.difference(), same=True)
    yield tally


def inputs(shop: Workshop, quick: bool) -> Iterator[Tally]:
    """The user's own files, changed between start and resume."""
    tasks = Tally("the task file changes before a resume")
    good = Path("sums.jsonl").read_text()
    changes = (good.replace("39", "93"), good[: len(good) // 2].rpartition("\n")[0] + "\n", good + good[:60])
    for bad in changes[:1] if quick else changes:
        shop.interrupted()
        Path("sums.jsonl").write_text(bad)
        stop = clear_stop(shop.resume(), 2, "sums.jsonl")
        Path("sums.jsonl").write_text(good)
        tasks.count(stop or shop.resumed_the_same(), same=True, stopped=True)
    yield tasks
    reward = Tally("the reward's file changes before a resume", note="goes on with the new one, and reports it")
    mine = Path("mine.py").read_text()
    shop.interrupted()
    Path("mine.py").write_text(mine + "# another\n")
    reward.count(
        ended_well(shop.resume(), "changed: the reward in mine.py is not the one") or shop.difference(), same=True
    )
    Path("mine.py").write_text(mine)
    yield reward
    model = Tally("a model's folder changes or goes before a resume")
    shutil.copytree("tiny", "as-it-was")
    for change in (lambda: os.truncate("tiny/config.json", 10), _other_weights, lambda: shutil.rmtree("tiny")):
        shop.interrupted()
        change()
        stop = clear_stop(shop.resume(), 2, "models.policy.source", "'tiny'", "Put back what was there")
        shutil.rmtree("tiny", ignore_errors=True)
        shutil.copytree("as-it-was", "tiny")
        model.count(stop or shop.resumed_the_same(), same=True, stopped=True)
    yield model


def _other_weights() -> None:
    """Another bit in the weights of the model that the run began with."""
    path = Path("tiny/model.safetensors")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def records(shop: Workshop, quick: bool) -> Iterator[Tally]:
    """Parts of the record that are gone when the run is resumed."""
    tables = Tally(
        "a table of the record is deleted before a resume",
        note="goes on, and reports which is gone; without that of the first evaluation there is no change since then",
    )
    lacks: dict[str, tuple[str, ...]] = {
        "rollouts/step_000003.parquet": (),
        "evals/step_000000.parquet": ("loss_change", "loss_change_interval"),
    }
    for name, lost in lacks.items():
        shop.interrupted()
        (RUN / name).unlink()
        # Where some steps never had rollouts, the message has how many files are gone, not which.
        problem = ended_well(shop.resume(), "incomplete record: gone since they were written: ", name.partition("/")[0])
        shutil.copy(Path("alone") / name, RUN / name)
        tables.count(problem or shop.difference(lost), same=True)
    yield tables
    journals = Tally("a journal of the record is cut or deleted before a resume")
    for name in ("metrics.jsonl", "evals.jsonl"):
        for cut in (lambda path: os.truncate(path, 10), Path.unlink):
            shop.interrupted()
            kept = (RUN / name).read_bytes()
            cut(RUN / name)
            stop = clear_stop(shop.resume(), 1, name, "Put the right one back")
            (RUN / name).write_bytes(kept)
            journals.count(stop or shop.resumed_the_same(), same=True, stopped=True)
    yield journals


def power_cuts(shop: Workshop, quick: bool) -> Iterator[Tally]:
    """What power cuts may leave; `python -m benchmarks.power` tries a thousand."""
    yield from _power_cuts.sweep(Workshop(shop.folder / "cut", 0, *_power_cuts.SHORT), 10 if quick else 100, 0)
    os.chdir(shop.folder)


SCENES: tuple[Scene, ...] = (
    signals, disks, folders, checkpoint_files, two_processes, clocks, inputs, records, power_cuts
)  # fmt: skip


def main() -> int:
    """Everything, into a file; 1 when anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="A few trials of each fault.")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    output, began, tallies = given.output.absolute(), time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        shop = Workshop(Path(folder), given.seed)
        scenes = (kills(shop, given.kills), *(scene(shop, given.quick) for scene in SCENES))
        for scene in scenes:
            for tally in scene:
                print(f"{tally.fault}: {tally.tried} tried, {len(tally.wrong)} wrong {tally.note}", file=sys.stderr)
                for problem in tally.wrong:
                    print(f"    {problem}", file=sys.stderr)
                tallies.append(tally)
            shop.reports = not given.quick  # kills had them
        os.chdir("/")
    columns = ["fault", "tried", "stopped clearly first", "ended like the undisturbed run", "went wrong", "remark"]
    rows = [[t.fault, t.tried, t.stopped, t.same, len(t.wrong), t.note] for t in tallies]
    found = {
        "title": "Faults",
        "command": f"python -m benchmarks.faults --kills {given.kills} --seed {given.seed}",
        "tables": [{"columns": columns, "rows": rows}],
        "seconds": round(time.monotonic() - began),
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(found, indent=1) + "\n")
    return int(any(tally.wrong for tally in tallies))


if __name__ == "__main__":
    sys.exit(main())
