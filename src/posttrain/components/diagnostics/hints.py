"""Does training with hints in the prompt teach to solve tasks without them? A learner with known difficulties.

Source: a simulation of our own, for GHPO (arXiv:2507.10628). A task of difficulty d is solved with
p = sigmoid(theta - d) from its bare prompt, and with sigmoid(theta' - (1 - w) d) with the share w of its solution in
the prompt. A group with the share s of correct rollouts adds rate * sqrt(s (1 - s)) / groups of the step to the skill
of its own kind of prompt, the exact gradient of group-normalized rewards, and `transfer` times that to the other's.
Difficulties are even between 4 and 7, so that a group of eight from the bare prompt seldom has a correct rollout at
first. All are compared at equal rollouts, with those of discarded groups.

    grpo         bare prompts
    more         bare prompts, four times as many rollouts in a group
    always       half of the solution in every prompt
    ladder       bare; where all fail, a quarter, a half, three quarters (GHPO)

Reported is the mean success from the bare prompt, exact.

Differs: real hints differ in what they give away; here they make a task easier in proportion.
"""

from collections.abc import Callable
from typing import Annotated, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.errors import UserError
from posttrain.statistics.intervals import mean

Arm = Literal["grpo", "more", "always", "ladder"]
ARMS: Final[tuple[Arm, ...]] = ("grpo", "more", "always", "ladder")
LADDER: Final = (0.25, 0.5, 0.75)
LOWEST, HIGHEST = 4.0, 7.0
Reals = NDArray[np.float64]


@frozen
class Hints(Diagnostic):
    """Simulates training with and without hints."""

    subjects: ClassVar[tuple[str, ...]] = ("arm", "...")

    transfer: Annotated[float, Field(ge=-1.0, le=1.0)] = 0.5
    """Share of a gain with one kind of prompt that the other kind has."""
    rollouts: PositiveInt = 30_000
    """Rollouts of each simulation."""
    tasks: Annotated[int, Field(ge=1, le=1_000_000)] = 512
    """Number of tasks."""
    prompts: PositiveInt = 16
    """Tasks in a step, drawn evenly."""
    n: Annotated[int, Field(ge=2, le=1024)] = 8
    """Rollouts of a group."""
    rate: PositiveFloat = 0.25
    """What a step with the largest gradient adds to a skill, twice."""
    seeds: Annotated[int, Field(ge=2, le=10_000)] = 5
    """Simulations of each arm."""

    def examine(self, *subjects: Subject) -> Finding:
        """Simulate every arm."""
        names = [subject.name for subject in subjects]
        if unknown := [name for name in names if name not in ARMS]:
            raise UserError(f"'{unknown[0]}' is no arm of this simulation; take some of {', '.join(ARMS)}")
        found = {}
        for arm in ARMS:
            if arm in names:
                own = mean([self._play(arm, seed) for seed in range(self.seeds)])
                found[arm] = {"mean": own.value, "low": own.interval.low, "high": own.interval.high}
        lines = [
            f"success from bare prompts after {self.rollouts:,} rollouts, transfer {self.transfer:g}, {self.seeds} "
            "seeds: mean and 95 % interval"
        ]
        lines += [f"{a:7} {row['mean']:.3f} [{row['low']:.3f}, {row['high']:.3f}]" for a, row in found.items()]
        return Finding(values={"transfer": self.transfer, "seeds": self.seeds, "found": found}, lines=lines)

    def _play(self, arm: Arm, seed: int) -> float:
        """The final success of one simulation."""
        rng = np.random.Generator(np.random.Philox(key=[seed, ARMS.index(arm)]))
        hard_P = np.linspace(LOWEST, HIGHEST, self.tasks)
        n = 4 * self.n if arm == "more" else self.n
        skill = np.zeros(2)  # with bare prompts, with hints

        def group(hard_B: Reals, share: float) -> Reals:
            p_B = 1.0 / (1.0 + np.exp((1.0 - share) * hard_B - skill[int(share > 0)]))
            return np.asarray(rng.binomial(n, p_B) / n)

        used = 0
        while used < self.rollouts:
            hard_B = rng.choice(hard_P, self.prompts)
            share_B, hinted_B, sampled = _step(arm, hard_B, group)
            used += n * sampled
            gain_B = np.sqrt(share_B * (1.0 - share_B)) * self.rate / self.prompts
            own = np.array([gain_B[~hinted_B].sum(), gain_B[hinted_B].sum()])
            skill += own + self.transfer * own[::-1]
        return float((1.0 / (1.0 + np.exp(hard_P - skill[0]))).mean())


def _step(arm: Arm, hard_B: Reals, group: Callable[[Reals, float], Reals]) -> tuple[Reals, NDArray[np.bool_], int]:
    """Shares of the groups that are kept, which have a hint, and how many groups were sampled."""
    if arm == "always":
        return group(hard_B, 0.5), np.ones(len(hard_B), bool), len(hard_B)
    share_B = group(hard_B, 0.0)
    hinted_B, sampled = np.zeros(len(hard_B), bool), len(hard_B)
    for share in LADDER if arm == "ladder" else ():
        failed_B = share_B == 0.0
        if failed_B.any():
            share_B[failed_B] = group(hard_B[failed_B], share)
            hinted_B |= failed_B
            sampled += int(failed_B.sum())
    return share_B, hinted_B, sampled
