"""Open recipes and runs that a stranger made, with every verb, and see whether any of their code runs.

    python -m benchmarks.strangers                    writes docs/measured/trust/code.json
    python -m benchmarks.strangers --against TREE     the code of another checkout, into a column of its own

Each case is a process of its own in a folder of its own, without consent. Clean is: exit 0 or 2 within 30 s, no
traceback, and no code of the stranger's was run.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks._counts import run_against, write_counts

OUTPUT = Path(__file__).resolve().parents[1] / "docs" / "measured" / "trust" / "code.json"
SECONDS = 120
MARK = "open('/dev/null'); import pathlib; pathlib.Path(__file__).resolve().parent.joinpath('ran').touch()\n"
FUNCTIONS = MARK + "def score(completion):\n    return 1.0\ndef recipe():\n    raise SystemExit\n"
COMPONENT = (
    MARK + "from posttrain.component import frozen\nfrom posttrain.components.tasks import Tasks\n"
    "@frozen\nclass Evil(Tasks):\n    pass\n"
)
RECIPES = {
    "a component in a file": "base: grpo\ntasks: {kind: runs/evil/part.py}\n",
    "a component in a module": "base: grpo\ntasks: {kind: runs.evil.part}\n",
    "a module of Python itself": "base: grpo\ntasks: {kind: unittest.__main__}\n",
    "a reward function": "base: grpo\nreward: runs/evil/code.py:score\n",
    "a reward inside a reward": "base: grpo\nreward: {kind: weighted, rewards: {a: 'runs/evil/code.py:score'}}\n",
    "a verifier": "base: grpo\nevaluation: {verifier: runs/evil/code.py:score}\n",
    "a base that is a function": "base: code.py:recipe\n",
    "a setting that is a function": "base: dr_grpo\nsetting: code.py:recipe\n",
    "an environment in a file": (
        "base: grpo\nrollout: {kind: turns, environment: {kind: foreign, source: 'runs/evil/code.py:World'}}\n"
    ),
    "an environment in a module": "base: corridor\nrollout: {kind: control, id: 'code:World-v0'}\n",
}
VERBS = (
    ["show", "runs/evil"],
    ["show", "runs/evil", "--json"],
    ["diff", "runs/evil", "grpo"],
    ["diff", "grpo", "runs/evil"],
    ["run", "runs/evil", "--dry-run"],
    ["run", "runs/evil/recipe.yaml", "steps=1"],
    ["resume", "runs/evil"],
    ["eval", "runs/evil"],
    ["generate", "runs/evil", "--out", "made.jsonl"],
    ["compare", "runs/evil", "grpo", "--seeds", "2"],
)
LIBRARIES = (
    "org",
    "_ruamel_yaml",
    "pynvml",
    "dill",
    "torchcomms",
    "a2wsgi",
    "json",
    "numpy",
    "sitecustomize",
    "socket",
)
IN_A_FOLDER = (
    ["list"],
    ["show", "grpo"],
    ["diff", "dr_grpo"],
    ["doctor"],
    ["run", "grpo", "--dry-run"],
    ["audit", "match"],
    ["sample", "pebble", "1+1=", "--max-tokens", "1"],
)


def posttrain(words: list[str], folder: Path) -> tuple[int, str]:
    """Exit code and output of a command."""
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "CI": "true"}
    command = [sys.executable, "-m", "posttrain", *words]
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return -1, f"not at its end after {SECONDS} s"
    return done.returncode, done.stdout + done.stderr


def cases() -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """Class, command, and the files that lie in the folder."""
    for name, recipe in RECIPES.items():
        own = {"part.py": COMPONENT, "code.py": FUNCTIONS, "recipe.yaml": recipe, "environment.json": "{}"}
        files = {f"runs/evil/{file}": text for file, text in own.items()} | {"code.py": FUNCTIONS, "part.py": COMPONENT}
        for words in VERBS:
            yield f"a run or recipe with {name}", words, files
    for words in IN_A_FOLDER:
        yield "Python files in the working folder", words, {f"{name}.py": MARK for name in LIBRARIES}


def main() -> int:
    """Try them; 1 where one was not clean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="A checkout of another commit: its code is tried.")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    if given.against:
        run_against(given.against, "benchmarks.strangers")
    counts: dict[str, tuple[int, int]] = {}
    for name, words, files in cases():
        with tempfile.TemporaryDirectory(prefix="strangers-") as top:
            folder = Path(top)
            for file, text in files.items():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_text(text)
            code, output = posttrain(words, folder)
            ran = [str(path.relative_to(folder)) for path in folder.rglob("ran")]
        traceback = "bug in posttrain" in output or "Traceback" in output
        clean = code in (0, 1 if words[0] == "doctor" else 2) and not ran and not traceback
        tried, good = counts.get(name, (0, 0))
        counts[name] = tried + 1, good + clean
        last = output.strip().splitlines()[-1:] or [""]
        print(f"{'clean' if clean else 'WRONG'} {code} {ran} {name}: {' '.join(words)}: {last[0][:160]}", flush=True)
    part = {"title": "A stranger's code", "command": "python -m benchmarks.strangers"}
    write_counts(given.output, part, "what a stranger made", counts, given.against)
    return int(given.against is None and any(tried != clean for tried, clean in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
