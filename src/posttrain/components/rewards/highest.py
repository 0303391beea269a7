"""The highest of several rewards, asked one after the other: a later one only where the earlier ones did not suffice.

Source: QwenLong-L1, Wan et al. 2025, arXiv:2505.17667, section 3.3: max(rule, judge), both 0 or 1; the judge is called
only where the rule gives less than 1.

    reward='{kind: highest, parts: {rule: match, judge: {kind: judge, label: "", verdicts: {yes: 1, no: 0}}}}'

A rollout that one part cannot score has the highest of the others where that suffices, and else status ``error``: it is
not known whether that part would have accepted it.

Differs: a judge that fails gives 0 in the release.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.types import Group, Score


@frozen
class Highest(Reward):
    """The maximum of the parts."""

    parts: Annotated[Mapping[str, Reward], Field(min_length=1)]
    """The rewards by name, the least expensive first."""
    enough: float = 1.0
    """Score at which no later part is asked."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The parts."""
        return self.parts

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score by one part after the other, each with a state of its own."""
        found: list[dict[str, Score]] = [{} for _ in group]
        for name, part in self.parts.items():
            left = [i for i, scores in enumerate(found) if not self._suffices(scores)]
            if not left:
                break
            rest = replace(group, trajectories=tuple(group.trajectories[i] for i in left))
            own = replace(context, state=context.state.setdefault(name, {}))
            for i, score in zip(left, await part.score(rest, own), strict=True):
                found[i][name] = score
        return [self._joined(scores) for scores in found]

    def _suffices(self, scores: Mapping[str, Score]) -> bool:
        return any(score.status != "error" and score.value >= self.enough for score in scores.values())

    def _joined(self, scores: Mapping[str, Score]) -> Score:
        """The best score, or the failure of a part."""
        failed = [f"part '{name}' failed: {score.explanation}" for name, score in scores.items() if _failed(score)]
        if failed and not self._suffices(scores):
            return failure("; ".join(failed), parts=scores)
        known = {name: score for name, score in scores.items() if not _failed(score)}
        name = max(known, key=lambda own: known[own].value)
        return replace(known[name], explanation=f"{name}: {known[name].explanation}", parts=scores)


def _failed(score: Score) -> bool:
    return score.status == "error"
