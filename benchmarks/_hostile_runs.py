"""Hostile run folders, recipes and settings, by class. A case ends with the whole command line, after ``!``."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks._hostile import CONTROL, SECRET, Make, nested, sparse

RUN = Path("made/grpo-1")
"""A run of two steps, which is at its end."""
OUTSIDE = Path("outside")
"""What a run folder leads to; it must be left as it is."""
JOURNALS = ("events.jsonl", "metrics.jsonl", "history.jsonl", "timing.jsonl", "evals.jsonl")


PARTS = (".lock", ".summary.json.tmp", ".report.html.tmp", "rollouts", "evals", "checkpoints", "model")


def contents(folder: Path) -> dict[str, str]:
    """The files of a folder with their sums."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def outside_changed() -> bool:
    """Whether what lies outside is other than when the case was made."""
    kept = Path("outside.json")
    return kept.is_file() and json.loads(kept.read_text()) != contents(OUTSIDE)


def _leads_out(name: str, *verb: str) -> Make:
    """A part of the run, or a file that it is about to make, is a link to something outside."""

    def make() -> Sequence[str]:
        OUTSIDE.mkdir()
        part, target = RUN / name, OUTSIDE / Path(name).name
        if part.exists():
            part.rename(target)
        else:
            target.write_text(SECRET)
        part.symlink_to(target.absolute())
        Path("outside.json").write_text(json.dumps(contents(OUTSIDE)))
        return ["!", *(verb or ("resume",)), str(RUN)]

    return make


def _written(name: str, content: str | bytes, *verb: str) -> Make:
    def make() -> Sequence[str]:
        content_bytes = content if isinstance(content, bytes) else content.encode()
        (RUN / name).write_bytes(content_bytes)
        return ["!", *(verb or ("resume",)), str(RUN)]

    return make


def _pipe(name: str, *verb: str) -> Make:
    def make() -> Sequence[str]:
        (RUN / name).unlink(missing_ok=True)
        os.mkfifo(RUN / name)
        return ["!", *(verb or ("resume",)), str(RUN)]

    return make


def _resealed(change: Callable[[dict[str, Any]], Any]) -> Make:
    """The state of every checkpoint, edited, with manifests that agree with it."""

    def make() -> Sequence[str]:
        for step in (RUN / "checkpoints").iterdir():
            text = json.dumps(change(json.loads((step / "state.json").read_text())))
            (step / "state.json").write_text(text)
            manifest = json.loads((step / "manifest.json").read_text())
            manifest["files"]["state.json"] = {"bytes": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}
            (step / "manifest.json").write_text(json.dumps(manifest))
        return ["!", "resume", str(RUN)]

    return make


def _manifest(change: Callable[[dict[str, Any], Path], Any]) -> Make:
    """The manifest of every checkpoint, changed."""

    def make() -> Sequence[str]:
        for step in (RUN / "checkpoints").iterdir():
            manifest = json.loads((step / "manifest.json").read_text())
            (step / "manifest.json").write_text(json.dumps(change(manifest, step)))
        return ["!", "resume", str(RUN)]

    return make


def _lists(name: str, place: Callable[[Path], object]) -> Callable[[dict[str, Any], Path], Any]:
    """A manifest that lists one more file, which `place` makes."""

    def change(manifest: dict[str, Any], step: Path) -> Any:
        place(step / name)
        manifest["files"][name] = {"bytes": 0, "sha256": "0" * 64}
        return manifest

    return change


def _settings(*changes: str) -> Make:
    return lambda: [*changes]


def _recipe(text: str | bytes) -> Make:
    def make() -> Sequence[str]:
        Path("mine.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return ["!", "show", "mine.yaml"]

    return make


def _recipe_link() -> Sequence[str]:
    Path("mine.yaml").symlink_to("mine.yaml")
    return ["!", "show", "mine.yaml"]


def _tables(folder: str, columns: str, more: str = "") -> None:
    """Other values in the columns of a run's tables."""
    import duckdb

    for path in (RUN / folder).glob("*.parquet"):
        rows = f"SELECT * REPLACE ({columns}) FROM '{path}' {more}"
        duckdb.sql(f"COPY ({rows}) TO 'changed.parquet' (FORMAT parquet, COMPRESSION zstd)")
        os.replace("changed.parquet", path)


def _unpacks(*verb: str) -> Make:
    """Answers of three megabytes, three hundred times each, in a few kilobytes."""

    def make() -> Sequence[str]:
        _tables("evals", "repeat('a', 3000000) AS completion", "CROSS JOIN range(300)")
        return ["!", *verb]

    return make


def _rubbish() -> Sequence[str]:
    for path in (RUN / "evals").glob("*.parquet"):
        path.write_bytes(b"PAR1" + b"\xff" * 100 + b"PAR1")
    return ["!", "stages", str(RUN)]


def _sparse_manifests() -> Sequence[str]:
    for step in (RUN / "checkpoints").iterdir():
        sparse(step / "manifest.json", 10**11)
    return ["!", "resume", str(RUN)]


def _progress(text: str) -> Make:
    def make() -> Sequence[str]:
        Path("made.jsonl.progress.json").write_text(text)
        return ["!", "generate", str(RUN), "--out", "made.jsonl"]

    return make


def _short_lines() -> Sequence[str]:
    (RUN / "metrics.jsonl").write_bytes(b'{"step":1}\n' * 20_000_000)
    return ["!", "runs", "ls", "made"]


CLASSES: dict[str, dict[str, Make]] = {
    "links out of a run folder": {
        **{name: _leads_out(name) for name in (*JOURNALS, *PARTS)},
        "recipe.yaml, by show": _leads_out("recipe.yaml", "show"),
        "environment.json": _leads_out("environment.json"),
        "summary.json": _leads_out("summary.json"),
        "evals, by eval": _leads_out("evals", "eval"),
    },
    "damaged run folders": {
        **{f"{name}: a pipe": _pipe(name) for name in (*JOURNALS, "environment.json", "recipe.yaml", ".lock")},
        **{
            f"{name}: {what}": _written(name, text)
            for name in ("environment.json", "metrics.jsonl", "history.jsonl", "evals.jsonl", "recipe.yaml")
            for what, text in {
                "deep": nested(100_000) + "\n",
                "a list": "[1]\n",
                "a line of control characters": CONTROL + "\n",
                "not UTF-8": b"\xff\xfe\n",
                "a null": "null\n",
            }.items()
        },
        "environment.json: empty": _written("environment.json", ""),
        "environment.json: cut": _written("environment.json", '{"python": "3'),
        "manifest: a pipe is listed": _manifest(_lists("pipe", os.mkfifo)),
        "manifest: a device is listed": _manifest(_lists("zero", lambda path: path.symlink_to("/dev/zero"))),
        "manifest: a file outside is listed": _manifest(_lists("../../../../private", lambda path: None)),
        "manifest: 100 GB are listed": _manifest(_lists("large", lambda path: sparse(path, 10**11))),
        "manifest: a list": _manifest(lambda manifest, step: [manifest]),
        "manifest: deep": _manifest(lambda manifest, step: json.loads(nested(90))),
        "state: a list": _resealed(lambda state: [state]),
        "state: null": _resealed(lambda state: None),
        **{
            f"state: {key} is {value!r}": _resealed(lambda state, key=key, value=value: {**state, key: value})
            for key in ("step", "stage", "threads", "roles", "versions", "learners", "memory", "position", "recipe")
            for value in (None, "x", [1])
        },
        "metrics of 100 GB": lambda: (sparse(RUN / "metrics.jsonl", 10**11), ["!", "resume", str(RUN)])[1],
    },
    "what a run's files unpack to": {
        "answers, by stages": _unpacks("stages", str(RUN)),
        "answers, by export": _unpacks("export", str(RUN), "--to", "inspect", "--out", "out", "samples=4"),
        "a table of rubbish": _rubbish,
        "manifests of 100 GB": _sparse_manifests,
        "metrics of 20 million lines": _short_lines,
        "a state's recipe 150 deep": _resealed(lambda state: {**state, "recipe": nested(150)}),
        "a state's recipe 5,000 deep": _resealed(lambda state: {**state, "recipe": nested(5000)}),
        "progress of generate, deep": _progress(nested(100_000)),
        "progress of generate, a list": _progress("[]"),
        "progress of generate, empty": _progress("{}"),
        "a million prompts": _settings("prompts=1000000"),
        "a million prompts of ten thousand": _settings("prompts=1000000", "rollout.n=10000"),
    },
    "recipes": {
        "null key beside base": _recipe("base: grpo\nnull: 1\n"),
        "list key beside base": _recipe("base: grpo\n? [a]\n: 1\n"),
        "number key": _recipe("base: grpo\n1: 1\n"),
        "a link to itself": _recipe_link,
        "deep": _recipe("base: " + "[" * 100_000),
        "deep mapping": _recipe("base: grpo\nnotes: " + "{a: " * 3000 + "1" + "}" * 3000),
        "not UTF-8": _recipe(b"\xff\xfe"),
        "control characters": _recipe(f"base: {CONTROL}\n"),
        "a name of 300 characters": _recipe("base: grpo\nname: " + "a" * 300),
        "half a character in a name": _recipe('base: grpo\nname: "\\ud800"\n'),
        "1 GB": lambda: (sparse(Path("mine.yaml"), 10**9, b"base: grpo\n#"), ["!", "show", "mine.yaml"])[1],
        "a pipe": lambda: (os.mkfifo("mine.yaml"), ["!", "show", "mine.yaml"])[1],
        "base is itself": _recipe("base: mine.yaml\n"),
        "an object": _recipe("base: !!python/object/apply:os.mkdir [executed]"),
    },
    "counts": {
        name: _settings(name)
        for name in (
            "rollout.n=1000000000",
            "threads=1000000",
            "prompts=1000000000",
            "steps=1000000000000000000",
            "rollout.sampling.max_tokens=1000000000000",
            "evaluation.samples=1000000000",
            "evaluation.holdout=1000000000000000000",
            "models.policy.lora={rank: 1000000000}",
            "models.policy.lora={rank: 60000}",
            "tasks={kind: arithmetic, size: 1000000000000000000}",
            "tasks.limit=1000000000000000000",
            "seed=1" + "0" * 400,
            "name=" + "a" * 300,
            "models.policy={source: new, shape: {kind: decoder, layers: 100000}}",
            "models.policy={source: new, shape: {kind: decoder, width: 1000000000}}",
            "models.policy={source: new, shape: {kind: decoder, layers: 1000, width: 65536, heads: 64}}",
        )
    },
}


def _good(*command: str) -> Make:
    return lambda: ["!", *command, str(RUN)]


GOOD: dict[str, Make] = {
    "resume of a run": _good("resume"),
    "show of a run": _good("show"),
    "recipe": _recipe("base: grpo\nsteps: 3\n"),
    "LoRA": _settings("models.policy.lora={rank: 2}"),
}


def make_run(place: Path, run: Callable[[Sequence[str]], int], small: Sequence[str]) -> None:
    """Make the run that the cases are made from, with the folder `place` as the working one."""
    assert run(["run", *(part for part in small if part != "--dry-run"), "steps=2"]) == 0
    (place / "runs").rename(place / "made")
