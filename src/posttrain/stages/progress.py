"""Progress: learn the contribution of each turn from the scores of whole trajectories.

Source: the progress estimator of SPA-RL, Wang et al. 2025, arXiv:2505.20732, and its released code
(github.com/WangHanLinHenry/SPA-RL-Agent). With c_t the output of the model at the last token of turn t, and R the score
of the rollout:

    loss = (sum over turns of c_t - R)^2

on rollouts of the policy, which is not trained in this stage. A correct sum does not imply correct terms. The terms are
identified where rollouts share some turns and differ in others, and where scores are additive. A rollout without a turn
sums to 0 and has no gradient.

Differs: new rollouts in every step, where the authors collect once. The output is a linear function of the last hidden
state, theirs of the logits, which are linear in it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.reducers import Reducer
from posttrain.components.rewards import Reward
from posttrain.components.rollouts import Rollout
from posttrain.components.tasks import Tasks
from posttrain.models import Model
from posttrain.signals import SCORE
from posttrain.stages import Models, PreviewContext, Stage, StageContext
from posttrain.stages.needs import Need
from posttrain.stages.scored_rounds import ScoredRounds
from posttrain.training.settings import Learning
from posttrain.types import Group, PerToken, Task, Tokens

if TYPE_CHECKING:
    from posttrain.training.packing import Example


@frozen
class ProgressTraining(Stage):
    """Training of a model with a reward head whose outputs at the turns sum to the score of the rollout."""

    rollout: Rollout
    """How the policy samples rollouts."""
    reward: Reward
    """Scores the rollouts."""
    reducer: Reducer
    role: str = "progress"
    """The model that learns; it needs ``head: reward`` and ``trained: true``."""
    steps: PositiveInt = 20
    """Rounds of sampling and learning."""
    batch: PositiveInt = 16
    """Tasks in each round."""
    learner: Learning = Learning()
    """How the model is updated."""
    max_grader_errors: float = 0.5
    """Share of a step's rollouts that could not be scored, at which the run stops."""
    tasks: Tasks | None = None
    """Tasks of this stage; None takes the recipe's."""

    @property
    def roles(self) -> frozenset[str]:
        """The model that learns, and the roles that sample and score."""
        return self._rounds.roles

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """The scores of the model that learns, and the needs of the rollout and the reward."""
        return self._rounds.needed

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Prompts must leave room for an answer."""
        self._rounds.check(models, tasks)

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """The setting `steps`."""
        return self.steps

    def run(self, models: Models, context: StageContext) -> Models:
        """Sample and learn, and return the models with the new weights."""
        return self._rounds.run(models, context)

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """Sample and score the first step's tasks, and describe the rollouts."""
        return self._rounds.preview(models, context)

    @property
    def _rounds(self) -> ScoredRounds:
        return ScoredRounds(
            kind=self.kind,
            role=self.role,
            per_token=total_error,
            examples_of=examples_of,
            reducer=self.reducer,
            rollout=self.rollout,
            reward=self.reward,
            batch=self.batch,
            steps=self.steps,
            learning=self.learner,
            max_grader_errors=self.max_grader_errors,
        )


def total_error(tokens: Tokens) -> PerToken:
    """[T] for every turn the squared error of its rollout: (sum over turns - score)^2."""
    error_N = tokens.sequence_sum(tokens[SCORE]) - tokens.reward_N
    metrics = {"contribution": tokens[SCORE].detach(), "total_error": error_N.detach().abs()}
    return PerToken(loss_T=(error_N**2)[tokens.sequence_T], metrics=metrics)


def examples_of(groups: Sequence[Group]) -> "list[Example]":
    """Rollouts as examples in which only the last token of each turn is trained."""
    from posttrain.training.packing import Example

    return [
        Example(
            token_ids=trajectory.token_ids,
            positions=trajectory.trained_positions[trajectory.turn_ends],
            columns={},
            turn_T=np.arange(len(trajectory.turn_ends)),
            vectors=trajectory.vectors,
            group=i,
            reward=trajectory.score.value if trajectory.score is not None else 0.0,
        )
        for i, group in enumerate(groups)
        for trajectory in group
    ]
