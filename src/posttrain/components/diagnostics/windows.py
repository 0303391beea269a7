"""How a ranking by windows moves relevant passages up, where not all fit in a prompt.

Source: ReasonRank, arXiv:2508.07050, and its release (8421BCD/ReasonRank: rerank/rankllm.py): 100 candidates in one
pass from the bottom, windows of 20 that move up by 10; the last one begins at the top, and further ones are left out.
In a window's order numbers that are not in it are ignored, the first mention counts, and missing passages come last in
their old order. A reply without a closing answer tag is read from the opening one on, or as a whole.

``oracle`` puts relevant passages first; ``swapped`` does, then exchanges each pair of neighbours with the probability
`swaps`. Without tasks they rank `candidates` passages of which the last one is relevant.

    posttrain diagnose windows oracle swapped step=20
    posttrain diagnose windows RUN oracle tasks=mine.jsonl    # columns: prompt, query, documents (a list), relevant

Relevant are numbers from 1; the order of ``documents`` is that before ranking.

Measured here, five seeds of 20 queries: the last of 100 is lifted to rank 1 by the oracle, and to 1.19 [1.03, 1.35]
with exchanges; with a step of 20, so that windows do not overlap, to 81 and to 81.19 [81.10, 81.28].
"""

import random
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.tasks import Tasks
from posttrain.engines import Sampling, Server, wait_for
from posttrain.errors import UserError
from posttrain.grading.ranked_lists import answer_of, ndcg, read_ids, slide
from posttrain.statistics.intervals import mean
from posttrain.types import Task

REPEATS = 20
"""Queries of a seed where there are no tasks."""
TOP = 10
Ranker = Callable[[Task, Sequence[int]], Sequence[int]]
"""The order, by place from 1, of some passages of a task, given by number."""


@frozen
class Windows(Diagnostic):
    """Ranks passages in windows."""

    subjects: ClassVar[tuple[str, ...]] = ("ranker", "...")

    tasks: Tasks | None = None
    """Queries with the fields query, documents and relevant; None makes queries of `candidates` passages."""
    candidates: Annotated[int, Field(ge=2, le=10_000)] = 100
    """Passages of a query that is made."""
    window: Annotated[int, Field(ge=2, le=1000)] = 20
    """Passages in a window."""
    step: Annotated[int, Field(ge=1, le=1000)] = 10
    """Places by which it moves up."""
    swaps: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2
    """Probability with which ``swapped`` exchanges neighbours."""
    template: str = "{query}?\n{passages}\n:"
    """Prompt of a window; passages are lines with number and text."""
    sampling: Sampling = Sampling(temperature=0.0, max_tokens=512)
    """Sampling of a model's orders."""
    seeds: Annotated[int, Field(ge=1, le=1000)] = 5
    """Repetitions of ``swapped``, and of queries that are made."""

    def examine(self, *subjects: Subject) -> Finding:
        """Rank with every subject."""
        if self.step > self.window:
            raise UserError(f"step {self.step} is above window {self.window}, so that passages would be left out")
        tasks = self._tasks()
        rows = {subject.name: self._row(subject, tasks) for subject in subjects}
        before = _quality([[*range(1, _size(task) + 1)] for task in tasks], tasks)
        lines = [
            f"{len(tasks)} queries, windows of {self.window} by {self.step}; NDCG@{TOP} before {before['ndcg']:.3f}, "
            f"mean rank of the first relevant passage {before['rank']:.1f}"
        ]
        lines += [f"{name}: NDCG@{TOP} {row['ndcg']:.3f}, rank {_cell(row)}" for name, row in rows.items()]
        return Finding(values={"queries": len(tasks), "before": before, "found": rows}, lines=lines)

    def _tasks(self) -> Sequence[Task]:
        """The queries. Raises `UserError` for a task without what a window needs."""
        if self.tasks is None:
            return [
                Task(key=f"query {i}", prompt="", fields={"count": self.candidates, "relevant": [self.candidates]})
                for i in range(REPEATS)
            ]
        tasks = self.tasks.load()
        for task in tasks:
            documents, relevant = task.fields.get("documents"), task.fields.get("relevant")
            good = isinstance(documents, list) and len(documents) > 1 and isinstance(relevant, list) and relevant
            if not good or any(own not in range(1, len(documents or ()) + 1) for own in relevant or ()):
                raise UserError(
                    f"task {task.key}: documents must be a list of at least two texts and relevant some of their "
                    f"numbers from 1, got {relevant!r:.60}; leave out queries without a relevant passage"
                )
        return tasks

    def _row(self, subject: Subject, tasks: Sequence[Task]) -> dict[str, Any]:
        """Quality over queries; of what is drawn the mean over seeds, with its interval."""
        exact = subject.name not in ("oracle", "swapped")
        ranker = self._model(subject, tasks) if exact else None
        found = []
        for seed in range(1 if exact or subject.name == "oracle" else self.seeds):
            own = ranker or self._rule(0.0 if subject.name == "oracle" else self.swaps, seed)
            orders = [self._ranked(task, own) for task in tasks]
            found.append(_quality(orders, tasks))
        ranks = [one["rank"] for one in found]
        between = mean(ranks).interval if len(ranks) > 1 else None
        return {
            "ndcg": mean([one["ndcg"] for one in found]).value,
            "rank": mean(ranks).value,
            "interval": list(between) if between else None,
        }

    def _ranked(self, task: Task, ranker: Ranker) -> list[int]:
        """The order after one pass."""
        return slide(range(1, _size(task) + 1), lambda own: ranker(task, own), self.window, self.step)

    def _rule(self, swaps: float, seed: int) -> Ranker:
        """Relevant ones first, in their order, then exchanges."""

        def ranked(task: Task, own: Sequence[int]) -> list[int]:
            relevant, rng = set(task.fields["relevant"]), random.Random(f"windows:{seed}:{task.key}:{own[0]}")
            order = sorted(range(1, len(own) + 1), key=lambda place: own[place - 1] not in relevant)
            for i in range(len(order) - 1):
                if rng.random() < swaps:
                    order[i], order[i + 1] = order[i + 1], order[i]
            return order

        return ranked

    def _model(self, subject: Subject, tasks: Sequence[Task]) -> Ranker:
        """A model, asked by the template."""
        if self.tasks is None:
            raise UserError(f"{subject.name} is a model and needs queries: tasks=mine.jsonl")
        server: Server = subject.serve(subject.load())

        def ranked(task: Task, own: Sequence[int]) -> list[int]:
            texts = [str(task.fields["documents"][number - 1]) for number in own]
            listed = "\n".join(f"{place} {text}" for place, text in enumerate(texts, 1))
            query = str(task.fields.get("query", task.prompt))
            prompt = self.template.replace("{passages}", listed).replace("{query}", query)
            sampler = server.bind("windows", task.key, *own[:1])
            [completion] = wait_for(sampler.sample(sampler.encode(prompt), 1, self.sampling))
            return read_ids(_answer(completion.text))

        return ranked


def _answer(text: str) -> str:
    """The answer of a reply, also of one that was cut."""
    found = answer_of(text)
    return text.rpartition("<answer>")[2] if found is None else found


def _size(task: Task) -> int:
    return int(task.fields["count"]) if "count" in task.fields else len(task.fields["documents"])


def _quality(orders: Sequence[Sequence[int]], tasks: Sequence[Task]) -> dict[str, float]:
    """Means over queries."""
    pairs = [(order, set(task.fields["relevant"])) for order, task in zip(orders, tasks, strict=True)]
    ranks = [1 + next(i for i, own in enumerate(order) if own in relevant) for order, relevant in pairs]
    return {
        "ndcg": mean([ndcg(order, relevant, TOP) for order, relevant in pairs]).value,
        "rank": mean([float(rank) for rank in ranks]).value,
    }


def _cell(row: dict[str, Any]) -> str:
    between = f" [{row['interval'][0]:.2f}, {row['interval'][1]:.2f}]" if row["interval"] else ""
    return f"{row['rank']:.2f}{between}"
