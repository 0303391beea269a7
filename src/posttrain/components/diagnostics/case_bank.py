"""What a model gains from a bank of its own past cases, with its weights unchanged.

Source: Memento (AgentFly), arXiv:2508.16153, and its release. The model does the first `logged` tasks one after the
other. Before each the `k` likeliest past cases are shown, right ones with their answer and wrong ones apart, with the
instruction to follow the right ones; afterwards task, answer and outcome are added to the bank, failures too, without a
search for doubles. A task whose scoring failed counts as wrong. Each shown case makes a row of a log, labelled by
whether the answer was right. From the log a selector is trained, and values of a kernel are stored
(`posttrain.statistics.case_bank`). Then the last `tested` tasks are done with the bank as it is: without cases, with
the likeliest, with those of the selector, and with cases drawn by values. No weight changes, by digest.

    posttrain diagnose case_bank RUN tasks=mine.jsonl reward=match k=4    # columns: prompt, answer

Differs: the vectors are hashed triples of characters, where the release fine-tunes an encoder of sentences. The answer
is the plan of a case; there is one model, and no planner apart from it. `credit=first` labels the first case alone.

Measured here, for a reader that follows one of the right cases that are shown (5 seeds; tasks 301 to 500, of 30 types):
success 20 % [18, 23] without cases; of the likeliest cases 34 % [32, 37] with one, 44 % [40, 49] with four and 33 %
[29, 36] with sixteen; 60 % [55, 64] with four of a selector that is trained from task 151 on, and 66 % [57, 75] where
only the followed case has the label. Where a fifth of the first cases has a wrong plan, 40 % [35, 45] and 60 %
[52, 67]. Values of a kernel need more than 500 tasks: 25 % [23, 27] (docs/experiments.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.diagnostics._answers import answer, check_roles
from posttrain.components.diagnostics._digest import digest_of
from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.components.tasks import Tasks
from posttrain.engines import Sampling, Server, wait_for
from posttrain.errors import UserError
from posttrain.statistics.case_bank import (
    Case,
    Selector,
    Values,
    best,
    case_of,
    features,
    fitted,
    likeness,
    vector_of,
)
from posttrain.statistics.intervals import wilson
from posttrain.types import Message, Task

ROWS: Final = (77,)
READS: Final = ("none", "likeness", "learned", "values")


@frozen
class CaseBank(Diagnostic):
    """Fills a bank of cases, and measures a model with cases that are chosen in several ways."""

    subjects: ClassVar[tuple[str, ...]] = ("model",)

    tasks: Tasks
    """What is done: the first tasks fill the bank, the last ones are tested."""
    reward: Reward
    """What decides whether an answer is right. It must not need models of a recipe."""
    logged: Annotated[int, Field(ge=1, le=100_000)] = 200
    """Tasks that fill the bank."""
    tested: Annotated[int, Field(ge=1, le=100_000)] = 100
    """Tasks of the tests, never in the bank."""
    k: Annotated[int, Field(ge=0, le=100)] = 4
    """Most cases that are shown; 0 shows none."""
    credit: Literal["shown", "first"] = "shown"
    """Which cases of a task the label of its answer is given to: all that were shown, as released, or the first."""
    sampling: Sampling = Sampling()
    """How the model answers."""
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    """Seed of the selector and of draws by values."""

    def examine(self, *subjects: Subject) -> Finding:
        """Fill the bank, train the selector, and test."""
        check_roles(self.reward)
        [subject] = subjects
        tasks = list(self.tasks.load())
        if len(tasks) < self.logged + self.tested:
            raise UserError(
                f"{self.logged} tasks for the bank and {self.tested} tests need {self.logged + self.tested} tasks, "
                f"got {len(tasks)}; give more, or lower logged or tested"
            )
        policy = subject.load()
        before, server = digest_of(policy), subject.serve(policy)
        bank = _Bank(k=self.k)
        for task in tasks[: self.logged]:
            self._log(server, bank, task)
        bank.train(self.seed)
        found = {read: self._tested(server, bank, tasks[-self.tested :], read) for read in READS}
        values = {
            "cases": len(bank.cases),
            "right_cases": sum(case.right for case in bank.cases),
            "failed": bank.failed,
            "log_rows": len(bank.labels),
            "success": found,
            "weights_unchanged": digest_of(policy) == before,
        }
        return Finding(values=values, lines=_lines(values, self.tested))

    def _log(self, server: Server, bank: "_Bank", task: Task) -> None:
        """Do a task with the likeliest cases, and write it."""
        query_D = vector_of(text_of(task))
        shown = bank.chosen("likeness", query_D, np.random.default_rng(0))
        text, right = self._answer(server, bank, task, shown, "logged")
        bank.failed += right is None
        for place in shown if self.credit == "shown" else shown[:1]:
            bank.rows.append(features(query_D, [bank.cases[place]])[0])
            bank.labels.append(int(right is True))
            bank.values.stored(place, query_D, float(right is True))
        bank.cases.append(case_of(text_of(task), text, right is True))

    def _tested(self, server: Server, bank: "_Bank", tasks: Sequence[Task], read: str) -> dict[str, Any]:
        """Success with cases that are chosen in one way; the bank stays as it is."""
        rng = np.random.default_rng(self.seed)
        chosen = [bank.chosen(read, vector_of(text_of(task)), rng) for task in tasks]
        solved = sum(
            self._answer(server, bank, task, shown, "tested")[1] is True
            for task, shown in zip(tasks, chosen, strict=True)
        )
        return {"share": solved / len(tasks), "interval": list(wilson(solved, len(tasks)))}

    def _answer(
        self, server: Server, bank: "_Bank", task: Task, shown: Sequence[int], name: str
    ) -> tuple[str, bool | None]:
        """The model's answer, and whether it is right; None where scoring failed."""
        asked = with_cases(task, [bank.cases[place] for place in shown])

        async def one() -> tuple[str, bool | None]:
            group = await answer(server, name, asked, 1, self.sampling)
            [own] = await scored(group, self.reward, RewardContext())
            failed = own.score is None or own.score.status == "error"
            return own.completion, None if failed else own.solved

        return wait_for(one())


@dataclass(kw_only=True)
class _Bank:
    """Cases, the log of those that were shown, and what was learned from it."""

    k: int
    cases: list[Case] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    values: Values = field(default_factory=Values)
    failed: int = 0
    """Tasks whose scoring failed."""
    selector: Selector | None = None

    def train(self, seed: int) -> None:
        """Fit the selector to the log; none to an empty one."""
        if self.rows:
            self.selector = fitted(np.array(self.rows), np.array(self.labels), seed)

    def chosen(self, read: str, query_D: Any, rng: np.random.Generator) -> list[int]:
        """Places of the cases to show."""
        if read == "none" or not self.k or not self.cases:
            return []
        if read == "values":
            return self.values.drawn(self.values.q(query_D, len(self.cases)), self.k, rng)
        if read == "learned" and self.selector is not None:
            return best(self.selector.scores(query_D, self.cases), self.k)
        return best(likeness(query_D, self.cases), self.k)


def text_of(task: Task) -> str:
    """What is asked: the prompt, or the last message of a chat."""
    return task.prompt if isinstance(task.prompt, str) else task.prompt[-1]["content"]


def with_cases(task: Task, cases: Sequence[Case]) -> Task:
    """The task with the cases before its text; the task itself without any."""
    if not cases:
        return task
    right = "".join(f"{case.query}{case.plan}\n" for case in cases if case.right)
    wrong = "".join(f"{case.query}{case.plan}\n" for case in cases if not case.right)
    blocks = (f"Right:\n{right}" if right else "") + (f"Wrong:\n{wrong}" if wrong else "")
    text = f"{blocks}Follow the right ones.\n{text_of(task)}"
    if isinstance(task.prompt, str):
        return replace(task, prompt=text)
    last = Message(role=task.prompt[-1]["role"], content=text)
    return replace(task, prompt=(*task.prompt[:-1], last))


def _lines(values: dict[str, Any], tested: int) -> list[str]:
    """The bank, and a line for each way to choose."""
    names = {"none": "no cases", "likeness": "likeliest cases", "learned": "selector", "values": "drawn by values"}
    lines = [f"{values['cases']} cases, {values['right_cases']} right; {values['failed']} could not be scored"]
    for read, own in values["success"].items():
        low, high = own["interval"]
        lines.append(f"{names[read]}: {own['share']:.1%} [{low:.1%}, {high:.1%}] of {tested}")
    return [*lines, "weights: unchanged" if values["weights_unchanged"] else "weights: CHANGED"]
