"""Reward model: learn a scalar score of completions from preference pairs.

Source: Bradley and Terry 1952, doi:10.2307/2334029; for language models Ouyang et al. 2022, arXiv:2203.02155,
equation 1, and Dong et al. 2024, arXiv:2405.07863, section 2.1. With r the output of the model at the last token of a
completion:

    loss = -log sigmoid(r(chosen) - r(rejected))

Only differences are learned: adding a constant to r does not change the loss.
"""

from collections.abc import Mapping, Sequence

from pydantic import PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.preferences import pairs_in, spread
from posttrain.components.reducers import Reducer
from posttrain.components.selections import Selection
from posttrain.components.tasks import Tasks
from posttrain.models import Model
from posttrain.signals import SCORE
from posttrain.stages import Models, PreviewContext, Stage, StageContext
from posttrain.stages.needs import Need, needs_of
from posttrain.stages.pairs import PairTraining
from posttrain.training.settings import Learning
from posttrain.types import PerToken, Task, Tokens


@frozen
class RewardModelTraining(Stage):
    """Training of a model with a reward head on the preference pairs of the tasks."""

    reducer: Reducer
    role: str = "reward"
    """The reward model; it needs ``head: reward`` and ``trained: true``."""
    batch: PositiveInt = 32
    """Pairs per step."""
    epochs: PositiveFloat = 1.0
    """Passes over the pairs; fractions are allowed. More than one usually overfits."""
    max_steps: PositiveInt | None = None
    """Upper limit on the number of steps."""
    learner: Learning = Learning()
    """How the reward model is updated."""
    tasks: Tasks | None = None
    """Tasks of this stage; None takes the recipe's."""
    selection: Selection | None = None
    """Which tasks are trained on, chosen once with the models at the start of the stage; None takes all."""

    @property
    def roles(self) -> frozenset[str]:
        """The reward model, and those that select or write pairs."""
        return frozenset({self.role}) | (self.selection.roles if self.selection else frozenset())

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """The scores of the reward model, and the needs of the selection."""
        own = Need(signal=SCORE, role=self.role, path="role", setting="role")
        return [own, *needs_of("selection", self.selection, role="policy")]

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Every pair must fit into the context of the model."""
        self._training.check(models, tasks)

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """Number of steps of the epochs, at least one."""
        return self._training.total_steps(tasks)

    def run(self, models: Models, context: StageContext) -> Models:
        """Train on the pairs, and return the models with the reward model's new weights."""
        return self._training.run(models, context)

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """The number of pairs and steps, and the first pair."""
        return self._training.preview(models, context)

    @property
    def _training(self) -> PairTraining:
        return PairTraining(
            role=self.role,
            per_token=lambda tokens, _: bradley_terry(tokens),
            reducer=self.reducer,
            needs=frozenset({SCORE}),
            batch=self.batch,
            epochs=self.epochs,
            max_steps=self.max_steps,
            learning=self.learner,
            written=self.written("preferences"),
        )


def bradley_terry(tokens: Tokens) -> PerToken:
    """[T] for each token the loss of its pair, from the scores at the last tokens."""
    from torch.nn.functional import logsigmoid

    pair_P2 = pairs_in(tokens)
    score_P2 = tokens.last(tokens[SCORE])[pair_P2]
    margin_P = score_P2[:, 0] - score_P2[:, 1]
    seen = {
        "pair_accuracy": (margin_P > 0).to(margin_P.dtype),
        "pair_margin": margin_P,
        "chosen_reward": score_P2[:, 0],
        "rejected_reward": score_P2[:, 1],
    }
    metrics = {name: values.detach() for name, values in seen.items()}
    return PerToken(loss_T=spread(-logsigmoid(margin_P), pair_P2, tokens), metrics=metrics)
