"""Another reward behind a gate: a rollout that fails it has the reward `otherwise`, whatever its answer.

    reward='{kind: gated, gate: format, reward: match, otherwise: -1}'
    reward='{kind: gated, gate: {form: format, calm: repetition}, reward: match}'      # several gates, by name

Source: the reward of Confucius3-Math, arXiv:2506.18330, section 6: filters of format and repetition come first, and
only what passes is compared with the answer.

A gate is a reward with a status, of which ``ok`` passes, or with a value, which must reach the `threshold`. Only
rollouts that pass every gate are scored by the other reward, so that an expensive one is not used for the rest. A gate
that does not apply to a rollout is left out; one that cannot score it gives it status ``error``.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Final

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rewards import Gold, Reward, RewardContext, failure
from posttrain.errors import UserError
from posttrain.types import Group, Score, Task

OTHER: Final = "reward"
"""Name of the other reward's score among the parts."""


def _by_name(given: Any) -> Any:
    """One gate has the name ``gate``."""
    named = isinstance(given, Mapping) and "kind" not in given
    if named and OTHER in given:
        raise PydanticCustomError(
            "gate", "a gate cannot be named '{name}': the other score has that name", {"name": OTHER}
        )
    return given if named else {"gate": given}


@frozen
class Gated(Reward):
    """The other reward where every gate is passed, else the reward of failure."""

    RENAMED: ClassVar = {"of": "reward", "gates": "gate", "failed": "otherwise"}

    gate: Annotated[Mapping[str, Reward], Field(min_length=1), BeforeValidator(_by_name)]
    """One gate, or several by name; a rollout passes where the status is ``ok``, or the value reaches the threshold."""
    threshold: float | None = None
    """Smallest value that passes a gate; None takes its status."""
    reward: Reward
    """Scores the rollouts that pass."""
    otherwise: float = 0.0
    """Reward of a rollout that fails a gate; -1 where the other reward gives +1 and -1."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The other reward, then the gates."""
        return {OTHER: self.reward, **self.gate}

    @property
    def together(self) -> str | None:
        """That of a gate. Raises `UserError` where the other reward has one: it would miss what fails a gate."""
        if self.reward.together is not None:
            raise UserError(
                f"the reward '{self.reward.kind}' scores the rollouts of all tasks with the same "
                f"'{self.reward.together}' together, and would not see those that fail a gate; take all_of, or a sum"
            )
        return super().together

    def gold(self, task: Task) -> Gold | None:
        """That of the other reward."""
        return self.reward.gold(task)

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score the group by every gate, and those that pass by the other reward. States are by name."""
        own = {name: replace(context, state=context.state.setdefault(name, {})) for name in self.wrapped}
        gated = await asyncio.gather(*(gate.score(group, own[name]) for name, gate in self.gate.items()))
        parts = [dict(zip(self.gate, scores, strict=True)) for scores in zip(*gated, strict=True)]
        passed = [i for i, scores in enumerate(parts) if all(self._passes(score) for score in scores.values())]
        passing = replace(group, trajectories=tuple(group.trajectories[i] for i in passed))
        answers = dict(zip(passed, await self.reward.score(passing, own[OTHER]) if passed else (), strict=True))
        return [self._joined(scores, answers.get(i)) for i, scores in enumerate(parts)]

    def _passes(self, score: Score) -> bool:
        """Whether a gate lets a rollout pass, or does not apply to it."""
        if not score.applies:
            return True
        return score.status == "ok" if self.threshold is None else score.value >= self.threshold

    def _joined(self, gates: Mapping[str, Score], answer: Score | None) -> Score:
        """The score of a rollout, from those of its gates and, where it passed them, of the other reward."""
        if answer is not None:
            return replace(answer, parts={**gates, OTHER: answer})
        errors = [f"gate '{name}' failed: {score.explanation}" for name, score in gates.items() if _unknown(score)]
        if errors:
            return failure("; ".join(errors), parts=gates)
        shut = [f"{name}: {score.explanation}" for name, score in gates.items() if not self._passes(score)]
        return Score(value=self.otherwise, status="wrong", explanation="; ".join(shut), parts=gates)


def _unknown(score: Score) -> bool:
    return score.status == "error" and score.applies
