"""CGPO: a reward that is calibrated by a baseline answer, where every constraint is kept, else 0.

Source: Xu et al. 2024 (CGPO), arXiv:2409.20370, as read in a port to TRL (huggingface/trl at 070b2c0): with r the
reward of a completion, and r_0 that of a stored baseline answer to the same prompt,

    c = sigmoid(r - r_0)      in (0, 1), 0.5 for the baseline itself
    R = c where all constraints of the prompt's task are kept, else 0

A constraint is a reward with a status; ``ok`` is kept. Constraints that belong to some tasks only are chosen by
`routed`: ``constraints={brief: {kind: routed, parts: {sums: ..., copy: ...}}}``. The baseline answer is the
field ``baseline`` of the task, or else its first demonstration. Both numbers are parts of the score, c also where a
constraint is broken, so that losses of pairs can choose the lowest of those.

The port multiplies rewards with 0 or 1, by which a violator can become the chosen one where rewards are negative. Here
R of whatever keeps the constraints is above 0.

Differs: c is at least 1e-6, so that it stays above 0.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Final

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.errors import TaskFault
from posttrain.grading.pieces import with_text
from posttrain.types import Group, Score, Task

CALIBRATED: Final = "calibrated"
"""Name of the part with c."""
_SMALLEST: Final = 1e-6


@frozen
class Constraints(Reward):
    """The calibrated reward where all constraints are kept; correct is what keeps them and is correct by `of`."""

    of: Reward
    """Scores completions and baseline answers."""
    constraints: Annotated[Mapping[str, Reward], Field(min_length=1, max_length=32)]
    """By name; kept where the status is ``ok``."""
    baseline: float | None = None
    """Reward of the baseline where a task has neither the field nor a demonstration; None refuses such tasks."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """All rewards."""
        return {"of": self.of, **self.constraints}

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task without a baseline answer."""
        for part in self.wrapped.values():
            part.check(tasks)
        missing = next((task for task in tasks if self.baseline is None and _baseline(task) is None), None)
        if missing is not None:
            raise TaskFault(
                missing.key,
                f"task '{missing.key}' has no baseline answer to calibrate with; give its row a column 'baseline' or a "
                "demonstration, or set reward.baseline to the reward that a baseline would have",
            )

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score the completions and their baseline by `of`, and the completions by every constraint."""
        if not len(group):
            return []
        own = {name: replace(context, state=context.state.setdefault(name, {})) for name in self.wrapped}
        texts = [_baseline(trajectory.task) for trajectory in group]
        known = [with_text(t, text) for t, text in zip(group, texts, strict=True) if text is not None]
        scored, bases, *kept = await asyncio.gather(
            self.of.score(group, own["of"]),
            self.of.score(replace(group, trajectories=tuple(known)), own["of"]),
            *(part.score(group, own[name]) for name, part in self.constraints.items()),
        )
        left = iter(bases)
        base = [next(left) if text is not None else None for text in texts]
        return [
            self._joined(score, zero, dict(zip(self.constraints, parts, strict=True)))
            for score, zero, *parts in zip(scored, base, *kept, strict=True)
        ]

    def _joined(self, score: Score, base: Score | None, kept: Mapping[str, Score]) -> Score:
        parts = {"of": score, **kept}
        for name, part in {"of": score, "baseline": base, **kept}.items():
            if part is not None and part.status == "error":
                return failure(f"{name}: {part.explanation}", parts=parts)
        if base is None and self.baseline is None:
            return failure("the task has no baseline answer", parts=parts)
        zero = base.value if base is not None else float(self.baseline or 0.0)
        c = calibrated(score.value, zero)
        parts[CALIBRATED] = Score(value=c, status="ok")
        broken = [f"{name}: {part.explanation}" for name, part in kept.items() if part.status != "ok"]
        if broken:
            return Score(value=0.0, status="wrong", answer=score.answer, explanation="; ".join(broken), parts=parts)
        explanation = f"{score.explanation}; {score.value:g} against {zero:g} of the baseline"
        return replace(score, value=c, explanation=explanation, parts=parts, spans=())


def calibrated(reward: float, baseline: float) -> float:
    """sigmoid(reward - baseline), at least 1e-6 and below 1."""
    gap = max(-14.0, min(14.0, reward - baseline))
    return max(_SMALLEST, 1.0 / (1.0 + math.exp(-gap)))


def _baseline(task: Task) -> str | None:
    given = task.fields.get("baseline")
    if isinstance(given, str):
        return given
    return task.demonstrations[0] if task.demonstrations else None
