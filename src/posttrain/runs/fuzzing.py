"""Fuzzing of a function: inputs that a model writes for lines which nothing has reached, and edits of earlier ones.

A batch draws its lines from those that are not covered and are inside of a covered statement, the least tried first.
The model reads the conditions around the line, as tasks ``guards`` have them, and writes inputs; the rest of the batch
are edits of the corpus. What reaches a new line joins it. A crash is kept once for each exception and line, a hang once
for each line.

The folder has AFL++'s form: ``default/queue``, ``crashes``, ``hangs`` with a file for each input, named
``id:000004,src:000001,execs:96,op:model,+cov``, and ``fuzzer_stats``. A batch is a function of the settings, its
number and what is in ``default/posttrain.jsonl``, the journal, so that a session that was killed goes on as if it had
not been.
"""

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from posttrain.engines import wait_for
from posttrain.errors import UserError
from posttrain.errors.foreign import guard, read_bytes, read_text
from posttrain.grading.c_coverage import CTarget, c_target_of, run_c_calls
from posttrain.grading.line_coverage import Ran, Target, run_calls, target_of
from posttrain.runs.files import write_file
from posttrain.runs.input_edits import LONGEST, edited, parsed
from posttrain.runs.journal import Journal, read_lines
from posttrain.sandbox import Limits, Pool, open_pool

BATCH: Final = 32
"""Inputs of a batch."""
ASKED: Final = 8
"""Inputs of a line in a batch that the model writes."""
MOST_SEEDS: Final = 10_000
_FIRST: Final = {"bool": "False", "str": "''", "bytes": "b''", "list": "[]", "tuple": "()", "dict": "{}"}
"""First inputs by annotation, of others 0."""
KINDS: Final = ("queue", "crashes", "hangs")
Write = Callable[[int, int, int], Awaitable[Sequence[str]]]
"""Texts of a model for a line, in a batch: (line, batch, number)."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """What is fuzzed, and how."""

    target: Target | CTarget
    folder: Path
    pool: Pool
    form: str
    """What an input is: ``str``, ``bytes``, or ``literals``, with commas between them."""
    write: Write | None = None
    """The model; None edits the corpus alone."""
    edits: float = 0.5
    """Share of a batch that are edits."""
    expected: frozenset[str] = frozenset()
    """Exceptions that are no crashes."""
    seeds: Mapping[str, bytes] = field(default_factory=dict)
    """First inputs, by name."""
    ticks: int = 100_000
    limits: Limits = field(default_factory=lambda: Limits(cpu_s=5.0))
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What a session that goes on must have in common with this one."""


@dataclass(slots=True)
class State:
    """What the journal holds."""

    tried: int = 0
    batches: int = 0
    refused: int = 0
    covered: set[int] = field(default_factory=set)
    tries: dict[int, int] = field(default_factory=dict)
    saved: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {kind: [] for kind in KINDS})

    def add(self, entry: Mapping[str, Any]) -> None:
        """Take over a batch."""
        self.tried += entry["tried"]
        self.refused += entry["refused"]
        self.batches += 1
        self.covered |= set(entry["covered"])
        for line in entry["lines"]:
            self.tries[line] = self.tries.get(line, 0) + 1
        for one in entry["saved"]:
            self.saved[one["kind"]].append(one)


def fuzz(session: Session, budget: int, show: Callable[[State], None]) -> State:
    """Try inputs until `budget` of them have been tried in this folder; `show` is called after each batch."""
    for kind in KINDS:
        with guard(f"the folder {session.folder} cannot be made"):
            (session.folder / "default" / kind).mkdir(parents=True, exist_ok=True)
    path = session.folder / "default" / "posttrain.jsonl"
    journal = Journal(path)
    try:
        journal.drop_unfinished()
        state = _read(path, session)
        if not journal.size:
            journal.append({"settings": dict(session.settings)})
        for kind in KINDS:
            for one in state.saved[kind]:
                _keep(session, one)
        show(state)
        while state.tried < budget:
            entry = wait_for(_batch(session, state, budget - state.tried))
            journal.append(entry)
            state.add(entry)
            for one in entry["saved"]:
                _keep(session, one)
            show(state)
    finally:
        journal.sync()
        journal.close()
    write_file(session.folder / "default" / "fuzzer_stats", _stats(session, state))
    return state


def found(session: Session, state: State) -> dict[str, Any]:
    """What a session found, for programs."""
    missing = sorted(session.target.parents.keys() - state.covered)
    return {
        "tried": state.tried,
        "refused": state.refused,
        "lines": len(session.target.parents),
        "covered": len(state.covered),
        "not_covered": missing,
        "needs": {
            str(line): session.target.guards.get(line, "")
            for line in missing
            if session.target.parents[line] in state.covered
        },
        "corpus": len(state.saved["queue"]),
        "by": dict(sorted(Counter(str(one["op"]) for one in state.saved["queue"]).items())),
        "crashes": [_shown(session, one) for one in state.saved["crashes"]],
        "hangs": [_shown(session, one) for one in state.saved["hangs"]],
        "folder": str(session.folder),
    }


def read_target(text: str) -> tuple[Target | CTarget, str]:
    """The program and the function of ``target.py:parse`` or ``target.c:parse``, and the SHA-256 of the file.

    Raises `UserError` for another form, for a file without the function, and for one that cannot be compiled.
    """
    file, _, function = text.rpartition(":")
    if not file or not function:
        raise UserError(f"the target is '{text}'; write the file and the function: target.py:parse")
    source = read_text(Path(file))
    try:
        if file.endswith(".c"):
            return wait_for(c_target_of(source, function, open_pool())), digest(source.encode())
        return target_of(source, function), digest(source.encode())
    except UserError as error:
        raise UserError(f"{file}: {error}") from None


def form_of(target: Target | CTarget, form: str | None) -> str:
    """What an input is, where `form` is what was requested. Raises `UserError` for a text of several parameters."""
    found = form or target.text or "literals"
    if isinstance(target, CTarget) and found != (target.text or "literals"):
        raise UserError(f"{target.function} takes {target.text or 'literals'} by its declaration; leave out --form")
    if found != "literals" and len(target.parameters) != 1:
        raise UserError(
            f"{target.function} has the parameters {', '.join(target.parameters) or 'none'}; an input of the form "
            f"{found} is for one parameter; write --form literals"
        )
    return found


def read_seeds(folder: Path) -> dict[str, bytes]:
    """The files of a corpus, by name: those of a folder, or of ``queue`` in it. Raises `UserError` without any."""
    inside = [folder / name for name in ("default/queue", "queue") if (folder / name).is_dir()]
    place = inside[0] if inside else folder
    if not place.is_dir():
        raise UserError(f"no folder {folder} with inputs; a corpus is a folder with a file for each input")
    paths = sorted(path for path in place.iterdir() if path.is_file() and not path.name.startswith("."))
    if not paths or len(paths) > MOST_SEEDS:
        raise UserError(f"{place} has {len(paths)} files; give one to {MOST_SEEDS:,} inputs")
    return {path.name: read_bytes(path, LONGEST) for path in paths}


def prompt_of(target: Target | CTarget, line: int, template: str) -> str:
    """What the model reads for a line. Raises `UserError` for a place that is not known."""
    places = {"function": target.function, "parameters": ",".join(target.parameters), "line": line}
    try:
        return template.format(**places, guards=target.guards.get(line, ""))
    except (LookupError, ValueError, AttributeError) as error:
        raise UserError(
            f"--prompt {template!r} has a place that is not known ({error}); places are {{function}}, {{parameters}}, "
            "{guards} and {line}"
        ) from None


def _read(path: Path, session: Session) -> State:
    """The state of the journal. Raises `UserError` for that of another session."""
    state = State()
    entries = read_lines(path)
    if entries:
        theirs = entries[0].get("settings")
        ours = dict(session.settings)
        if theirs != ours:
            known = theirs if isinstance(theirs, dict) else {}
            other = sorted(name for name in {*ours, *known} if ours.get(name) != known.get(name))
            raise UserError(
                f"{session.folder} is of a session with another {', '.join(other)}; give another --out, or call it "
                "as before to go on"
            )
    for entry in entries[1:]:
        state.add(entry)
    return state


async def _batch(session: Session, state: State, most: int) -> dict[str, Any]:
    """One batch as an entry of the journal."""
    proposed, lines = await _proposed(session, state, most)
    arguments = [parsed(session.form, content, _kinds(session.target)) for _, _, content in proposed]
    runs = iter(await _run(session, [own for own in arguments if own is not None]))
    covered: set[int] = set()
    known = {_name(one) for kind in KINDS[1:] for one in state.saved[kind]}
    counts = {kind: len(state.saved[kind]) for kind in KINDS}
    saved: list[dict[str, Any]] = []
    refused = 0
    for number, ((source, how, content), own) in enumerate(zip(proposed, arguments, strict=True)):
        run = next(runs) if own is not None else Ran("refused")
        refused += run.end == "refused"
        new = run.lines - state.covered - covered
        covered |= new
        kind = _kind(run, session.expected)
        one = {
            "end": run.error or run.end,
            "line": run.line,
            "execs": state.tried + number,
            "source": source,
            "op": how,
        }
        one |= {"input": content.decode("latin-1"), "new": sorted(new)}
        for place in ("queue", kind):
            seed = how == "seed" and place == "queue" and run.end != "refused"
            if place is None or (place == "queue" and not (new or seed)):
                continue
            if place != "queue" and _name({**one, "kind": place}) in known:
                continue
            entry = {**one, "kind": place, "id": counts[place]}
            counts[place] += 1
            known.add(_name(entry))
            saved.append(entry)
    return {"tried": len(proposed), "refused": refused, "covered": sorted(covered), "lines": lines, "saved": saved}


async def _run(session: Session, given: Sequence[Sequence[Any]]) -> list[Ran]:
    """What each call does."""
    if isinstance(session.target, CTarget):
        return await run_c_calls(session.target, given, session.pool, session.limits, session.ticks)
    return await run_calls(session.target, given, session.pool, session.limits, session.ticks)


def _kind(run: Ran, expected: frozenset[str]) -> str | None:
    """Where an input is kept beside the corpus."""
    if run.end == "hung":
        return "hangs"
    return "crashes" if run.end == "ended" or (run.end == "crashed" and run.error not in expected) else None


def _name(one: Mapping[str, Any]) -> tuple[Any, ...]:
    """What makes two crashes, or two hangs, the same one."""
    return (one["kind"], one["end"], one["line"])


async def _proposed(session: Session, state: State, most: int) -> tuple[list[tuple[int | None, str, bytes]], list[int]]:
    """Inputs of a batch, each with the one that it is from and how it was made, and the lines that were asked for."""
    if not state.batches:
        first = list(session.seeds.values()) or [_first(session)]
        return [*((None, "seed", content) for content in first[:most])], []
    rng = Random(f"fuzz:{session.seed}:{state.batches}")
    edits = BATCH if session.write is None else round(session.edits * BATCH)
    lines = _lines(session.target, state, rng, (BATCH - edits) // ASKED)
    proposed: list[tuple[int | None, str, bytes]] = []
    for number, line in enumerate(lines):
        assert session.write is not None, "lines are drawn for a model"
        texts = await session.write(line, state.batches, number)
        proposed += [(None, "model", _encoded(text, session.form)) for text in texts]
    corpus = state.saved["queue"]
    while len(proposed) < BATCH:
        place = rng.randrange(len(corpus)) if corpus else None
        content = corpus[place]["input"].encode("latin-1") if place is not None else _first(session)
        proposed.append(
            (place, "edit", edited(content, session.form, rng, session.target.constants, _kinds(session.target)))
        )
    return proposed[:most], lines


def _lines(target: Target | CTarget, state: State, rng: Random, count: int) -> list[int]:
    """Lines to ask for: open ones, the least tried first; any that is not covered, or all, where none is open."""
    left = [line for line in target.parents if line not in state.covered]
    opened = [line for line in left if target.parents[line] is None or target.parents[line] in state.covered]
    pool = opened or left or list(target.parents)
    draws = {line: rng.random() for line in pool}
    order = sorted(pool, key=lambda line: (state.tries.get(line, 0), draws[line]))
    return [order[i % len(order)] for i in range(count)]


def _first(session: Session) -> bytes:
    """The first input, where none is given."""
    if session.form != "literals":
        return b""
    kinds = _kinds(session.target) or ("",) * len(session.target.parameters)
    return ", ".join(_FIRST.get(kind, "0") for kind in kinds).encode()


def _kinds(target: Target | CTarget) -> tuple[str, ...]:
    """The types that a Python function's parameters are annotated with."""
    return target.kinds if isinstance(target, Target) else ()


def _encoded(text: str, form: str) -> bytes:
    """What a model wrote as an input: its first line, of a text all."""
    own = text.strip() if form != "literals" else _commas(text.strip().partition("\n")[0])
    return own.encode("utf-8", "replace")[:LONGEST]


def _commas(text: str) -> str:
    """Numbers with spaces between them as literals."""
    parts = text.split()
    try:
        [float(part) for part in parts]
    except ValueError:
        return text
    return ", ".join(parts)


def _file_name(one: Mapping[str, Any]) -> str:
    """The name of an input's file, as AFL++ has it."""
    parts = [f"id:{one['id']:06d}"]
    parts += [f"exc:{one['end']}", f"line:{one['line']}"] if one["kind"] != "queue" else []
    parts += [f"src:{one['source']:06d}"] if one["source"] is not None else []
    parts += [f"execs:{one['execs']}", f"op:{one['op']}"]
    return ",".join([*parts, *(["+cov"] if one["new"] else [])])


def _keep(session: Session, one: Mapping[str, Any]) -> None:
    """Write the file of an input, where it is not there."""
    path = session.folder / "default" / one["kind"] / _file_name(one)
    content = one["input"].encode("latin-1")
    if not path.is_file() or path.stat().st_size != len(content):
        write_file(path, content)


def _shown(session: Session, one: Mapping[str, Any]) -> dict[str, Any]:
    path = session.folder / "default" / one["kind"] / _file_name(one)
    return {"end": one["end"], "line": one["line"], "input": one["input"], "execs": one["execs"], "file": str(path)}


def _stats(session: Session, state: State) -> str:
    """The file of totals; times are left out, so that two equal sessions have equal folders."""
    lines = max(len(session.target.parents), 1)
    rows = {
        "execs_done": state.tried,
        "corpus_count": len(state.saved["queue"]),
        "saved_crashes": len(state.saved["crashes"]),
        "saved_hangs": len(state.saved["hangs"]),
        "edges_found": len(state.covered),
        "total_edges": len(session.target.parents),
        "bitmap_cvg": f"{len(state.covered) / lines:.2%}",
        "afl_banner": session.target.function,
    }
    return "".join(f"{name:<18}: {value}\n" for name, value in rows.items())


def digest(content: bytes) -> str:
    """SHA-256 of a file's content, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()
