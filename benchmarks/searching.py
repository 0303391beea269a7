"""Measure search and 'solved' of `posttrain view` on a made-up run of many steps.

    python -m benchmarks.searching --steps 100000 [--folder FOLDER]    a table: seconds of each page
    python -m benchmarks.searching --build 3200                        seconds of the index of a run of 3200 steps

Each step has sixteen rollouts of about 140 characters, nearly all of them different. The first measures the viewer
itself, through HTTP: the table of every thousand steps in the index is made directly, and the files of the steps, which
are inspected but not read then, are a few under many names. The second writes every file as a run does.
"""

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

from posttrain.runs.tables import new_connection, quoted
from posttrain.viewer import index as indexes
from posttrain.viewer.index import FOLDER, Index, Source
from tests.runs.made_runs import make_run

ROLLOUTS = 16
WORDS = "apples so then we add the number of marbles which is times equals dollars each remaining therefore total half"
PAGES = {
    "newest": "search",
    "wrong answers": "search?status=wrong",
    "highest reward": "search?order=highest",
    "written most often": "search?order=repeated",
    "page 5,000": "search?page=5000",
    "a frequent expression": "search?" + urlencode({"text": r"#### 1\d\d$"}),
    "the same by reward": "search?" + urlencode({"text": r"#### 1\d\d$", "order": "highest"}),
    "a word written once": "search?text=zebra",
    "a word never written": "search?text=giraffe",
    "an expression without literals": "search?" + urlencode({"text": r"\d{7}"}),
    "one task": "search?task=task-17",
    "solved by domain": "solved?by=domain",
    "solved by task": "solved?by=task",
}
"""What is asked, and its address below that of the run."""


def made(first: int, steps: int) -> str:
    """A query of the columns that the index has, for some steps; a zebra is in the rollouts of one step."""
    words = "[" + ", ".join(f"'{word}'" for word in WORDS.split()) + "]"
    text = " || ' ' || ".join(
        f"({words})[1 + (hash(row * 31 + {i}) % {len(WORDS.split())})::INTEGER] || ' ' || "
        f"(hash(row * 17 + {i}) % 1000)::VARCHAR"
        for i in range(12)
    )
    return f"""
        SELECT (row // {ROLLOUTS})::INTEGER AS step, 'rl' AS stage, ((row % {ROLLOUTS}) // 8)::INTEGER AS group_index,
            (row % 8)::INTEGER AS sample, 0 AS version, 'task-' || (row // 8 * 7919 % 2000) AS task_key,
            'kind-' || (row // 8 % 5) AS domain, 'How much is ' || (row // 8 * 7919 % 2000) || ' and 5?' AS prompt,
            []::VARCHAR[] AS images, {text} || CASE WHEN row = 160007 THEN ' zebra' ELSE '' END || ' #### '
            || (hash(row) % 1000)::VARCHAR AS completion, '42' AS answer, 'stop' AS stop_reason,
            (hash(row) % 2)::DOUBLE AS reward, CASE WHEN hash(row) % 2 = 1 THEN 'ok' ELSE 'wrong' END AS score_status,
            (hash(row) % 1000)::VARCHAR AS score_answer, (hash(row) % 1000) || ' is not 42' AS score_explanation,
            NULL::VARCHAR AS dropped_reason, (50 + hash(row) % 50)::BIGINT AS num_tokens,
            -((hash(row) % 10000)::DOUBLE / 10000) AS mean_logp, (hash(row + 1) % 10000)::DOUBLE / 10000 AS mean_entropy
        FROM (SELECT {first * ROLLOUTS} + range AS row FROM range({steps * ROLLOUTS}))"""


def make(folder: Path, steps: int) -> Path:
    """A run whose index is there."""
    run = make_run(folder, sft=1, rl=50, tasks=4)
    tables = sorted((run / "rollouts").iterdir())
    for step in range(steps):
        if not (path := run / "rollouts" / f"step_{step:06d}.parquet").exists():
            os.link(tables[step % len(tables)], path)
    index = Index(run)
    index.steps()
    (run / FOLDER).mkdir()
    with new_connection() as connection:
        for first, last in index._seen.ranges():
            path = index._path(first, last)
            if path is not None:
                whole = folder / "made.parquet"
                query = f"SELECT *, md5_number_lower(completion) AS text_hash FROM ({made(first, last - first + 1)})"
                connection.execute(f"COPY ({query}) TO {quoted(whole)} (FORMAT parquet)")
                indexes._write(path, Source(first, last, (whole,), True))
    return run


def write_steps(run: Path, first: int, steps: int) -> None:
    """Files of steps as a run writes them, with tokens."""
    tokens = "range(num_tokens) AS token_ids, [mean_logp for i in range(num_tokens)] AS sampled_logp, "
    tokens += "[mean_entropy for i in range(num_tokens)] AS entropy"
    own = "* EXCLUDE (num_tokens, mean_logp, mean_entropy)"
    with new_connection() as connection:
        connection.execute(f"CREATE TABLE made AS SELECT {own}, {tokens} FROM ({made(first, steps)})")
        for step in range(first, first + steps):
            path = run / "rollouts" / f"step_{step:06d}.parquet"
            rows = f"SELECT * FROM made WHERE step = {step} ORDER BY group_index, sample"
            connection.execute(f"COPY ({rows}) TO {quoted(path)} (FORMAT parquet)")


@contextlib.contextmanager
def viewer(run: Path) -> Iterator[tuple[str, int]]:
    """A viewer of the run: the address of the run, and the number of the process."""
    command = [sys.executable, "-m", "posttrain", "view", str(run), "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        text = ""
        while not text.endswith("}\n"):
            text += process.stdout.readline()
        announced = json.loads(text)
        yield f"{announced['url']}runs/{run.name}/", announced["pid"]
    finally:
        process.kill()
        process.wait()


def asked(address: str, pid: int) -> tuple[float, float, dict[str, object]]:
    """Seconds of a page, seconds of all processors that the viewer took for it, and its answer."""
    began, before = time.perf_counter(), processor_seconds(pid)
    with urllib.request.urlopen(address + ("&" if "?" in address else "?") + "as=json") as answer:
        content = answer.read()
    return time.perf_counter() - began, processor_seconds(pid) - before, json.loads(content)


def processor_seconds(pid: int) -> float:
    """What a process has taken so far."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def measure(run: Path) -> None:
    """Print the seconds of every page."""
    with viewer(run) as (address, pid):
        seconds, own, _ = asked(address + "search", pid)
        print(f"the first page after the start: {seconds:.2f} s, {own:.2f} s of processors", flush=True)
        time.sleep(20)  # the index is checked
        print("\n| page | first | middle of 5 | worst | processors, middle of 5 | requests until all is searched |")
        print("|---|---|---|---|---|---|", flush=True)
        for name, page in PAGES.items():
            times = [(found := asked(address + page, pid))[0]]
            while found[2].get("left_out"):
                times.append((found := asked(address + page, pid))[0])
            later = [asked(address + page, pid)[:2] for _ in range(5)]
            middle = [sorted(found[i] for found in later)[2] for i in (0, 1)]
            worst = max(*times, *(found[0] for found in later))
            row = [f"{times[0]:.2f}", f"{middle[0]:.2f}", f"{worst:.2f}", f"{middle[1]:.2f}", len(times)]
            print(f"| {name} | {' | '.join(map(str, row))} |", flush=True)
        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 2**20
        print(f"\nresident memory of the viewer: {resident:.0f} MiB")
        write_steps(run, 1 + max(int(p.stem[5:]) for p in (run / "rollouts").iterdir()), 1)
        seconds, own, _ = asked(address + "search", pid)
        print(f"the newest page after one more step: {seconds:.2f} s, {own:.2f} s of processors")
        print(f"load average: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


def measure_build(folder: Path, steps: int) -> None:
    """Print the seconds of the index of a run that is there, and of one that grows."""
    run = make_run(folder, sft=1, rl=2, tasks=4)
    for path in (run / "rollouts").iterdir():
        path.unlink()
    write_steps(run, 0, steps)
    index = Index(run)

    def built() -> float:
        began = time.process_time()
        index.build()
        return time.process_time() - began

    print(f"the index of {steps} steps: {built():.1f} s of one core")
    write_steps(run, steps, 50)
    print(f"50 steps more: {built():.2f} s of one core")
    missing = -(steps + 50) % 1000
    write_steps(run, steps + 50, missing + 1)
    built_before = index.build()
    assert built_before is None
    size = sum(path.stat().st_size for path in (run / FOLDER).iterdir())
    own = sum(path.stat().st_size for path in (run / "rollouts").iterdir())
    print(f"the index takes {size / 2**20:.1f} MiB of disk, beside {own / 2**20:.1f} MiB of rollouts")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="where the run is made, and found again")
    parser.add_argument("--build", type=int, help="measure the making of the index for so many steps instead")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        if given.build:
            measure_build(Path(temporary), given.build)
            return
        folder = given.folder or Path(temporary)
        found = sorted(folder.glob("*/recipe.yaml"))
        measure(found[0].parent if found else make(folder, given.steps))


if __name__ == "__main__":
    main()
