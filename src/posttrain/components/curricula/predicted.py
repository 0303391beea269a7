"""PCL: a value model predicts the success rate of candidates from their prompts; those nearest the target are taken.

Source: Prompt Curriculum Learning, arXiv:2510.01135. Each step has `candidates` times as many candidates as tasks,
drawn uniformly. One forward pass of a value model V over each prompt predicts the mean reward of the current policy,
and the tasks with the smallest |V - target| are taken. After their n rollouts each, V learns from the same tasks by

    (V - mean reward of the n rollouts)^2

and its gradient changes V only. V is one update of the policy behind. It learns only from what was chosen, near the
target; so the metrics also have its mean over all candidates.

Differs: read in a digest of the paper and its reviews. The head and its squashing, the optimizer of V and its updates
per step are not known: here a scalar head on the last token of the prompt, a sigmoid where `squash` is true, and one
update per step with the stage's `critic_learner`. Ties go to the candidate that was drawn first.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.curricula import Curriculum, Pick, Probe, State, Target
from posttrain.components.curricula._draws import Places, Reals, generator
from posttrain.components.curricula._success import Success, scored_of, success_of
from posttrain.errors import UserError
from posttrain.statistics.ranking import rank_correlation
from posttrain.types import Group, Task


@frozen
class Predicted(Curriculum):
    """Takes the candidates whose predicted success rate is nearest to the target."""

    role: str = "difficulty"
    """The value model, with ``head: reward`` and ``trained: true``."""
    candidates: Annotated[int, Field(ge=1, le=1000)] = 4
    """k: candidates for each task of a step."""
    target: float = 0.5
    """tau: the success rate that is wanted."""
    success: Success = "reward"
    """What V learns to predict: ``reward`` (the mean reward), ``solved``, ``one`` or ``part:NAME``."""
    squash: bool = True
    """Whether V is the sigmoid of the model's output; false for rewards outside [0, 1]."""

    @property
    def roles(self) -> frozenset[str]:
        """The value model."""
        return frozenset({self.role})

    @property
    def taught(self) -> str:
        """The value model."""
        return self.role

    @property
    def squashes(self) -> bool:
        """The setting `squash`."""
        return self.squash

    def check(self, tasks: Sequence[Task], count: int) -> None:
        """There must be more tasks than a step takes, so that there is a choice."""
        if len(tasks) <= count and self.candidates > 1:
            raise UserError(
                f"there are {len(tasks)} tasks, of which a step takes {count}: no candidates are left to choose from. "
                "Give more tasks or fewer prompts, or use curriculum=uniform"
            )

    def start(self) -> State:
        """State before the first step."""
        return {}

    async def look(
        self, state: State, pool: Sequence[Task], probe: Probe, count: int, *, seed: int, step: int, refill: int = 0
    ) -> State:
        """Predict the success rate of each candidate of this choice."""
        place_C = self._candidates(len(pool), count, seed, step, refill)
        value_C = np.asarray(await probe.predict(self.role, [pool[i] for i in place_C.tolist()]), np.float64)
        return {**state, "predicted": self._rates(value_C), "of": [step, refill]}

    def select(
        self, state: State, pool: Sequence[Task], count: int, *, seed: int, step: int, refill: int = 0
    ) -> tuple[State, list[Pick]]:
        """Take the candidates with the nearest predictions."""
        place_C = self._candidates(len(pool), count, seed, step, refill)
        if state.get("of") != [step, refill]:
            return state, [Pick(task=pool[i], reason="uniform") for i in place_C[:count].tolist()]
        rate_C = state["predicted"]
        chosen = np.argsort(np.abs(rate_C - self.target), kind="stable")[:count]
        picks = [
            Pick(task=pool[place], weight=round(rate, 6), reason="predicted")
            for place, rate in zip(place_C[chosen].tolist(), rate_C[chosen].tolist(), strict=True)
        ]
        own = state.get("chosen", {}) if refill else {}
        return {**state, "chosen": {**own, **{pick.task.key: pick.weight for pick in picks}}}, picks

    def observe(self, state: State, groups: Sequence[Group]) -> State:
        """Compare the predictions with the outcomes. Rollouts whose scoring failed do not count."""
        chosen, metrics = state.get("chosen", {}), dict[str, float]()
        pairs = [
            (chosen[key], success_of(trajectories, self.success))
            for key, trajectories in scored_of(groups).items()
            if key in chosen
        ]
        if pairs:
            predicted, observed = (np.array(side) for side in zip(*pairs, strict=True))
            metrics |= {"predicted": float(predicted.mean()), "candidates": float(np.mean(state["predicted"]))}
            metrics |= {"prediction_error": float(np.abs(predicted - observed).mean())}
            metrics |= {"bias": float((predicted - observed).mean())}
            correlation = rank_correlation(predicted, observed)
            metrics |= {"prediction_correlation": correlation} if correlation is not None else {}
        return {**state, "metrics": metrics}

    def targets(self, state: State, groups: Sequence[Group]) -> list[Target]:
        """The success rate of every task of the step."""
        return [
            Target(task=trajectories[0].task, value=success_of(trajectories, self.success))
            for trajectories in scored_of(groups).values()
        ]

    def report(self, state: State) -> Mapping[str, float]:
        """Prediction and outcome of the step's tasks, and the mean prediction of all candidates."""
        metrics: Mapping[str, float] = state.get("metrics", {})
        return metrics

    def _candidates(self, size: int, count: int, seed: int, step: int, refill: int) -> Places:
        """Places of the candidates of a choice."""
        if count > size:
            return generator(seed, step, refill, 0).integers(size, size=count)
        wanted = min(self.candidates * count, size)
        return generator(seed, step, refill, 0).choice(size, size=wanted, replace=False)

    def _rates(self, value_C: Reals) -> Reals:
        """The predictions of the model's outputs."""
        return 1.0 / (1.0 + np.exp(-value_C)) if self.squash else value_C
