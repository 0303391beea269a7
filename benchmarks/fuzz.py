"""Feed the program broken recipes, data and models: it must refuse or work, never break and never run what it reads.

    python -m benchmarks.fuzz                          a few thousand cases, of a fixed seed
    python -m benchmarks.fuzz --minutes 10 --seed 7    as many as there is time for
    python -m benchmarks.fuzz --only data:17           one case again, with its traceback

A case is a function of (seed, target, number). It is wrong when a command ends with anything but 0 or 2 (or 1, of a run
that had begun and failed, or a dry run in which rows could not be scored), when its refusal does not name the file or
setting, when a traceback or "bug in posttrain" is shown, or when a file was executed.
Cases that failed once are kept in `benchmarks.corpus`.
"""

import argparse
import contextlib
import io
import itertools
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import _fuzz_targets
from benchmarks._mutations import ODD_VALUES, mutate_bytes, mutate_json, mutate_safetensors, mutate_tree
from posttrain.cli import main as posttrain
from posttrain.policies.folder import new_folder
from posttrain.recipes.files import find_recipe, tree_to_yaml
from posttrain.recipes.overrides import to_tree

OUTPUT = Path(__file__).resolve().parents[1] / "docs" / "measured" / "trust" / "fuzz.json"
MEMORY = 6 * 2**30
"""Bytes of address space: a file that needs more fails here and not on a user's machine."""
SMALL = (
    "grpo", "model=tiny", "tasks=rows.jsonl", "evaluation.holdout=2", "steps=1", "prompts=2", "rollout.n=2",
    "rollout.sampling.max_tokens=3", "threads=1", "--dry-run",
)  # fmt: skip
RECIPES = ("grpo", "ppo", "sft", "dpo", "quickstart", "salsa")
Case = tuple[Sequence[str], Sequence[str]]
"""A command, and words of which one must stand in its refusal."""


def recipe_file(rng: random.Random) -> Case:
    """A recipe as YAML with other values, or other bytes."""
    tree = to_tree(find_recipe(rng.choice(RECIPES)))
    if rng.random() < 0.6:
        with contextlib.suppress(Exception):  # not everything odd can be written as YAML
            tree = mutate_tree(rng, tree)
    try:
        content = tree_to_yaml(tree).encode()
    except Exception:
        content = json.dumps(tree).encode()
    if rng.random() < 0.5:
        content = mutate_bytes(rng, content)
    Path("mine.yaml").write_bytes(content)
    return ["show", "mine.yaml"], ["mine.yaml"]


def override(rng: random.Random) -> Case:
    """A recipe by name with changes of the command line."""
    tree = to_tree(find_recipe(name := rng.choice(RECIPES)))
    paths = [path for path, _ in _leaves(tree, "")]
    changes = []
    for _ in range(rng.randint(1, 3)):
        path = rng.choice(paths)
        if rng.random() < 0.3:
            path = mutate_bytes(rng, path.encode()).decode("utf-8", "replace").replace("-", "_")
        value = rng.choice(
            [*map(str, ODD_VALUES), *map(json.dumps, ODD_VALUES), "[1", "{a: 1}", "a: b: c", "&a *a", "!!x y"]
        )
        changes.append(f"{path}={value}")
    return ["show", name, *changes], [""]


def _leaves(tree: object, above: str) -> list[tuple[str, object]]:
    if not isinstance(tree, Mapping):
        return [(above, tree)]
    inner = [leaf for key, value in tree.items() for leaf in _leaves(value, f"{above}.{key}" if above else str(key))]
    return [*inner, *([(above, tree)] if above else [])]


ROWS = [
    {"question": f"{i}+1=", "answer": str(i + 1), "domain": "sums", "level": i, "extra": {"gold": [i, None]}}
    for i in range(8)
]
CHATS = [
    {"prompt": [{"role": "user", "content": f"{i}?"}], "chosen": f" {i}", "rejected": " no", "score": i / 8}
    for i in range(8)
]


def data(rng: random.Random) -> Case:
    """A file of rows in any form that is read."""
    rows = rng.choice([ROWS, CHATS])
    if rng.random() < 0.6:
        rows = mutate_tree(rng, rows)
    ending = rng.choice(["jsonl", "json", "csv", "tsv", "parquet"])
    path = Path(f"mutated.{ending}")
    match ending:
        case "jsonl":
            lines = rows if isinstance(rows, list) else [rows]
            content = "".join(json.dumps(line) + "\n" for line in lines).encode()
        case "json":
            content = json.dumps(rng.choice([rows, {"data": rows}])).encode()
        case "csv" | "tsv":
            comma = "," if ending == "csv" else "\t"
            content = comma.join(ROWS[0]).encode() + b"\n"
            content += b"".join((comma.join(f'"{v}"' for v in row.values()) + "\n").encode() for row in ROWS)
        case _:
            content = Path("rows.parquet").read_bytes()
    if rng.random() < 0.6 or ending == "parquet":
        content = mutate_bytes(rng, content)
    path.write_bytes(content)
    return ["run", *SMALL, f"tasks={path}"], [str(path), "tasks", "task ", "evaluation"]


TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


def model(rng: random.Random) -> Case:
    """A model folder in which one file is another."""
    shutil.rmtree("mutated", ignore_errors=True)
    shutil.copytree("tiny", "mutated")
    name = rng.choice(
        ["config.json", "config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"]
    )
    name = rng.choice([name, name, "model.safetensors"])
    path = Path("mutated") / name
    mutate = mutate_safetensors if name == "model.safetensors" else mutate_json
    path.write_bytes(mutate(rng, path.read_bytes()))
    return ["run", *SMALL, "model=mutated"], ["mutated", "models.policy", "context", "tokens"]


TARGETS: Mapping[str, Callable[[random.Random], Case]] = {
    "recipe files": recipe_file,
    "overrides": override,
    "data files": data,
    "model folders": model,
    **_fuzz_targets.targets(SMALL, posttrain),
}
SHARES = (
    "recipe files", "overrides", "overrides", "data files", "data files", "model folders", "model folders",
    "runs", "adapters", "indices", "chat templates", "images",
)  # fmt: skip


@dataclass
class Found:
    """The outcomes of the cases of one target."""

    tried: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)


def make_place(folder: Path) -> None:
    """The valid files that cases are made from, in the folder, which becomes the working one."""
    import duckdb

    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    new_folder(Path("tiny"), layers=1, width=16, heads=2, kv_heads=1, context=64)
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    duckdb.sql("COPY (SELECT * FROM 'rows.jsonl') TO 'rows.parquet' (FORMAT parquet)")


def attempt(target: str, number: int, seed: int) -> tuple[str, bool]:
    """Try one case: what was wrong with it, and whether it was refused."""
    rng = random.Random(f"{seed}/{target}/{number}")
    arguments, places = TARGETS[target](rng)
    return judge(arguments, places)


def judge(arguments: Sequence[str], places: Sequence[str] = ("",)) -> tuple[str, bool]:
    """Run a command: what was wrong with how it ended, and whether it refused."""
    written = io.StringIO()
    with contextlib.redirect_stdout(written), contextlib.redirect_stderr(written):
        try:
            code = posttrain(list(arguments))
        except BaseException as escaped:
            return f"{type(escaped).__name__} escaped: {escaped}", False
    text = written.getvalue()
    told = text[text.rfind("error: ") :] if code else ""
    unscored = "--dry-run" in arguments and "could not be scored" in told  # which is reported
    failed = code == 1 and (arguments[0] == "resume" or unscored) and told.count("\n") == 1  # in a sentence
    if (code not in (0, 2) and not failed) or "Traceback" in text or "bug in posttrain" in text:
        return f"ended with {code}: {told[:400]}", False
    if Path("executed").exists():
        Path("executed").unlink()
        return "code in a file was executed", False
    if (code == 2 or unscored) and not any(place in told for place in places):
        return f"does not say where: {told[:400]}", True
    return "", code == 2 or unscored


def fuzz(seed: int, enough: Callable[[int], bool], say: Callable[[str], None]) -> dict[str, Found]:
    """Cases of all targets, alternating, until it is enough."""
    found = {target: Found() for target in TARGETS}
    for number, target in enumerate(itertools.cycle(SHARES)):
        if enough(number):
            return found
        tally = found[target]
        problem, refused = attempt(target, number, seed)
        tally.tried += 1
        tally.refused += refused
        if problem:
            tally.wrong.append(f"{target}:{number}: {problem}")
            say(tally.wrong[-1])
    raise AssertionError("a cycle has no end")


def limit_memory() -> None:
    """Make what requests an absurd amount of memory fail at once."""
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, most))


def main() -> int:
    """Everything, into a file; 1 when anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, help="Time to spend, instead of a number of cases.")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="TARGET:NUMBER of one case, to look at.")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    output, began = given.output.absolute(), time.monotonic()
    os.environ["CI"] = "true"
    limit_memory()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        make_place(Path(folder))
        if given.only:
            target, _, number = given.only.rpartition(":")
            os.environ["POSTTRAIN_TRACEBACK"] = "1"
            arguments, _ = TARGETS[target](random.Random(f"{given.seed}/{target}/{number}"))
            print(arguments)
            return posttrain(list(arguments))

        def enough(number: int) -> bool:
            if given.minutes is None:
                return number >= int(given.cases)
            return time.monotonic() - began > 60 * float(given.minutes)

        found = fuzz(given.seed, enough, lambda line: print(line, file=sys.stderr, flush=True))
        os.chdir("/")
    length = f"--minutes {given.minutes:g}" if given.minutes else f"--cases {given.cases}"
    written = {
        "title": "Fuzzing" if output == OUTPUT else "Fuzzing, every class",
        "command": f"python -m benchmarks.fuzz {length} --seed {given.seed} --output {given.output}"
        if output != OUTPUT
        else f"python -m benchmarks.fuzz {length} --seed {given.seed}",
        "tables": [
            {
                "columns": ["what was broken", "cases", "refused with the place", "still valid", "went wrong"],
                "rows": [
                    [n, t.tried, t.refused, t.tried - t.refused - len(t.wrong), len(t.wrong)] for n, t in found.items()
                ],
            }
        ],
        "seconds": round(time.monotonic() - began),
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(written, indent=1) + "\n")
    return int(any(tally.wrong for tally in found.values()))


if __name__ == "__main__":
    sys.exit(main())
