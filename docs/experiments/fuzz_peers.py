"""Generated guards beside AFL++ and atheris: which of their lines do inputs reach, in as many executions?

Sheet of row 124 (arXiv:2509.20384). Six programs of the tasks `guards`, five guards each, are one function of a number
that chooses the program and five more: 30 lines behind guards, by seed. `posttrain fuzz` has no model here, so that its
inputs are edits; it gets numbers, or bytes as the others. Atheris 3.0.0 runs the Python function, AFL++ 4.04c the same
in C by clang, once with CMPLOG, which reads the operands of comparisons. A number is one byte for numbers up to 30 and
two up to 999. Reported are the lines that an input in the corpus reaches, counted by running it once more, over seeds
with a 95 % interval. What is not installed is left out.

    apt-get install afl++ clang; pip install atheris==3.0.0
    python docs/experiments/fuzz_peers.py --seeds 5 --executions 5000
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path

from posttrain.components.tasks.guards import Guards
from posttrain.statistics.intervals import mean

PROGRAMS, DEPTH, NAMES = 6, 5, "abcde"
FUZZ = [sys.executable, "-m", "posttrain", "fuzz", "--json"]
HARNESS = """
import sys, atheris
sys.path.insert(0, {folder!r})
with atheris.instrument_imports():
    from in_bytes import target
atheris.Setup(sys.argv, lambda data: target(data) and None)
atheris.Fuzz()
"""
MAIN = """
#include <stdio.h>
#include <stddef.h>
int main(void) {{
    unsigned char data[{size}] = {{0}};
    size_t got = fread(data, 1, {size}, stdin);
    int which = data[0] % {programs};
{numbers}
{body}
    return got > 64;
}}
"""


def conditions(seed: int, largest: int) -> list[list[str]]:
    """The guards of each program, in the syntax of Python and C."""
    tasks = Guards(size=PROGRAMS, depth=(DEPTH, DEPTH), largest=largest, seed=seed).load()
    sources = dict.fromkeys(task.fields["source"] for task in tasks)
    return [[line.strip()[3:-1] for line in source.split("\n")[1:-1]] for source in sources]


def nested(programs: list[list[str]], behind: Callable[[int, int], str]) -> str:
    """The body of the function; `behind` is a statement for each guard."""
    lines = []
    for number, guards in enumerate(programs):
        lines.append(f"    if which == {number}:")
        for depth, guard in enumerate(guards, 1):
            lines += [f"{'    ' * (depth + 1)}if {guard}:", f"{'    ' * (depth + 2)}{behind(number, depth)}"]
    return "\n".join(lines)


def in_c(programs: list[list[str]], width: int) -> str:
    """The program in C, which reads its input."""
    body = []
    for number, guards in enumerate(programs):
        body.append(f"    if (which == {number}) {{")
        body += [f"    if ({guard}) {{ got += 1;" for guard in guards]
        body.append("    " + "}" * (len(guards) + 1))
    places = [1 + place * width for place in range(DEPTH)]
    high = [f" + 256 * data[{at + 1}]" if width == 2 else "" for at in places]
    numbers = [f"    int {n} = data[{at}]{more};" for n, at, more in zip(NAMES, places, high, strict=True)]
    size = 1 + DEPTH * width
    return MAIN.format(size=size, programs=PROGRAMS, numbers="\n".join(numbers), body="\n".join(body))


def decoded(content: bytes, width: int) -> list[int]:
    """The numbers of an input in bytes."""
    data = content + bytes(1 + DEPTH * width)
    return [data[0] % PROGRAMS, *(int.from_bytes(data[at : at + width], "little") for at in _places(width))]


def _places(width: int) -> range:
    return range(1, 1 + DEPTH * width, width)


def in_bytes(programs: list[list[str]], width: int) -> str:
    """The function of bytes in Python."""
    numbers = [f"data[{at}]" + (f" + 256 * data[{at + 1}]" if width == 2 else "") for at in _places(width)]
    head = ["def target(data: bytes) -> int:", f"    data = data + bytes({1 + DEPTH * width})"]
    head += [f"    which = data[0] % {PROGRAMS}", *(f"    {n} = {own}" for n, own in zip(NAMES, numbers, strict=True))]
    return "\n".join([*head, "    got = 0", nested(programs, lambda *_: "got += 1"), "    return got\n"])


def in_numbers(programs: list[list[str]]) -> str:
    """The function of numbers in Python."""
    head = f"def target(which: int, {', '.join(f'{name}: int' for name in NAMES)}) -> int:\n    got = 0"
    return "\n".join([head, nested(programs, lambda *_: "got += 1"), "    return got\n"])


def reached(programs: list[list[str]], inputs: Iterable[list[int]]) -> int:
    """Lines that some input reaches."""
    found: set[tuple[int, int]] = set()
    for which, *numbers in inputs:
        values = dict(zip(NAMES, numbers, strict=False))
        for depth, guard in enumerate(programs[which] if 0 <= which < PROGRAMS else []):
            if not eval(guard, {}, values):  # guards of our own
                break
            found.add((which, depth))
    return len(found)


def run(command: list[str], seconds: int = 300, **environment: str) -> None:
    """Run a command whose exit status means nothing here."""
    own = {**os.environ, **environment}
    subprocess.run(command, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=seconds, check=False)


def files(folder: Path) -> list[bytes]:
    """The contents of a corpus."""
    return [path.read_bytes() for path in sorted(folder.glob("*")) if path.is_file()]


def posttrain(folder: Path, kind: str, seed: int, executions: int) -> list[bytes]:
    """The corpus of `posttrain fuzz`."""
    out = folder / f"out-{kind}"
    own = ["--budget", str(executions), "--seed", str(seed), "--out", str(out)]
    run([*FUZZ, f"{folder / kind}.py:target", *own])
    return files(out / "default" / "queue")


def atheris(folder: Path, width: int, seed: int, executions: int) -> list[bytes]:
    """The corpus of atheris."""
    (folder / "harness.py").write_text(HARNESS.format(folder=str(folder)))
    corpus = folder / "atheris"
    corpus.mkdir()
    bounds = [f"-runs={executions}", f"-seed={seed + 1}", f"-max_len={1 + DEPTH * width}"]
    run([sys.executable, str(folder / "harness.py"), str(corpus), *bounds])
    return files(corpus)


def afl(folder: Path, width: int, seed: int, executions: int, comparisons: bool) -> list[bytes]:
    """The corpus of AFL++."""
    seeds, out = folder / "seeds", folder / f"afl{comparisons:d}"
    seeds.mkdir(exist_ok=True)
    (seeds / "zeros").write_bytes(bytes(1 + DEPTH * width))
    built, logged = folder / "built", folder / "logged"
    run(["afl-clang-fast", "-o", str(built), str(folder / "in_c.c")])
    more = []
    if comparisons:
        run(["afl-clang-fast", "-o", str(logged), str(folder / "in_c.c")], AFL_LLVM_CMPLOG="1")
        more = ["-c", str(logged)]
    names = ("AFL_NO_UI", "AFL_SKIP_CPUFREQ", "AFL_NO_AFFINITY", "AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES")
    own = ["-i", str(seeds), "-o", str(out), "-s", str(seed + 1), "-E", str(executions), *more]
    run(["afl-fuzz", *own, "--", str(built)], **dict.fromkeys(names, "1"))
    return files(out / "default" / "queue")


def tried(name: str, largest: int, seed: int, executions: int) -> int:
    """Lines of 30."""
    width = 1 if largest < 256 else 2
    programs = conditions(seed, largest)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "in_c.c").write_text(in_c(programs, width))
        (folder / "in_bytes.py").write_text(in_bytes(programs, width))
        (folder / "in_numbers.py").write_text(in_numbers(programs))
        if name == "posttrain fuzz, numbers":
            texts = posttrain(folder, "in_numbers", seed, executions)
            found = [[int(own) for own in text.decode().split(",")] for text in texts]
        else:
            if name == "posttrain fuzz, bytes":
                contents = posttrain(folder, "in_bytes", seed, executions)
            elif name == "atheris":
                contents = atheris(folder, width, seed, executions)
            else:
                contents = afl(folder, width, seed, executions, "CMPLOG" in name)
            found = [decoded(content, width) for content in contents]
        return reached(programs, found)


def names() -> list[str]:
    """What is installed."""
    found = ["posttrain fuzz, numbers", "posttrain fuzz, bytes"]
    found += ["atheris"] if find_spec("atheris") else []
    return found + (["AFL++", "AFL++ with CMPLOG"] if shutil.which("afl-clang-fast") else [])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--executions", type=int, default=5000)
    given = parser.parse_args()
    table = []
    for name in names():
        row = [name]
        for largest in (30, 999):
            found = [tried(name, largest, seed, given.executions) for seed in range(given.seeds)]
            own = mean([float(lines) for lines in found])
            row.append(f"{own.value:.1f} [{own.interval.low:.1f}, {own.interval.high:.1f}]")
        table.append(row)
        print(json.dumps(row), flush=True)
    columns = ["fuzzer", "lines of 30, numbers up to 30", "lines of 30, up to 999"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
