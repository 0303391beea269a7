"""Outcome model: learn the probability that a rollout is correct from rollouts of a policy.

Source: verifiers, Cobbe et al. 2021, arXiv:2110.14168, section 4.2; for judges' rollouts the meta reward model of SPCT,
arXiv:2504.02495. With s the output of the model at the last token of a rollout, and z 1 where it is correct, else 0:

    loss = -z log sigmoid(s) - (1 - z) log sigmoid(-s)

A rollout is correct by the status of the reward, whatever its value; one that could not be scored is left out.

Differs: new rollouts in every step, where the papers collect once.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

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
class OutcomeModelTraining(Stage):
    """Training of a model with a reward head on whether rollouts are correct."""

    rollout: Rollout
    """How the policy samples rollouts."""
    reward: Reward
    """Scores the rollouts; status ``ok`` is correct."""
    reducer: Reducer
    role: str = "outcome"
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
            per_token=cross_entropy,
            examples_of=examples_of,
            reducer=self.reducer,
            rollout=self.rollout,
            reward=self.reward,
            batch=self.batch,
            steps=self.steps,
            learning=self.learner,
            max_grader_errors=self.max_grader_errors,
        )


def cross_entropy(tokens: Tokens) -> PerToken:
    """[T] the loss of the rollout that each last token is of."""
    from torch.nn.functional import logsigmoid

    score_N, correct_N = tokens.last(tokens[SCORE]), tokens.solved_N.to(tokens[SCORE].dtype)
    loss_N = -correct_N * logsigmoid(score_N) - (1 - correct_N) * logsigmoid(-score_N)
    right_N = ((score_N > 0) == (correct_N > 0)).to(score_N.dtype)
    metrics = {"predicted": score_N.detach().sigmoid(), "correct": correct_N, "outcome_accuracy": right_N}
    return PerToken(loss_T=loss_N[tokens.sequence_T], metrics=metrics)


def examples_of(groups: Sequence[Group]) -> "list[Example]":
    """Rollouts as examples in which only the last token is trained."""
    from posttrain.training.packing import Example

    return [
        Example(
            token_ids=trajectory.token_ids,
            positions=trajectory.trained_positions[-1:],
            columns={},
            turn_T=trajectory.trained_positions[-1:] * 0,
            vectors=trajectory.vectors,
            group=i,
            solved=trajectory.solved,
        )
        for i, group in enumerate(groups)
        for trajectory in group
    ]
