"""Four levels: a broken form, no readable answer, a wrong one, the right one.

Source: arXiv:2505.13718 and its release (warmup-before-you-train at c9c4a428): -2 for a form other than one
``</think>`` and ``<answer>..</answer>`` at the end, -1 for an answer that cannot be read, -0.5 for a wrong one, 2 for
the right one; for programs -2, -1 and 2.

A broken form is decided first: its answer does not count. An answer is unreadable where the reward of
correctness extracts none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.types import Group, Score


@frozen
class Levels(Reward):
    """Scores by the first level that a completion fails at."""

    correct: Reward
    """Scores the answers; status ``ok`` is right, a score without an answer is unreadable."""
    form: Reward | None = None
    """Scores the form; status ``ok`` is whole. None requires no form."""
    broken: float = -2.0
    """Score of a completion whose form is broken."""
    unreadable: float = -1.0
    """Score of a completion in which no answer can be read."""
    wrong: float = -0.5
    """Score of a wrong answer."""
    right: float = 2.0
    """Score of a right answer."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The reward of correctness, and that of form."""
        return {"correct": self.correct, **({"form": self.form} if self.form is not None else {})}

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score form and answer of each completion, and take the level."""
        own = {name: replace(context, state=context.state.setdefault(name, {})) for name in self.wrapped}
        scored = {name: await part.score(group, own[name]) for name, part in self.wrapped.items()}
        rows = (dict(zip(scored, row, strict=True)) for row in zip(*scored.values(), strict=True))
        return [self._level(row) for row in rows]

    def _level(self, parts: Mapping[str, Score]) -> Score:
        correct, form = parts["correct"], parts.get("form")
        failed = next((score for score in parts.values() if score.status == "error"), None)
        if failed is not None:
            return failed
        if form is not None and form.status != "ok":
            why = f"broken form: {form.explanation}"
            return replace(correct, value=self.broken, status="wrong", explanation=why, parts=parts)
        if correct.status == "ok":
            return replace(correct, value=self.right, explanation=f"right: {correct.explanation}", parts=parts)
        value, what = (self.unreadable, "unreadable") if correct.answer is None else (self.wrong, "wrong")
        return replace(correct, value=value, explanation=f"{what}: {correct.explanation}", parts=parts)
