"""Preference optimisation: raise the likelihood of the chosen completion relative to the rejected one."""

from collections.abc import Mapping, Sequence
from functools import partial

from pydantic import PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.preferences import PreferenceLoss, compare
from posttrain.components.reducers import Reducer
from posttrain.components.selections import Selection
from posttrain.components.tasks import Tasks
from posttrain.models import Model
from posttrain.signals import roles_in
from posttrain.stages import Models, PreviewContext, Stage, StageContext
from posttrain.stages.needs import Need, needs_of
from posttrain.stages.pairs import PairTraining
from posttrain.training.settings import Learning
from posttrain.types import Task


@frozen
class PreferenceTraining(Stage):
    """Training of the policy on the preferences of the tasks, completions only."""

    loss: PreferenceLoss
    reducer: Reducer
    batch: PositiveInt = 32
    """Pairs per step."""
    epochs: PositiveFloat = 1.0
    """Passes over the pairs; a part of one is allowed."""
    max_steps: PositiveInt | None = None
    """Stops earlier than the epochs would."""
    learner: Learning = Learning()
    """How the policy is updated."""
    tasks: Tasks | None = None
    """Problems of this stage; None takes the recipe's."""
    selection: Selection | None = None
    """Which of them are trained on, chosen once with the models as the stage finds them; None takes all."""

    @property
    def roles(self) -> frozenset[str]:
        """The policy, the models that it is compared with, and those that pairs are chosen by."""
        selecting = self.selection.roles if self.selection else frozenset()
        return frozenset({"policy"}) | roles_in(self.loss.needs) | selecting

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """What the loss and the selection need."""
        parts = (("loss", self.loss), ("selection", self.selection))
        return [need for path, part in parts for need in needs_of(path, part, role="policy")]

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Every pair must fit into the context of the policy."""
        self._training.check(models, tasks)

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """Steps that the epochs come to, at least one."""
        return self._training.total_steps(tasks)

    def run(self, models: Models, context: StageContext) -> Models:
        """Train on the pairs, and return the models with the policy's new weights."""
        return self._training.run(models, context)

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """The size of the work and the first pair."""
        return self._training.preview(models, context)

    @property
    def _training(self) -> PairTraining:
        return PairTraining(
            role="policy",
            per_token=partial(compare, self.loss),
            reducer=self.reducer,
            needs=self.loss.needs,
            batch=self.batch,
            epochs=self.epochs,
            max_steps=self.max_steps,
            learning=self.learner,
        )
