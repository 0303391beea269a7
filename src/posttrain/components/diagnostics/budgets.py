"""What a model gains from more turns: its success under budgets of 1 to 5 steps, each in a run of its own.

Source: MINT, arXiv:2309.10691: SR_k is the success rate with a budget of k steps that the prompt states, 1 proposal for
k = 1 and 2 beyond; it is not the prefix of a run with a larger budget. The tool gain is the slope of SR_k by least
squares; the feedback gain is SR at the largest budget with feedback minus that without.

    posttrain diagnose budgets RUN guess4 'rollout={kind: turns, environment: budgeted, sampling: {max_tokens: 32}}' \
        tasks=mine.jsonl     # columns: prompt, answer

``guess4`` stands for a player who proposes one of 4 options at random in every step, never the same twice: a slope
above 0 that learns nothing. Its numbers are exact: 1/4 with one proposal, 1/2 with two. ``guess4again`` may repeat one.

Differs: the environment has a calculator, and feedback by rule; the release has 586 items of eight data sets, a Python
shell and feedback by GPT-4.

Measured here: ``python docs/experiments/budgets.py``, sums up to 60, new models of 200k weights, 100 held-out sums, 5
seeds. Success with 1 to 5 steps: imitated dialogues .00, .91, .99, 1.00, .99; imitated answers .04, .29, .22, .33, .73;
a guesser .25, then .50. The slope is larger by .06 [.03, .10] after dialogues, and the guesser's is .05. Both models
imitated prompts that state 5 steps: much of the slope of answers is that other numbers are new to it. Feedback
(``sign``) brings neither anything, as neither saw any.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.environments import Episode
from posttrain.components.rollouts import Rollout
from posttrain.components.tasks import Tasks
from posttrain.engines import Server, wait_for
from posttrain.errors import UserError
from posttrain.statistics.intervals import wilson
from posttrain.statistics.slopes import fit_line
from posttrain.types import Task, Trajectory

ROWS: Final = (27,)


@frozen
class Budgets(Diagnostic):
    """Measures success by budget, and two gains."""

    subjects: ClassVar[tuple[str, ...]] = ("model", "...")

    rollout: Rollout
    """How models act: ``turns`` in an environment with the settings `steps`, `proposals` and `feedback`."""
    tasks: Tasks
    """What is asked, with reference answers."""
    largest: Annotated[int, Field(ge=2, le=50)] = 5
    """Largest budget, in steps."""
    feedback: str = "sign"
    """Feedback of the environment, for the feedback gain."""
    first: Annotated[int, Field(ge=1, le=100_000)] = 100
    """Number of tasks, from the first."""

    def examine(self, *subjects: Subject) -> Finding:
        """Run every model under every budget, and guessers beside them."""
        tasks = list(self.tasks.load())[: self.first]
        self._with(1, "none").check(tasks)
        rows = {subject.name: self._row(subject, tasks) for subject in subjects}
        return Finding(values={"tasks": len(tasks), "found": rows}, lines=self._lines(rows, len(tasks)))

    def _row(self, subject: Subject, tasks: Sequence[Task]) -> dict[str, Any]:
        budgets = range(1, self.largest + 1)
        if guess := re.fullmatch(r"guess(\d+)(again)?", subject.name):
            options, again = int(guess[1]), bool(guess[2])
            rates = [guessed(options, proposals_of(k), again=again) for k in budgets]
            return _row(rates, rates[-1], None)
        server = subject.serve(subject.load())
        played = [self._played(server, k, "none", tasks) for k in budgets]
        counts = [_solved(own) for own in played]
        helped = _solved(self._played(server, self.largest, self.feedback, tasks))
        row = _row([count / len(tasks) for count in counts], helped / len(tasks), [counts[-1], len(tasks)])
        return row | {"episodes": [_means(own) for own in played]}

    def _played(self, server: Server, steps: int, feedback: str, tasks: Sequence[Task]) -> list[Trajectory]:
        """An episode of each task within a budget."""
        rollout = self._with(steps, feedback)

        async def run() -> list[Trajectory]:
            groups = await asyncio.gather(
                *(
                    rollout.collect(task, {"policy": server.bind("budgets", steps, feedback, task.key)})
                    for task in tasks
                )
            )
            return [t for (group,) in groups for t in group]

        return wait_for(run())

    def _with(self, steps: int, feedback: str) -> Rollout:
        """The rollout under a budget. Raises `UserError` for one without."""
        environment: Any = getattr(self.rollout, "environment", None)
        if not all(hasattr(environment, name) for name in ("steps", "proposals", "feedback")):
            raise UserError(
                f"the rollout '{self.rollout.kind}' has no environment with a budget; write rollout={{kind: turns, "
                "environment: budgeted}, or an environment of your own with steps, proposals and feedback"
            )
        budget: Any = replace(environment, steps=steps, proposals=proposals_of(steps), feedback=feedback)
        changed: Any = self.rollout
        made: Rollout = replace(changed, environment=budget, max_turns=steps, n=1)
        return made

    def _lines(self, rows: Mapping[str, Mapping[str, Any]], count: int) -> list[str]:
        """A table."""
        width = max(map(len, rows))
        head = "  ".join(f"SR_{k}" for k in range(1, self.largest + 1))
        lines = [
            f"{count} tasks; success by budget, each in a run of its own, slope per step, gain by feedback",
            f"{'':{width}}  {head}  slope  feedback",
        ]
        for name, row in rows.items():
            rates = "  ".join(f"{rate:.2f}" for rate in row["success"])
            lines.append(f"{name:{width}}  {rates}  {row['slope']:+.3f}  {row['feedback_gain']:+.2f}")
        return lines


def proposals_of(steps: int) -> int:
    """Proposals in a budget: 1 for one step, else 2."""
    return min(steps, 2)


def guessed(options: int, proposals: int, *, again: bool) -> float:
    """Success of one who guesses among options: without repetition, or with."""
    return 1.0 - (1.0 - 1.0 / options) ** proposals if again else min(proposals / options, 1.0)


def _solved(rollouts: Sequence[Trajectory]) -> int:
    """How many rollouts the environment holds to be right."""
    verdicts = [episode.verdict for t in rollouts if (episode := t.fact(Episode)) is not None]
    return sum(verdict is not None and verdict.solved for verdict in verdicts)


def _means(rollouts: Sequence[Trajectory]) -> dict[str, float]:
    """Success, and means of turns, calls of tools where they are counted, and sampled tokens."""
    episodes = [episode for t in rollouts if (episode := t.fact(Episode)) is not None]
    calls = [measures["calls"] for own in episodes if "calls" in (measures := own.measures or {})]
    return {
        "success": _solved(rollouts) / len(rollouts),
        "turns": sum(own.turns for own in episodes) / max(len(episodes), 1),
        **({"calls": sum(calls) / len(calls)} if calls else {}),
        "tokens": sum(t.num_trained for t in rollouts) / len(rollouts),
    }


def _row(rates: Sequence[float], helped: float, counted: Sequence[int] | None) -> dict[str, Any]:
    line = fit_line(range(1, len(rates) + 1), rates)
    interval = list(wilson(counted[0], counted[1])) if counted is not None else None
    return {
        "success": list(rates),
        "interval": interval,
        "slope": line.slope,
        "r2": line.r2,
        "feedback_gain": helped - rates[-1],
    }
