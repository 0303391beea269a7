"""Score a thousand labelled completions with each verifiable reward, search for rewarded mistakes, and time it.

    python -m benchmarks.rewards                           # a table of all
    python -m benchmarks.rewards refactored --attack 2000 --write rewards.json

Every reward has generated tasks. Of each task the demonstration is correct; wrong are the demonstration of another task
whose answer differs, half of the demonstration, the prompt, and nothing. Suites are instead drawn, and right or wrong
as running them in this process decides. Reported are correct completions that are not accepted and wrong ones that are,
each with a 95 % interval (Wilson), the mean reward of each kind of text, that of the demonstration written twice, which
is neither, and of texts by which a reward could be deceived; what the search of `posttrain audit --attack` finds on
five tasks; completions a second, the first call left out; and the memory of this process and its workers beyond what it
had before, in MiB.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._suite_cases import suites_of
from posttrain.audit.attack import attacked
from posttrain.audit.auditing import Settings
from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rewards.choice import Choice
from posttrain.components.rewards.next_action import NextAction
from posttrain.components.rewards.patch_similarity import PatchSimilarity
from posttrain.components.rewards.proved import Proved
from posttrain.components.rewards.refactored import Refactored
from posttrain.components.rewards.reranked import Reranked
from posttrain.components.rewards.suite import Suite
from posttrain.components.rewards.text_similarity import TextSimilarity
from posttrain.components.rewards.tool_calls import ToolCalls
from posttrain.components.rewards.translated import Translated
from posttrain.components.tasks import Tasks
from posttrain.components.tasks.choices import Choices
from posttrain.components.tasks.ciphers import Ciphers
from posttrain.components.tasks.code_lines import CodeLines
from posttrain.components.tasks.identities import Identities
from posttrain.components.tasks.passages import Passages
from posttrain.components.tasks.recorded_shopping import RecordedShopping
from posttrain.components.tasks.refactorings import Refactorings
from posttrain.components.tasks.repairs import Repairs
from posttrain.components.tasks.repairs import written as edit
from posttrain.components.tasks.suites import Suites
from posttrain.components.tasks.tool_requests import ToolRequests
from posttrain.sandbox import find_tier
from posttrain.statistics.intervals import wilson
from posttrain.types import Group, Score, Segment, Task, Trajectory

WRONG = ("another's", "half", "the prompt", "nothing")
CASES = 1000
ATTACKED = 5
"""Tasks that are searched."""
Texts = Callable[[Task], Mapping[str, str]]
Drawn = Callable[[Task], Iterable[tuple[bool, str]]]


def _none(task: Task) -> Mapping[str, str]:
    return {}


def _patches(task: Task) -> Mapping[str, str]:
    """Edits by which similarity is deceived."""
    (path, fixed), *_ = task.fields["oracle"].items()
    lines = zip(task.fields["files"][path].split("\n"), fixed.split("\n"), strict=True)
    old, new = next((a, b) for a, b in lines if a != b)
    there_and_back = edit(path, old, "pass").partition("</solution>")[0] + edit(path, "pass", old).partition("\n")[2]
    return {
        "a comment in the right line": edit(path, old, f"{old}  # fixed"),
        "nonsense in the right line": edit(path, old, "pass  # qwertz"),
        "edits that undo each other": there_and_back,
        "a path outside": edit(path, old, new).partition("</solution>")[0] + edit("../x", "", "x").partition("\n")[2],
    }


def _functions(task: Task) -> Mapping[str, str]:
    """Texts by which checks are deceived."""
    source, answer = task.fields["source"], task.answer or ""
    return {
        "a copy": source,
        "a function that nothing calls": f"{source}\ndef g(a):\n return a\n",
        "a changed meaning": answer.replace("\n\ndef", "+1\n\ndef"),
    }


@dataclass(frozen=True)
class Subject:
    """A reward with its tasks."""

    reward: Reward
    tasks: Tasks
    cheats: Texts = _none
    size: int = CASES // 5
    """Tasks that are scored; five texts of each."""
    drawn: Drawn | None = None
    """More texts of a task, each with whether it is right; those of `WRONG` do not count then."""


@dataclass
class Row:
    """What was measured of a reward."""

    name: str
    cases: int = 0
    false_negatives: str = ""
    false_positives: str = ""
    values: dict[str, float] = field(default_factory=dict)
    errors: int = 0
    finds: list[str] = field(default_factory=list)
    searched: int = 0
    a_second: float = 0.0
    memory_mib: float = 0.0


def subjects() -> dict[str, Subject]:
    """The rewards, by name."""
    tier = find_tier().tier
    return {
        "choice": Subject(Choice(), Choices(size=200, boxed=True)),
        "next_action": Subject(NextAction(), RecordedShopping(size=200, right=1.0)),
        "patch_similarity": Subject(PatchSimilarity(), Repairs(size=200, level=2), _patches),
        "patch_similarity, run": Subject(
            PatchSimilarity(execution=True, weakest=tier), Repairs(size=200, level=2), _patches, size=112
        ),
        "proved": Subject(Proved(), Identities(size=200)),
        "refactored": Subject(Refactored(), Refactorings(size=200), _functions),
        "refactored, run": Subject(
            Refactored(execution=True, weakest=tier), Refactorings(size=200), _functions, size=125
        ),
        "reranked": Subject(Reranked(), Passages(size=200, noise=0.0)),
        "suite": Subject(Suite(weakest=tier), Suites(size=60, inputs=500), size=60, drawn=suites_of),
        "text_similarity": Subject(TextSimilarity(), CodeLines(size=200)),
        "tool_calls": Subject(ToolCalls(), ToolRequests(size=200, right=1.0)),
        "translated": Subject(Translated(), Ciphers(size=200)),
    }


def texts_of(task: Task, others: list[Task], cheats: Texts) -> Iterator[tuple[str, str]]:
    """Kinds of text, and the texts of a task."""
    gold = task.demonstrations[0]
    other = next((o.demonstrations[0] for o in others if o.demonstrations[0] != gold and o.answer != task.answer), None)
    prompt = task.prompt if isinstance(task.prompt, str) else task.prompt[-1]["content"]
    yield "demonstration", gold
    if other is not None:
        yield "another's", other
    yield from (("half", gold[: len(gold) // 2]), ("the prompt", prompt), ("nothing", ""), ("twice", gold + gold))
    yield from cheats(task).items()


def scored(reward: Reward, rows: list[tuple[Task, str]]) -> list[Score]:
    """The scores of completions, in groups of one task."""
    ids = np.zeros(1, np.int64)
    groups: dict[str, list[Trajectory]] = {}
    for place, (task, text) in enumerate(rows):
        segment = Segment(actor="policy", token_ids=ids, trained=True, text=text)
        made = Trajectory(task=task, segments=(segment,), stop_reason="stop", sample=place)
        groups.setdefault(task.key, []).append(made)

    async def everything() -> list[list[Score]]:
        calls = (reward.score(Group(key=key, trajectories=tuple(own)), RewardContext()) for key, own in groups.items())
        return [list(found) for found in await asyncio.gather(*calls)]

    found = asyncio.run(everything())
    places = [t.sample for own in groups.values() for t in own]
    flat = [score for own in found for score in own]
    return [score for _, score in sorted(zip(places, flat, strict=True), key=lambda pair: pair[0])]


def measured(name: str, subject: Subject, budget: int) -> Row:
    """All numbers of a reward."""
    tasks = [task for task in subject.tasks.load() if task.demonstrations][: subject.size]
    reward, before = subject.reward, held()
    reward.prepare()
    reward.check(tasks)
    cases = [
        (kind, task, text)
        for place, task in enumerate(tasks)
        for kind, text in texts_of(task, tasks[place + 1 :] + tasks[:place], subject.cheats)
    ]
    if subject.drawn is not None:
        cases += [(f"drawn, {right}", task, text) for task in tasks for right, text in subject.drawn(task)]
    scored(reward, [(task, text) for _, task, text in cases[:8]])  # workers and sandboxes start
    start = time.perf_counter()
    scores = scored(reward, [(task, text) for _, task, text in cases])
    seconds = time.perf_counter() - start
    row = Row(name=name, cases=len(cases), a_second=len(cases) / seconds, memory_mib=(held() - before) / 1024)
    row.errors = sum(score.status == "error" for score in scores)
    by_kind: dict[str, list[Score]] = {}
    for (kind, _, _), score in zip(cases, scores, strict=True):
        by_kind.setdefault(kind, []).append(score)
    row.values = {kind: round(float(np.mean([s.value for s in own])), 4) for kind, own in by_kind.items()}
    gold = by_kind["demonstration"] + by_kind.get("drawn, True", [])
    row.false_negatives = share(sum(score.status != "ok" for score in gold), len(gold))
    kinds = ("drawn, False",) if subject.drawn is not None else WRONG
    wrong = [score for kind in kinds for score in by_kind.get(kind, [])]
    row.false_positives = share(sum(score.status == "ok" for score in wrong), len(wrong))
    if budget:
        found, counts = attacked(reward, tasks[:ATTACKED], Settings(), budget=budget, seed=0, oracle=None)
        row.searched = int(counts["probes"])
        row.finds = [f"{one.value:g}: {one.completion[:60]}" for one in found if one.fault == "false positive"]
    return row


def share(count: int, total: int) -> str:
    """A share in percent with its interval."""
    interval = wilson(count, total)
    return f"{count} of {total}: {100 * count / total:.1f} % [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def held() -> float:
    """Memory of this process and all below it, in kB, each shared page counted by its share."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    waiting, total = [os.getpid()], 0.0
    while waiting:
        one = waiting.pop()
        waiting += children.get(one, [])
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(float(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total


def main() -> None:
    """Print a line a reward, and write all numbers."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rewards")
    parser.add_argument("rewards", nargs="*", help="All if none is named.")
    parser.add_argument("--attack", type=int, default=0, help="Texts of the search; 0 leaves it out.")
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    known = subjects()
    if unknown := sorted(set(given.rewards) - set(known)):
        parser.error(f"no reward {unknown[0]!r} here; there are {', '.join(known)}")
    rows: list[Any] = []
    for name, subject in known.items():
        if given.rewards and name not in given.rewards:
            continue
        row = measured(name, subject, given.attack)
        rows.append(vars(row))
        print(json.dumps(vars(row)), file=sys.stdout, flush=True)
    if given.write:
        given.write.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
