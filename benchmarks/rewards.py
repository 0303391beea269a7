"""Score a thousand labelled completions with each verifiable reward, search for rewarded mistakes, and time it.

    python -m benchmarks.rewards                           # a table of all
    python -m benchmarks.rewards "suite (286)" --attack 2000 --write docs/measured/rewards/scored.json
    python -m benchmarks.rewards --cheats --write docs/measured/rewards/cheats.json

Every reward has generated tasks. Of each task the demonstration is correct; wrong are the demonstration of another task
whose answer differs, half of the demonstration, the prompt, and nothing, unless the oracle of the reward, which reads
or runs a text in another way, takes one for right: such a text is left out, and a demonstration that it refuses is
wrong. Suites and sentences are drawn instead, programs with kernels beside them, and lists of scores by documents.
Reported are correct completions that are not accepted and wrong ones that are, each with a 95 % interval (Wilson), the
mean reward of each kind of text, that of the demonstration written twice, which is neither, and of texts by which a
reward could be deceived; what the search of `posttrain audit --attack` finds on five tasks, and how many of the finds
are wrong by the oracle; completions a second, the first call left out; and the memory of this process and its workers
beyond what it had before, in MiB. `--write` keeps what a file holds of other rewards.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np

from benchmarks import _reward_lists as _lists
from benchmarks._design_cases import MODELS, captions, designs
from benchmarks._memory_cases import memories
from benchmarks._model_cases import increments, teaching
from benchmarks._reward_cheats import Cheat, cheats
from benchmarks._reward_rows import Row, share
from benchmarks._reward_subjects import Subject, Texts, subjects
from posttrain.audit.attack import searched
from posttrain.audit.auditing import Scored, Settings
from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rewards.list_metric import ListMetric
from posttrain.components.tasks.scored_documents import ScoredDocuments
from posttrain.types import Group, Score, Segment, Task, Trajectory

SHOWN = "demonstration"
LISTS = "list_metric (73)"
WRONG = ("another's", "half", "the prompt", "nothing")
ATTACKED = 5
"""Tasks that are searched."""


def lists(budget: int) -> Row:
    """The numbers of ``list_metric``: a list of scores is accepted where each document that has one is."""
    reward, tasks, rng = ListMetric(metric="ndcg", pairings=0), ScoredDocuments(size=200).load(), Random("lists")
    reward.check(tasks)
    made = [(kind, task, own) for task in tasks for kind, own in _lists.cases(task, rng)]

    def accepted(task: Task, own: _lists.Scores) -> tuple[bool, float]:
        group = Group(key=task.key, trajectories=_lists.rollouts(task, own))
        found = asyncio.run(reward.score(group, RewardContext()))
        stated = [score.status == "ok" for score, each in zip(found, own, strict=True) if each is not None]
        return bool(stated) and all(stated), float(np.mean([score.value for score in found]))

    start = time.perf_counter()
    found = [accepted(task, own) for _, task, own in made]
    row = Row(name=LISTS, cases=len(made), a_second=len(made) / (time.perf_counter() - start))
    rights = [_lists.right(task, own) for _, task, own in made]
    both = [(right, ok) for right, (ok, _) in zip(rights, found, strict=True)]
    row.false_negatives = share(both.count((True, False)), sum(rights))
    row.false_positives = share(both.count((False, True)), rights.count(False))
    by_kind: dict[str, list[float]] = {}
    for (kind, _, _), (_, value) in zip(made, found, strict=True):
        by_kind.setdefault(kind, []).append(value)
    row.values = {kind: round(float(np.mean(own)), 4) for kind, own in by_kind.items()}
    for task in tasks[:ATTACKED]:
        best = [own for _, own in _lists.cases(task, rng)]
        for _ in range(budget // ATTACKED):
            own = _lists.edited(rng.choice(best), rng)
            ok, value = accepted(task, own)
            row.searched += 1
            if _lists.right(task, own):
                continue
            row.wrong_finds += [f"{value:g}: {own}"] if ok else []
            best = sorted({*best, own}, key=lambda each: -accepted(task, each)[1])[:4] if value > 0.9 else best
    row.finds = row.wrong_finds
    return row


def texts_of(task: Task, others: list[Task], cheats: Texts) -> Iterator[tuple[str, str]]:
    """Kinds of text, and the texts of a task."""
    gold = task.demonstrations[0]
    other = next((o.demonstrations[0] for o in others if o.demonstrations[0] != gold and o.answer != task.answer), None)
    prompt = task.prompt if isinstance(task.prompt, str) else task.prompt[-1]["content"]
    yield SHOWN, gold
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
    reward = subject.reward
    cases = [
        (kind, task, text)
        for place, task in enumerate(tasks)
        for kind, text in texts_of(task, tasks[place + 1 :] + tasks[:place], subject.cheats)
    ]
    if subject.drawn is not None:
        cases += [(f"drawn, {right}", task, text) for task in tasks for right, text in subject.drawn(task)]
    before = held()
    reward.prepare()
    reward.check(tasks)
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
    marked = [
        (kind, subject.oracle(task, text), score) for (kind, task, text), score in zip(cases, scores, strict=True)
    ]
    drawn = subject.drawn is not None
    gold = [score for kind, right, score in marked if kind == SHOWN and right] + by_kind.get("drawn, True", [])
    told = drawn and not subject.also
    wrong = [score for kind, right, score in marked if kind in (SHOWN, *WRONG) and not right and not told]
    wrong += by_kind.get("drawn, False", [])
    row.left_out = 0 if told else sum(kind in WRONG and right for kind, right, _ in marked)
    row.false_negatives = share(sum(score.status != "ok" for score in gold), len(gold))
    row.false_positives = share(sum(score.status == "ok" for score in wrong), len(wrong))
    if budget:
        everything, found = searched(reward, tasks[:ATTACKED], Settings(), budget=budget, seed=0, oracle=None)
        row.searched = len(everything)
        decide = subject.finds or subject.oracle
        wrong_finds = [one for one in found if not decide(one.task, one.probe.text)]
        row.finds, row.wrong_finds = ([_shown(one) for one in own] for own in (found, wrong_finds))
    return row


def _shown(one: Scored) -> str:
    return f"{one.score.value:g}: {one.probe.text}"


def paid(cheat: Cheat) -> dict[str, Any]:
    """The reward of a cheat, beside that of a right text. Raises `ValueError` where it is not what is stated."""
    cheat.reward.prepare()
    (score,) = scored(cheat.reward, [(cheat.task, cheat.text)])
    if abs(score.value - cheat.pay) > 5e-5:
        raise ValueError(f"row {cheat.row}, {cheat.name}: {score.value} in place of {cheat.pay}")
    return {"row": cheat.row, "name": cheat.name, "pay": round(score.value, 4), "most": cheat.most}


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


OTHERS: Final[Mapping[str, Callable[[int], Row]]] = {
    LISTS: lists,
    "invariance (204)": designs,
    **{f"captions (208), {model}": captions(model) for model in MODELS},
    "increments (100)": increments,
    "teaching (313)": teaching,
    "memories (91)": memories,
}
"""Rewards that do not score one text of a task."""


def main() -> None:
    """Print a line a reward, and write all numbers."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rewards")
    parser.add_argument("rewards", nargs="*", help="All if none is named.")
    parser.add_argument("--attack", type=int, default=0, help="Texts of the search; 0 leaves it out.")
    parser.add_argument("--cheats", action="store_true", help="Instead, the reward of each known cheat.")
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    if given.cheats:
        found = list(map(paid, cheats()))
        print(json.dumps(found, indent=1))
        if given.write:
            given.write.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return
    known: dict[str, Subject | Callable[[int], Row]] = {**subjects(), **OTHERS}
    if unknown := sorted(set(given.rewards) - set(known)):
        parser.error(f"no reward {unknown[0]!r} here; there are {', '.join(known)}")
    for name, subject in known.items():
        if given.rewards and name not in given.rewards:
            continue
        row = measured(name, subject, given.attack) if isinstance(subject, Subject) else subject(given.attack)
        print(json.dumps(vars(row)), file=sys.stdout, flush=True)
        if given.write:
            known_rows = json.loads(given.write.read_text()) if given.write.exists() else []
            own = {**{each["name"]: each for each in known_rows}, name: vars(row)}
            ordered = [own[each] for each in known if each in own]
            given.write.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
