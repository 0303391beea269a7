"""Completions that verifiable rewards score a second, and the memory that they need, beside their goals.

    python -m benchmarks.reward_speeds            # about a minute on two cores; run it on an idle machine

Each row is one kind of reward with generated tasks: the completions are the demonstration, that of another task, half
of it, the prompt and nothing, in groups of one task; the first call is left out, and then groups are scored until two
seconds have passed. Memory is that of this process and all below it, beyond what it had before the row, in MiB.
Rewards that need what is not installed are listed with the reason.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rewards import held, texts_of
from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rewards.branch_distance import BranchDistance
from posttrain.components.rewards.kernel import Kernel
from posttrain.components.rewards.list_metric import ListMetric
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.next_action import NextAction
from posttrain.components.rewards.patch_similarity import PatchSimilarity
from posttrain.components.rewards.refactored import Refactored
from posttrain.components.rewards.reranked import Reranked
from posttrain.components.rewards.semantic import Semantic
from posttrain.components.rewards.suite import Suite
from posttrain.components.rewards.text_similarity import TextSimilarity
from posttrain.components.rewards.tool_calls import ToolCalls
from posttrain.components.rewards.translated import Translated
from posttrain.components.rewards.word_overlap import WordOverlap
from posttrain.components.rollouts import Pointwise
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.ciphers import Ciphers
from posttrain.components.tasks.code_lines import CodeLines
from posttrain.components.tasks.guards import Guards
from posttrain.components.tasks.kernels import Kernels
from posttrain.components.tasks.passages import Passages
from posttrain.components.tasks.recorded_shopping import RecordedShopping
from posttrain.components.tasks.refactorings import Refactorings
from posttrain.components.tasks.repairs import written as edit
from posttrain.components.tasks.suites import Suites
from posttrain.components.tasks.tool_requests import ToolRequests
from posttrain.errors import UserError
from posttrain.sandbox import find_tier
from posttrain.types import Group, Segment, Task, Trajectory

SECONDS = 2.0
TOGETHER = 16
"""Groups that are scored at a time."""
DOCUMENTS, ROLLOUTS = 10, 8
Groups = Sequence[Group]


def rollout(task: Task, text: str, **facts: Any) -> Trajectory:
    """A completion of a task."""
    segment = Segment(actor="policy", token_ids=np.zeros(1, np.int64), trained=True, text=text)
    return Trajectory(task=task, segments=(segment,), stop_reason="stop", **facts)


def of_tasks(tasks: Sequence[Task]) -> Groups:
    """Five texts of each task."""
    found, own = [], [task for task in tasks if task.demonstrations]
    for place, task in enumerate(own):
        others = own[place + 1 : place + 20] + own[: max(0, place - 20)]
        texts = [text for kind, text in texts_of(task, others, lambda _: {}) if kind != "twice"]
        found.append(Group(key=task.key, trajectories=tuple(rollout(task, text) for text in texts)))
    return found


def of_lists() -> Groups:
    """Scores of ten documents of a query, eight each."""
    found, rng = [], np.random.default_rng(73)
    for number in range(50):
        known = {"relevant": [place < 2 for place in range(DOCUMENTS)], "prompts": ["q"] * DOCUMENTS}
        task = Task(key=str(number), prompt="q", fields=known)
        rollouts = []
        for document in range(DOCUMENTS):
            for sample in range(ROLLOUTS):
                stated = int(rng.integers(11))
                fact = Pointwise(document=document, stated=stated, probability=0.5)
                rollouts.append(rollout(task, f"#### {stated}", facts=(fact,), sample=sample))
        found.append(Group(key=task.key, trajectories=tuple(rollouts)))
    return found


def of_patches() -> Groups:
    """Patches of 2 kB: 60 lines are replaced, of which the true patch changes one in five."""
    found = []
    for number in range(40):
        lines = [f"def f{place}(x): return x * {place + number} - {7 * place}" for place in range(50)]
        fixed = [line.replace("-", "+") if place % 5 == number % 5 else line for place, line in enumerate(lines)]
        near = [line.replace("*", "//") if place % 9 == 0 else line for place, line in enumerate(fixed)]
        before, after = "\n".join(lines), "\n".join(fixed)
        files = {"files": {"a.py": f"{before}\n"}, "oracle": {"a.py": f"{after}\n"}}
        task = Task(key=str(number), prompt="Add.", fields=files)
        texts = [after, "\n".join(near), "\n".join(near[:40]), f"{after}\n# done {number}"]
        made = [rollout(task, edit("a.py", before, text)) for text in texts]
        found.append(Group(key=task.key, trajectories=tuple(made)))
    return found


def rows() -> list[tuple[str, str, int, Reward, Callable[[], Groups]]]:
    """Kind, name, goal in completions a second, reward, and groups."""
    tier = find_tier().tier
    return [
        ("lists", "list_metric", 5000, ListMetric(), of_lists),
        ("lists", "reranked", 5000, Reranked(), lambda: of_tasks(Passages(size=200, noise=0.0).load())),
        ("calls", "tool_calls", 5000, ToolCalls(), lambda: of_tasks(ToolRequests(size=200, right=1.0).load())),
        ("text metrics", "translated (BLEU)", 2000, Translated(), lambda: of_tasks(Ciphers(size=200).load())),
        ("text metrics", "text_similarity", 2000, TextSimilarity(), lambda: of_tasks(CodeLines(size=200).load())),
        ("learned metric", "semantic", 80, Semantic(numbers=False), lambda: of_tasks(Ciphers(size=200).load())),
        ("text metrics", "word_overlap", 2000, WordOverlap(), lambda: of_tasks(Ciphers(size=200).load())),
        (
            *("text metrics", "next_action (ROUGE-L)", 2000, NextAction()),
            lambda: of_tasks(RecordedShopping(size=200, right=1.0).load()),
        ),
        ("parsing", "refactored", 500, Refactored(), lambda: of_tasks(Refactorings(size=200).load())),
        ("patches of 2 kB", "patch_similarity", 200, PatchSimilarity(), of_patches),
        (
            *("suites", "suite", 100, Suite(weakest=tier)),
            lambda: of_tasks(Suites(size=20, faults=4, inputs=100).load()),
        ),
        (
            *("fuzzing", "branch_distance", 100, BranchDistance(weakest=tier)),
            lambda: [_many(group) for group in of_tasks(Guards(size=20).load())],
        ),
        (
            *("kernels", "kernel (toy)", 0, Kernel(dialect="toy", weakest=tier)),
            lambda: [_distinct(group) for group in of_tasks(Kernels(size=40).load())],
        ),
        (
            *("Triton", "kernel (Triton)", 5, Kernel(weakest=tier)),
            lambda: [_distinct(group) for group in of_tasks(Kernels(size=40, dialect="triton").load())],
        ),
        ("for comparison", "match", 0, Match(), lambda: of_tasks(Arithmetic(size=200).load())),
    ]


def _distinct(group: Group) -> Group:
    """A right program in eight texts that differ by a remark: equal ones are run once."""
    task = group.trajectories[0].task
    texts = [f"# {number}\n{task.demonstrations[0]}" for number in range(8)]
    return replace(group, trajectories=tuple(rollout(task, text) for text in texts))


def _many(group: Group) -> Group:
    """Eight inputs of a line."""
    task = group.trajectories[0].task
    count = len(task.demonstrations[0].split(","))
    texts = [", ".join(str(7 * place + number) for place in range(count)) for number in range(8)]
    return replace(group, trajectories=tuple(rollout(task, text) for text in texts))


def measured(reward: Reward, groups: Groups, seconds: float) -> tuple[int, float]:
    """Completions, and the seconds that scoring them took."""

    async def scored(own: Groups) -> list[Sequence[Any]]:
        return list(await asyncio.gather(*(reward.score(group, RewardContext()) for group in own)))

    reward.prepare()
    asyncio.run(scored(groups[:2]))
    count, waiting, began = 0, cycle(range(0, len(groups), TOGETHER)), time.perf_counter()
    while time.perf_counter() - began < seconds:
        place = next(waiting)
        for scores in asyncio.run(scored(groups[place : place + TOGETHER])):
            count += len(scores)
            failed = [score.explanation for score in scores if score.status == "error"]
            assert not failed, failed[0]
    return count, time.perf_counter() - began


def main() -> None:
    """Print a line for each row."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reward_speeds")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each row")
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    began, cpu, table = time.perf_counter(), time.process_time, []
    for kind, name, goal, reward, make in rows():
        groups, before, used = make(), held(), cpu()
        try:
            count, seconds = measured(reward, groups, given.seconds)
        except UserError as error:
            print(f"{kind:18} {name:24} not measured: {error}", flush=True)
            continue
        found = {"kind": kind, "reward": name, "a_second": count / seconds, "goal": goal}
        found |= {
            "completions": count,
            "memory_mib": (held() - before) / 1024,
            "own_cpu_share": (cpu() - used) / seconds,
        }
        table.append(found)
        print(
            f"{kind:18} {name:24} {found['a_second']:9,.0f} a second (goal {goal or 'none'}), "
            f"{found['memory_mib']:.0f} MiB, {100 * found['own_cpu_share']:.0f} % of a core in this process",
            flush=True,
        )
    print(f"{time.perf_counter() - began:.0f} s in all, {held() / 1024:.0f} MiB at the end")
    if given.write:
        given.write.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
