"""Reinforcement on masked paragraphs before that on questions, with a table in place of a model (MaskSearch).

Questions need two pages, the second of which is named on the first. The table's state is which of both are read, and
the number of searches; it searches for the subject, for the friend once its name is read, or for no one, and answers
with what it has read, with the same and every town and job besides, or without the format. It begins as after
imitation of short answers, mostly without a search. A step has 8 rollouts of each of 4 tasks and moves the logits by
the mean over turns of the advantage (less the group's mean, over its std) times (one-hot - p). Tasks, search and
rewards are those of the package. Measured are 200 new questions after the last step: whether the answer is right, its
words, and searches; ``episodes`` has turns and regret as well.

    python docs/experiments/masked_pages.py
"""

import argparse
import json
from dataclasses import dataclass, field

import numpy as np
from episodes import episode_row

from posttrain.components.rewards.token_recall import alike, is_whole
from posttrain.components.tasks.masked import Masked
from posttrain.components.tasks.pages import Pages
from posttrain.datasets.pages import JOBS, TOWNS, Index, pages
from posttrain.statistics.intervals import mean
from posttrain.types import Task

PEOPLE, STEPS, PROMPTS, ROLLOUTS, FRESH, RATE, TURNS = 100, 80, 4, 8, 200, 4.0, 5
BY_NAME = {page.name: page for page in pages(PEOPLE)}
NAMES = list(BY_NAME)
INDEX = Index([page.text for page in BY_NAME.values()])
QUESTIONS = Pages(size=PEOPLE).load()
MASKED = Masked(tasks=Pages(size=PEOPLE, what="paragraphs"), copies=3).load()
START = np.array([0.0, 0.0, 0.0, 2.5, 0.5, 0.0])


@dataclass
class Table:
    """A softmax policy by state."""

    rng: np.random.Generator
    logits: dict[str, np.ndarray] = field(default_factory=dict)

    def chances(self, state: str) -> np.ndarray:
        """[actions] probabilities."""
        powers: np.ndarray = np.exp(self.logits.setdefault(state, START))
        powers /= powers.sum()
        return powers


def words(text: str) -> list[str]:
    """Words without punctuation."""
    return text.replace(",", "").replace(".", "").split()


def answer(task: Task, read: set[str]) -> str:
    """The answer from the pages that were read; none for what they do not have."""
    first, second = (BY_NAME[name] for name in task.fields["path"])
    if "masks" not in task.fields:
        asked = second if second.name in read else first
        return str(getattr(asked, task.domain)) if first.name in read else "none"
    known = [first.town, first.job, first.friend] if first.name in read else []
    known += [second.town] if second.name in read else []
    return " ".join(w if w in known or w in words(str(task.prompt)) else "none" for w in words(str(task.answer)))


def rollout(table: Table, task: Task) -> tuple[list[tuple[str, int]], str]:
    """States with actions, and the text of the last turn."""
    subject, friend = task.fields["path"]
    read: set[str] = set()
    steps: list[tuple[str, int]] = []
    for number in range(TURNS):
        state = f"{subject in read} {friend in read} {number}"
        action = min(int(np.searchsorted(table.chances(state).cumsum(), table.rng.random())), len(START) - 1)
        steps.append((state, action))
        if action < 3:
            query = (subject, friend if subject in read else "none", "none")[action]
            place = INDEX.best(query)
            read |= set() if place is None else {NAMES[place]}
            continue
        short = answer(task, read)
        text = " ".join([short, *TOWNS, *JOBS]) if action == 4 else short
        return steps, text if action == 5 else f"<think>so</think><answer>{text}</answer>"
    return steps, ""


def reward(text: str, task: Task, measure: str) -> float:
    """Format and answer, as in `token_recall`."""
    own = text.partition("<answer>")[2].partition("</answer>")[0]
    return 0.5 * is_whole(text) + alike(own, str(task.answer), measure)


def task_of(step: int, rng: np.random.Generator, masks: int, ordered: bool) -> Task:
    """A masked paragraph in the first steps, from those with fewer masks on, and a question afterwards."""
    if step >= masks:
        return QUESTIONS[int(rng.integers(len(QUESTIONS)))]
    reach = len(MASKED) // masks
    return MASKED[step * reach + int(rng.integers(reach)) if ordered else int(rng.integers(len(MASKED)))]


def learnt(measure: str, masks: int, ordered: bool, seed: int, steps: int = STEPS) -> list[float]:
    """Share of right answers, words of an answer, searches, and turns, on new questions."""
    table = Table(np.random.default_rng(seed))
    for step in range(steps):
        moves: dict[str, np.ndarray] = {}
        count = 0
        for _ in range(PROMPTS):
            task = task_of(step, table.rng, masks, ordered)
            played = [rollout(table, task) for _ in range(ROLLOUTS)]
            rewards = np.array([reward(text, task, measure) for _, text in played])
            for (own, _), advantage in zip(played, (rewards - rewards.mean()) / (rewards.std() + 1e-6), strict=True):
                count += len(own)
                for state, action in own:
                    moves[state] = moves.get(state, 0.0) + advantage * (
                        np.eye(len(START))[action] - table.chances(state)
                    )
        for state, move in moves.items():
            table.logits[state] = table.logits[state] + RATE * move / count
    rows = []
    for _ in range(FRESH):
        task = task_of(masks, table.rng, masks, ordered)
        own, text = rollout(table, task)
        given = text.partition("<answer>")[2].partition("</answer>")[0]
        searches = sum(action < 3 for _, action in own)
        right = alike(given, str(task.answer), "exact")
        rows.append((right, len(words(given)), searches, len(own)))
    return [float(value) for value in np.mean(rows, axis=0)]


ARMS: dict[str, tuple[str, int, bool, int]] = {
    "before": ("f1", 0, True, 0),
    "F1, questions alone": ("f1", 0, True, STEPS),
    "F1, masks in order, then questions": ("f1", STEPS // 2, True, STEPS),
    "F1, masks in any order, then questions": ("f1", STEPS // 2, False, STEPS),
    "exact, questions alone": ("exact", 0, True, STEPS),
    "exact, masks in order, then questions": ("exact", STEPS // 2, True, STEPS),
    "recall, questions alone": ("recall", 0, True, STEPS),
    "recall, masks in order, then questions": ("recall", STEPS // 2, True, STEPS),
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    table, episodes = [], []
    for name, (measure, masks, ordered, steps) in ARMS.items():
        rows = [learnt(measure, masks, ordered, seed, steps) for seed in range(given.seeds)]
        cells = [mean(np.array([row[place] for row in rows])) for place in range(3)]
        own = [{"success": r[0], "calls": r[2], "turns": r[3], "regret": 1.0 - r[0]} for r in rows]
        episodes.append(episode_row(name, own))
        table.append([name, *(f"{c.value:.2f} [{c.interval.low:.2f}, {c.interval.high:.2f}]" for c in cells)])
    print(
        json.dumps(
            {"columns": ["reward and tasks", "right", "words", "searches"], "table": table, "episodes": episodes},
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
