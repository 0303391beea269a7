"""How good a curriculum's choices are: regret, and rollouts to an accuracy, of a learner with known difficulties.

Source: a simulation of our own; that a policy gradient vanishes with the standard deviation of the reward is shown by
Razin et al. 2023, arXiv:2310.20703. Task j of skill k is solved with p = sigmoid(theta_k - d_j); a step adds rate times
the mean of sqrt(s (1 - s)) to theta, s being the shares of its groups: the exact gradient of group-normalized rewards.
The expected gain of every task is a finite sum, so that the best tasks of a step are known, and regret is their mean
gain minus that of the chosen ones. With one skill, taking them is optimal. Rollouts of probes count.

``one_skill`` has tasks of one skill, difficulties from N(1.5, 3), and eight bands of them as domains. ``domains`` has
four skills with difficulties near -3, 0.5, 2 and 4, a coin flip and an impossible domain; a quarter of a skill's gain
goes to each other one; the accuracy is that of the four. ``two_skills`` has two with difficulties from N(1.5, 2), and
0.3 of one's gain goes to the other; in ``interfering`` 0.4 of it is lost there. A value model sees difficulties with
noise of 1, and so do the angles of hidden states.

Differs: choices are measured, not sizes: how much a real model gains follows its optimizer and the divisor of its loss.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveFloat

from posttrain.component import frozen
from posttrain.components.curricula import Curriculum
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.diagnostics._simulated import POOLS, Learner, Played, play
from posttrain.statistics.intervals import mean

GOAL = 0.6
"""Accuracy to which rollouts are counted."""
Which = Curriculum | Literal["oracle", "oversampled"]


@frozen
class CurriculumChoices(Diagnostic):
    """Compares curricula with the best choice, by simulation."""

    subjects: ClassVar[tuple[str, ...]] = ("curriculum", "...")

    world: Literal["one_skill", "domains", "two_skills", "interfering"] = "one_skill"
    """The tasks and skills of the simulation."""
    tasks: Annotated[int, Field(ge=8, le=1_000_000)] = 512
    """Number of tasks; ``domains`` has a sixth of them in each."""
    seeds: Annotated[int, Field(ge=2, le=10_000)] = 5
    """Simulations of each."""
    steps: Annotated[int, Field(ge=1, le=100_000)] = 160
    """Steps of each simulation."""
    prompts: Annotated[int, Field(ge=1, le=100_000)] = 16
    """Tasks in a step."""
    rate: PositiveFloat = 0.25
    """What a step with the largest gradient adds to theta, twice."""
    divide: Literal["all", "spread"] = "all"
    """What a step's sum is divided by: all groups, or those with unequal rewards, as where others are filtered."""
    shuffled: bool = False
    """Whether a value model and angles are of other tasks' difficulties: then there is nothing to predict by."""

    def examine(self, *subjects: Subject) -> Finding:
        """Simulate every curriculum, the oracle, and rolling out eight times the tasks."""
        chosen: dict[str, Which] = {}
        for subject in subjects:
            curriculum = subject.component(Curriculum)
            curriculum.check(self._learner(0).pool.tasks, self.prompts)
            chosen[subject.name] = curriculum
        chosen |= {"oracle": "oracle", "oversampled": "oversampled"}
        found = {
            name: self._summary([self._play(which, seed) for seed in range(self.seeds)])
            for name, which in chosen.items()
        }
        return Finding(values={"world": self.world, "seeds": self.seeds, "found": found}, lines=self._lines(found))

    def _learner(self, seed: int) -> Learner:
        """The learner of a seed, before any step."""
        pool = POOLS[self.world](self.tasks, np.random.default_rng([seed, 1]))
        return Learner(pool=pool, n=8, rate=self.rate, divide=self.divide, rng=np.random.default_rng([seed, 2]))

    def _play(self, which: Which, seed: int) -> Played:
        """One simulation."""
        learner = self._learner(seed)
        return play(
            which, learner, prompts=self.prompts, steps=self.steps, goal=GOAL, seed=seed, shuffled=self.shuffled
        )

    def _summary(self, played: Sequence[Played]) -> dict[str, Any]:
        """Means over seeds, with intervals; rollouts over the seeds that reached the goal."""
        reached = [one.rollouts_to for one in played if np.isfinite(one.rollouts_to)]
        numbers = {name: [getattr(one, name) for one in played] for name in ("spread", "regret", "accuracy", "probes")}
        names = sorted({name for one in played for name in one.shares})
        return {
            **{name: _estimate(values) for name, values in numbers.items()},
            "rollouts_to": _estimate(reached) if len(reached) > 1 else None,
            "reached": len(reached),
            "shares": {name: float(np.mean([one.shares.get(name, 0.0) for one in played])) for name in names},
        }

    def _lines(self, found: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """A table."""
        width = max(map(len, found))
        lines = [
            f"{self.world}: {self.tasks} tasks, {self.steps} steps of {self.prompts} x 8, {self.seeds} seeds, "
            f"divided by {'all groups' if self.divide == 'all' else 'groups with spread'}; mean and standard error",
            f"{'':{width}}  {'with spread':>15}  {'regret':>15}  {'rollouts to .6':>15}  {'accuracy':>15}  probes",
        ]
        for name, row in found.items():
            cells = [_cell(row[column], digits) for column, digits in (("spread", 3), ("regret", 3))]
            cells += [_cell(row["rollouts_to"], 0), _cell(row["accuracy"], 3)]
            late = "" if row["reached"] == self.seeds else f"  ({row['reached']} of {self.seeds} reached it)"
            lines.append(f"{name:{width}}  {'  '.join(f'{c:>15}' for c in cells)}  {row['probes']['mean']:6.1%}{late}")
        if self.world != "one_skill":
            lines.append("share of the chosen tasks by domain:")
            for name, row in found.items():
                shares = ", ".join(f"{domain} {share:.2f}" for domain, share in row["shares"].items())
                lines.append(f"{name:{width}}  {shares}")
        return lines


def _estimate(values: Sequence[float]) -> dict[str, float]:
    """Mean, standard error and 95 % interval."""
    own = mean(values)
    return {
        "mean": own.value,
        "standard_error": own.standard_error,
        "low": own.interval.low,
        "high": own.interval.high,
    }


def _cell(row: Mapping[str, float] | None, digits: int) -> str:
    if row is None:
        return "-"
    return f"{row['mean']:,.{digits}f} ± {row['standard_error']:,.{digits}f}"
