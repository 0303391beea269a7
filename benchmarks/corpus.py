"""Try every hostile model folder, data set, run and recipe of the corpus, each in a process of its own.

    python -m benchmarks.corpus                     all of it, into docs/measured/trust/folders.json
    python -m benchmarks.corpus --only adapters     one class, and its row of the file; or the cases of one name
    python -m benchmarks.corpus --against TREE      the code of another checkout, into a column of its own

Prints a table by class. Clean is: exit 2 with a message of a few lines that holds no control character (1 with a
sentence where a run that had begun failed), or 0; within 10 s and 1 GB beyond a good input; nothing executed, nothing
outside changed, and no private file's contents in the run. Seconds are of processor time, so that a busy machine
changes nothing; a case is killed after 30 of them, or two minutes, and gets 8 GiB of address space. Good inputs of
the same kinds must work.
"""

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks import _hostile_data, _hostile_models, _hostile_runs, fuzz
from benchmarks._counts import run_against, write_counts
from benchmarks._hostile import SECRET, Make
from posttrain.cli import main as posttrain

OUTPUT = Path(__file__).resolve().parents[1] / "docs" / "measured" / "trust" / "folders.json"
CLASSES = {**_hostile_models.CLASSES, **_hostile_data.CLASSES, **_hostile_runs.CLASSES}
GOOD = "good inputs, which work"
CLASSES[GOOD] = {**_hostile_models.GOOD, **_hostile_data.GOOD, **_hostile_runs.GOOD}
SECONDS, BYTES = 10.0, 1 << 30
HANGS, _PROCESSOR = 120.0, 30
_LIMIT = 8 << 30
_LARGEST_FILE = 10 << 30


def run(folder: Path, make: Make | None, most: float = HANGS) -> tuple[int, str, float, int]:
    """Exit code, output, seconds of processor time and most bytes of a run in a folder that a case has changed."""
    extra = list(make() if make else ())
    arguments = extra[1:] if extra[:1] == ["!"] else _arguments(extra)
    sys.stdout.flush()
    began, child = time.monotonic(), os.fork()
    if not child:
        _child(arguments, folder / "log")
    while True:
        ended, status, used = os.wait4(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() - began > most:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    text = (folder / "log").read_text(encoding="utf-8", errors="replace")
    code, busy = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
    return code, text, busy, used.ru_maxrss * 1024


def _arguments(extra: Sequence[str]) -> list[str]:
    """A small run, with what a case adds in the place of what it replaces."""
    base = [part for part in fuzz.SMALL if part != "--dry-run" or "!train" not in extra]
    for name in ("tasks=", "model=", "threads="):
        if any(part.startswith((name, "models.policy.source=") if name == "model=" else name) for part in extra):
            base = [part for part in base if not part.startswith(name)]
    return ["run", *base, *(part for part in extra if part != "!train")]


def _child(arguments: Sequence[str], log: Path) -> None:
    """Run a command with its output in a file, and end."""
    resource.setrlimit(resource.RLIMIT_AS, (_LIMIT, _LIMIT))
    resource.setrlimit(resource.RLIMIT_CPU, (_PROCESSOR, _PROCESSOR))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
    file = os.open(log, os.O_CREAT | os.O_RDWR, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    try:
        code = posttrain(list(arguments))
    except BaseException as escaped:
        print(f"Traceback: {type(escaped).__name__} escaped: {escaped}")
        code = 99
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def make_good_files(folder: Path) -> None:
    """Make the valid files in a process of its own, since threads of torch do not survive a fork; go there."""
    if not (child := os.fork()):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        fuzz.make_place(folder)
        _hostile_runs.make_run(folder, posttrain, fuzz.SMALL)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "the valid files could not be made"
    os.chdir(folder)


def problem(folder: Path, found: tuple[int, str, float, int], good: tuple[int, str, float, int]) -> str:
    """What was not clean; an empty text where all was."""
    code, text, seconds, size = found
    message = text[text.rfind("error: ") :] if code else ""
    odd = [c for c in text if (ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 or c == "\u202e"]
    secret = SECRET.encode()
    copied = any(
        path.is_file() and not path.is_symlink() and path.stat().st_size < 1e8 and secret in path.read_bytes()
        for path in (folder / "runs").rglob("*")
    )
    wrong = {
        f"exit {code}": code not in (0, 2) and not (code == 1 and message.count("\n") == 1),
        "a traceback": "Traceback" in text or "bug in posttrain" in text or "panicked" in text,
        "control characters": bool(odd),
        f"a message of {len(message)} characters": len(message) > 2000,
        f"{seconds:.0f} s": seconds > SECONDS + good[2],
        f"{size >> 20} MB": size > BYTES + good[3],
        "a secret was copied": copied,
        "something outside was changed": _hostile_runs.outside_changed(),
        "something was executed": (folder / "executed").exists(),
    }
    return ", ".join(what for what, is_so in wrong.items() if is_so)


def try_class(cases: Mapping[str, Make], top: Path, good: tuple[int, str, float, int], must_work: bool) -> int:
    """Number of clean cases. What each printed goes to standard error."""
    clean = 0
    for number, (case, make) in enumerate(cases.items()):
        folder = top / f"case-{number}"
        shutil.copytree(top / "good", folder, ignore=shutil.ignore_patterns("runs", "log"))
        os.chdir(folder)
        found = run(folder, make)
        what = problem(folder, found, good) or ("it was refused" if must_work and found[0] else "")
        clean += not what
        print(f"{case}: {what or 'clean'}: {found[1].strip()[-200:]!r}", file=sys.stderr, flush=True)
        os.chdir(top)
        shutil.rmtree(folder)
    return clean


def try_classes(classes: Sequence[str], only: str | None) -> dict[str, tuple[int, int]]:
    """Cases tried and clean ones, by class; `only` leaves out those of another class and name."""
    import datasets  # noqa: F401  # that a case's time is its own
    import transformers  # noqa: F401

    counts = {}
    with tempfile.TemporaryDirectory(prefix="corpus-") as top:
        make_good_files(Path(top, "good"))
        run(Path.cwd(), None, most=600)  # the first run of a checkout compiles kernels
        good = run(Path.cwd(), None)
        for name in classes:
            chosen = {case: make for case, make in CLASSES[name].items() if only in (None, name, case)}
            counts[name] = len(chosen), try_class(chosen, Path(top), good, must_work=name == GOOD)
            print(f"{name:32}{counts[name][0]:6}{counts[name][1]:6}", flush=True)
    return counts


def _elsewhere(name: str) -> tuple[int, int]:
    """Try a class in another process of this program."""
    command = [sys.executable, "-m", "benchmarks.corpus", "--only", name]
    said = subprocess.run(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True, check=False).stdout
    *_, tried, clean = said.splitlines()[-1].split()
    print(f"{name:32}{tried:>6}{clean:>6}", flush=True)
    return int(tried), int(clean)


def main() -> int:
    """Try them; 1 where one was not clean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="A class, or the name of cases.")
    parser.add_argument("--against", type=Path, help="A checkout of another commit: its code is tried.")
    parser.add_argument("--jobs", type=int, default=1, help="Classes that are tried at a time.")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    os.environ["CI"], output = "true", given.output.absolute()
    if given.against:
        run_against(given.against, "benchmarks.corpus")
    against = given.against.absolute() if given.against else None
    classes = [name for name, cases in CLASSES.items() if given.only is None or given.only in (name, *cases)]
    if given.jobs > 1:
        with ThreadPoolExecutor(given.jobs) as pool:
            counts = dict(zip(classes, pool.map(_elsewhere, classes), strict=True))
    else:
        counts = try_classes(classes, given.only)
    if given.only is None or given.only in CLASSES:
        part = {"title": "A stranger's model or data", "command": "python -m benchmarks.corpus"}
        sizes = {name: len(cases) for name, cases in CLASSES.items()}
        write_counts(output, part, "what is hostile", counts, against, sizes)
    return int(against is None and any(tried != clean for tried, clean in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
