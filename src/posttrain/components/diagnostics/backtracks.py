"""Backtracks: how many dead ends a model's answers to countdown tasks run into, and how often they end well.

Source: Cai et al. 2025, arXiv:2505.24273, which relates the number of backtracks in demonstrations to what RL reaches.
Dead ends are counted by their remarks (`posttrain.datasets.backtracks`): those of an answer, and the different ones of
it. A dead end that is repeated searches nothing.

Differs: the paper counts by the words of a large model's traces.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.diagnostics._answers import answer_all, check_roles
from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.components.tasks import Tasks
from posttrain.datasets.backtracks import dead_ends
from posttrain.engines import Sampling, Server, wait_for
from posttrain.statistics.intervals import mean, wilson
from posttrain.types import Group, Task

ROWS: Final = (28,)
MOST: Final = 5
"""Dead ends from which on answers are counted together."""


@frozen
class Backtracks(Diagnostic):
    """Dead ends in sampled answers, and in the tasks' demonstrations."""

    subjects: ClassVar[tuple[str, ...]] = ("model",)

    tasks: Tasks
    """Countdown tasks."""
    verifier: Reward
    """Scores the answers: ``countdown``."""
    n: PositiveInt = 4
    """Answers per task."""
    sampling: Sampling = Sampling(max_tokens=256)
    """Sampling of the answers."""

    def examine(self, *subjects: Subject) -> Finding:
        """Answer every task, and count."""
        check_roles(self.verifier)
        [subject] = subjects
        tasks = self.tasks.load()
        groups = wait_for(self._score_all(subject.serve(subject.load()), tasks))
        answers = [t for group in groups for t in group if t.score is not None and t.score.status != "error"]
        found = [dead_ends(t.completion) for t in answers]
        right = [t.score is not None and t.score.status == "ok" for t in answers]
        by_count: dict[int, list[bool]] = {}
        for one, correct in zip(found, right, strict=True):
            by_count.setdefault(min(one.count, MOST), []).append(correct)
        shown = [dead_ends(text).count for task in tasks for text in task.demonstrations]
        total = sum(one.count for one in found)
        values = {
            "answers": len(answers),
            "left_out": sum(map(len, groups)) - len(answers),
            "dead_ends": _spread([one.count for one in found]),
            "distinct": sum(one.distinct for one in found) / total if total else None,
            "accuracy": sum(right) / len(right) if right else None,
            "by_count": {
                str(count): {
                    "answers": len(own),
                    "accuracy": sum(own) / len(own),
                    "interval": [*wilson(sum(own), len(own))],
                }
                for count, own in sorted(by_count.items())
            },
            "demonstrations": {str(count): times for count, times in sorted(Counter(shown).items())},
        }
        return Finding(values=values, lines=_lines(values))

    async def _score_all(self, server: Server, tasks: Sequence[Task]) -> list[Group]:
        groups = await answer_all(server, "backtracks", tasks, self.n, self.sampling)
        context = RewardContext()
        return list(await asyncio.gather(*(scored(group, self.verifier, context) for group in groups)))


def _spread(numbers: Sequence[int]) -> dict[str, Any] | None:
    """Mean with its interval; None for no number, and no interval for one."""
    if not numbers:
        return None
    found = mean(numbers)
    return {"mean": found.value, "interval": list(found.interval) if len(numbers) > 1 else None}


def _lines(values: dict[str, Any]) -> list[str]:
    """Dead ends of demonstrations and answers, and a line for each count."""
    left_out = f"; {values['left_out']} more could not be scored" if values["left_out"] else ""
    shown = ", ".join(f"{count} in {times}" for count, times in values["demonstrations"].items()) or "none"
    lines = [f"dead ends in demonstrations: {shown}"]
    if values["dead_ends"] is None:
        return [*lines, f"no answer{left_out}"]
    distinct = (
        "" if values["distinct"] is None else f", of which {values['distinct']:.1%} are different ones of their answer"
    )
    lines.append(
        f"dead ends in {values['answers']} answers: {values['dead_ends']['mean']:.3f} each{distinct}; "
        f"{values['accuracy']:.1%} are correct{left_out}"
    )
    for count, own in values["by_count"].items():
        low, high = own["interval"]
        more = " or more" if int(count) == MOST else ""
        lines.append(
            f"{count}{more} dead ends: {own['answers']} answers, {own['accuracy']:.1%} [{low:.1%}, {high:.1%}] correct"
        )
    return lines
