"""Searches for completions that a reward rewards although they are not correct, by seeded hill climbing.

Starts are the reference answer in its form, the prompt, nothing, and answers of other tasks. An edit inserts, removes,
repeats, replaces or swaps pieces of the text; pieces come from the reference, the prompt, other answers, and a few that
have opened graders. For each task the best texts so far that are not correct are edited further, best by the reward's
value. Every text is scored in a worker that can be killed.

What is correct is decided by another reward, the oracle. Without one, a text is correct if its last line, or what is
in its last tag or box, has the words and numbers of the reference and no others.
"""

import re
from collections.abc import Mapping, Sequence
from random import Random

import numpy as np

from posttrain.audit import Probe, Subject
from posttrain.audit.auditing import WALL_PER_CPU_SECOND, Scored, Settings, golds_of, rollout_of
from posttrain.components.rewards import Reward
from posttrain.engines import wait_for
from posttrain.grading.isolated import Isolated
from posttrain.grading.workers import Limits
from posttrain.types import Score, Task

BATCH = 32
"""Texts that are scored at once."""
KEPT = 4
"""Texts of a task that are edited further."""
LONGEST = 4000
"""Characters of an edited text."""
MOST_FINDS = 10
"""Finds of a task that are reported."""
BITS = (
    *(" or ", " and ", ", ", "\n", " not ", "-", "0", "1", ".", "=", "is", "A", "(", ")", "{", "}", "[", "]", '"'),
    *("<answer>", "</answer>", "<think>", "</think>", "\\boxed{", "####", "True", "None", "```"),
)
_PIECE = re.compile(r"<[^<>\s]{1,20}>|\\?\w+|\s+|.", re.DOTALL)
_WORD = re.compile(r"\w+|(?<!\*)\*(?!\*)|[-+/=<>]")
_LAST = re.compile(r"<(\w+)>([^<>]*)</\1>|\\boxed\{([^{}]*)\}")


def counts_of(scored: Sequence[Scored]) -> dict[str, float]:
    """Counts as of a kind of probes."""
    return {
        "probes": len(scored),
        "rewarded": sum(item.score.status == "ok" for item in scored),
        "errors": sum(item.score.status == "error" for item in scored),
        "mean": float(np.mean([item.score.value for item in scored if np.isfinite(item.score.value)] or [0.0])),
        "slowest": max((item.outcome.cpu_seconds for item in scored), default=0.0),
    }


def tried_again(
    reward: Reward, tasks: Sequence[Task], settings: Settings, finds: Mapping[str, Sequence[str]]
) -> list[Scored]:
    """Earlier finds, texts by the key of their task, as probes; those of other tasks are left out."""
    limits = Limits(cpu_seconds=settings.cpu_seconds, wall_seconds=WALL_PER_CPU_SECOND * settings.cpu_seconds)
    grader = Isolated(reward, limits, preload=getattr(reward, "libraries", ()))
    pairs = [
        (task, Probe(name="an earlier find", text=text, expected="unrewarded"))
        for task in tasks
        for text in finds.get(task.key, ())
    ]
    outcomes = wait_for(grader.outcomes([rollout_of(probe, task) for task, probe in pairs]))
    return [Scored("finds", probe, task, *found) for (task, probe), found in zip(pairs, outcomes, strict=True)]


def searched(
    reward: Reward, tasks: Sequence[Task], settings: Settings, *, budget: int, seed: int, oracle: Reward | None
) -> tuple[list[Scored], list[Scored]]:
    """All texts that were scored, and the finds, at most `MOST_FINDS` of a task."""
    golds = golds_of(reward, tasks, settings.form)
    limits = Limits(cpu_seconds=settings.cpu_seconds, wall_seconds=WALL_PER_CPU_SECOND * settings.cpu_seconds)
    preload = getattr(reward, "libraries", ())
    graders = [Isolated(made, limits, preload=preload) for made in (reward, oracle) if made is not None]
    found: list[Scored] = []
    everything: list[Scored] = []
    for number, (task, gold) in enumerate(golds):
        share = budget // len(golds) + (number < budget % len(golds))
        others = [other.answer for _, other in golds if other is not gold][:3]
        subject = Subject(task=task, form=gold.form, gold=gold.answer, others=others, language=reward.runs)
        scored, finds = _climb(graders, subject, share, Random(f"attack:{seed}:{task.key}"))
        everything += scored
        found += finds[:MOST_FINDS]
    return everything, found


def _climb(
    graders: Sequence[Isolated], subject: Subject, budget: int, rng: Random
) -> tuple[list[Scored], list[Scored]]:
    """All texts that were scored, and those that are rewarded and not correct, the shortest first."""
    starts = [subject.written(subject.answer), subject.prompt_text, "", *map(subject.written, subject.others)]
    pool = [*BITS, *(piece for text in (*starts, *subject.task.demonstrations) for piece in pieces(text))]
    seen: set[str] = set()
    best: list[tuple[float, str]] = []
    scored: list[Scored] = []
    finds: list[Scored] = []
    waiting = list(starts)
    while len(scored) < budget and (waiting or best):
        parents = [text for _, text in best] + starts
        draws = 0
        while len(waiting) < min(BATCH, budget - len(scored)) and draws < 50 * BATCH:
            draws += 1
            text = edited(rng.choice(parents), pool, rng)
            if text not in seen and text not in waiting:
                waiting.append(text)
        batch, waiting = waiting[: budget - len(scored)], []
        if not batch:
            break
        seen.update(batch)
        items, right = _scored(graders, subject, batch)
        scored += items
        wrong = [item for item, correct in zip(items, right, strict=True) if not correct]
        finds += [item for item in wrong if item.score.status == "ok"]
        best += [(item.score.value, item.probe.text) for item in wrong if item.score.status != "error"]
        best = sorted(best, key=lambda entry: (-entry[0], len(entry[1]), entry[1]))[:KEPT]
    return scored, sorted(finds, key=lambda item: (-item.score.value, len(item.probe.text), item.probe.text))


def _scored(graders: Sequence[Isolated], subject: Subject, texts: Sequence[str]) -> tuple[list[Scored], list[bool]]:
    """The scores of texts, and whether each is correct by the oracle; what it cannot decide counts as correct."""
    probes = [Probe(name=f"edit of {len(text)} characters", text=text, expected="unrewarded") for text in texts]
    rollouts = [rollout_of(probe, subject.task) for probe in probes]
    outcomes = wait_for(graders[0].outcomes(rollouts))
    items = [Scored("attack", probe, subject.task, *found) for probe, found in zip(probes, outcomes, strict=True)]
    if len(graders) == 1:
        return items, [is_reference(text, subject) for text in texts]
    verdicts: list[Score] = [score for score, _ in wait_for(graders[1].outcomes(rollouts))]
    return items, [score.status != "wrong" for score in verdicts]


def is_reference(text: str, subject: Subject) -> bool:
    """Whether the last line of a text, or what is in its last tag or box, is the reference and nothing else."""
    wanted = [_words(subject.answer), _words(subject.written(subject.answer))]
    wanted += map(_words, subject.task.demonstrations)
    lines = text.rstrip().splitlines()
    marked = [found[2] or found[3] or "" for found in _LAST.finditer(text)]
    return any(_words(part) in wanted for part in (text, *lines[-1:], *marked[-1:]))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def pieces(text: str) -> list[str]:
    """Tags, words, spaces and other characters of a text."""
    return _PIECE.findall(text)


def edited(text: str, pool: Sequence[str], rng: Random) -> str:
    """One to three edits of a text."""
    parts = pieces(text)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(parts) + 1)
        end = min(place + rng.randint(1, 4), len(parts))
        kind = rng.choice(("insert", "insert", "remove", "repeat", "replace", "swap"))
        if kind == "insert" or not parts:
            parts.insert(place, rng.choice(pool))
        elif kind == "remove":
            del parts[place:end]
        elif kind == "repeat":
            parts[end:end] = parts[place:end]
        elif kind == "replace":
            parts[place:end] = [rng.choice(pool)]
        else:
            other = rng.randrange(len(parts))
            place = min(place, len(parts) - 1)
            parts[place], parts[other] = parts[other], parts[place]
    return "".join(parts)[:LONGEST]
