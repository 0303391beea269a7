"""All of several rewards: a rollout is correct where every one of them finds it correct.

Source: IFEval, Zhou et al. 2023, arXiv:2311.07911, section 2.2: a response is correct by prompt where it follows all
instructions, and by instruction it has the share of those that it follows (`share`).

    reward='{kind: all_of, parts: {answer: match, form: format}}'

A part that does not apply to a rollout is left out; a part that fails makes the whole an error, since it is not known
what it would have found. All parts score every rollout; `gated` scores by one only what others let pass.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.types import Group, Score


@frozen
class AllOf(Reward):
    """Rewards what all parts find correct."""

    parts: Annotated[Mapping[str, Reward], Field(min_length=1)]
    """The rewards by name; the first that applies gives the answer."""
    right: float = 1.0
    """Reward where all have status ``ok``."""
    wrong: float = 0.0
    """Reward where one has not."""
    share: bool = False
    """Whether the reward goes from `wrong` to `right` with the share of parts that have."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The parts."""
        return self.parts

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score by every part, each with a state of its own."""
        own = {name: replace(context, state=context.state.setdefault(name, {})) for name in self.parts}
        scored = await asyncio.gather(*(part.score(group, own[name]) for name, part in self.parts.items()))
        return [self._joined(dict(zip(self.parts, scores, strict=True))) for scores in zip(*scored, strict=True)]

    def _joined(self, parts: Mapping[str, Score]) -> Score:
        known = {name: score for name, score in parts.items() if score.applies}
        failed = [f"part '{name}' failed: {own.explanation}" for name, own in known.items() if own.status == "error"]
        if failed:
            return failure("; ".join(failed), parts=parts)
        if not known:
            return replace(failure("no part applies to this rollout", parts=parts), applies=False)
        missed = [f"{name}: {score.explanation}" for name, score in known.items() if score.status != "ok"]
        reached = 1.0 - len(missed) / len(known) if self.share else float(not missed)
        return Score(
            value=self.wrong + (self.right - self.wrong) * reached,
            status="wrong" if missed else "ok",
            answer=next(iter(known.values())).answer,
            explanation="; ".join(missed) or f"all of {', '.join(known)}",
            parts=parts,
        )
