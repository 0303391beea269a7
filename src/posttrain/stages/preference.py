"""Preference optimisation: raise the likelihood of the chosen completion relative to the rejected one."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.preferences import PreferenceLoss, compare
from posttrain.components.reducers import Reducer
from posttrain.components.selections import Selection
from posttrain.components.tasks import Tasks
from posttrain.models import Model
from posttrain.signals import roles_in
from posttrain.stages import Given, Models, PreviewContext, Stage, StageContext
from posttrain.stages.needs import Need, needs_of
from posttrain.stages.pairs import PairTraining, comparable, notes_on_pairs, pair_trajectories
from posttrain.training.settings import Learning
from posttrain.types import Task, Trajectory

if TYPE_CHECKING:
    from posttrain.policies import Policy


@frozen
class PreferenceTraining(Stage):
    """Training of the policy on the preference pairs of the tasks; only completions are trained."""

    loss: PreferenceLoss
    reducer: Reducer
    batch: PositiveInt = 32
    """Pairs per step."""
    epochs: PositiveFloat = 1.0
    """Passes over the pairs; fractions are allowed."""
    max_steps: PositiveInt | None = None
    """Upper limit on the number of steps."""
    skip: NonNegativeInt = 0
    """Pairs at the front that are left out; those of held-out tasks are not counted."""
    limit: PositiveInt | None = None
    """Most pairs that are used, from the first that is not skipped; None takes all."""
    learner: Learning = Learning()
    """How the policy is updated."""
    tasks: Tasks | None = None
    """Tasks of this stage; None takes the recipe's."""
    selection: Selection | None = None
    """Which tasks are trained on, chosen once with the models at the start of the stage; None takes all."""

    @property
    def roles(self) -> frozenset[str]:
        """The policy, the models that it is compared with, and those that select pairs or that the optimizer reads."""
        selecting = self.selection.roles if self.selection else frozenset()
        return frozenset({"policy"}) | roles_in(self.loss.needs) | selecting | self.learner.optimizer.roles

    @property
    def learns_from(self) -> frozenset[Given]:
        """Preferences."""
        return frozenset({"preferences"})

    def given(self, policy: "Policy", task: Task) -> Sequence[Trajectory]:
        """The chosen and the rejected completion of each pair of a task."""
        return [side for pair in comparable(task) for side in pair_trajectories(policy, task, pair)]

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """The needs of the loss and the selection."""
        parts = (("loss", self.loss), ("selection", self.selection))
        return [need for path, part in parts for need in needs_of(path, part, role="policy")]

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Every pair must fit into the context of the policy."""
        self._training.check(models, tasks)

    def notes(self, tasks: Sequence[Task]) -> Sequence[str]:
        """How many pairs are left out."""
        return notes_on_pairs(tasks)

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """Number of steps of the epochs, at least one."""
        return self._training.total_steps(tasks)

    def run(self, models: Models, context: StageContext) -> Models:
        """Train on the pairs, and return the models with the policy's new weights."""
        return self._training.run(models, context)

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """The number of pairs and steps, and the first pair."""
        return self._training.preview(models, context)

    @property
    def _training(self) -> PairTraining:
        return PairTraining(
            role="policy",
            per_token=lambda tokens, numbers: compare(self.loss, tokens, given=numbers),
            reducer=self.reducer,
            needs=self.loss.needs,
            reads=self.loss.reads,
            gives=self.selection.gives if self.selection else frozenset(),
            batch=self.batch,
            epochs=self.epochs,
            max_steps=self.max_steps,
            learning=self.learner,
            written=self.written("preferences"),
            skip=self.skip,
            limit=self.limit,
        )
