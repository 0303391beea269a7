"""A reward model that writes a critique of a completion, and scores the completion after it.

Source: the critique-based reward model of MM-RLHF, arXiv:2502.10391, and its released code (Kwai-YuanQi/MM-RLHF at
7c8af1d, reward_trainer.py:211-310). A sequence is the request with question and completion, then the critique. The
likelihood of the critique is learned, and a score at its last token, which therefore sees it. With r the scores and lm
the mean loss of a token of each critique, over pairs

    loss = -log sigmoid(r(chosen) - r(rejected)) + center (r(chosen) + r(rejected))^2 + critic (lm(chosen) +
    lm(rejected))

To score, the model writes a critique first (`rewards/critiqued`). The role is a language model with a projection beside
its head, which gives the score. A pair needs the columns ``chosen_critique`` and ``rejected_critique``.

Differs: a term of the release for ties is left out, since equal ranks make no pair here. The score is read from a
projection with a ReLU, where the release has one linear layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, NonNegativeFloat, PositiveFloat, PositiveInt

from posttrain.component import frozen, nearest
from posttrain.components.preferences import pairs_in, spread
from posttrain.components.reducers import Reducer
from posttrain.components.selections import Selection
from posttrain.components.tasks import Tasks
from posttrain.datasets.templates import CRITIQUE, check_critiqued, prompt_from
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.signals import LOGP, SCORE
from posttrain.stages import Models, PreviewContext, Stage, StageContext
from posttrain.stages.needs import Need, needs_of
from posttrain.stages.pairs import PairTraining
from posttrain.stages.sft import demonstration
from posttrain.training.settings import Learning
from posttrain.types import FloatArray, PerToken, Preference, Task, Tokens, Trajectory

if TYPE_CHECKING:
    from posttrain.policies import Policy

COLUMNS = ("chosen_critique", "rejected_critique")


@frozen
class CritiqueModelTraining(Stage):
    """Training of a model that criticizes and scores, on the preference pairs of the tasks."""

    reducer: Reducer
    role: str = "reward"
    """The model; it needs ``head: language``, a ``projection`` and ``trained: true``."""
    request: Annotated[str, AfterValidator(check_critiqued)] = CRITIQUE
    """Prompt of a critique. Placeholders: question, completion. In a chat it replaces the last message."""
    critic: NonNegativeFloat = 1.0
    """Weight of the likelihood of critiques; 0 learns scores alone."""
    center: NonNegativeFloat = 0.01
    """Weight of the square of the sum of both scores."""
    batch: PositiveInt = 32
    """Pairs per step."""
    epochs: PositiveFloat = 1.0
    """Passes over the pairs; fractions are allowed."""
    max_steps: PositiveInt | None = None
    """Upper limit on the number of steps."""
    learner: Learning = Learning()
    """How the model is updated."""
    tasks: Tasks | None = None
    """Tasks of this stage; None takes the recipe's."""
    selection: Selection | None = None
    """Which tasks are trained on, chosen once with the models at the start of the stage; None takes all."""

    @property
    def roles(self) -> frozenset[str]:
        """The model, and those that select pairs."""
        return frozenset({self.role}) | (self.selection.roles if self.selection else frozenset())

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """The scores of the model, and the needs of the selection."""
        own = Need(signal=SCORE, role=self.role, path="role", setting="role")
        return [own, *needs_of("selection", self.selection, role="policy")]

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Every pair must have critiques, and fit into the context of the model."""
        self._training.check(models, tasks)

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """Number of steps of the epochs, at least one."""
        return self._training.total_steps(tasks)

    def run(self, models: Models, context: StageContext) -> Models:
        """Train on the pairs, and return the models with the new weights."""
        return self._training.run(models, context)

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """The number of pairs and steps, and the first pair."""
        return self._training.preview(models, context)

    @property
    def _training(self) -> PairTraining:
        return PairTraining(
            role=self.role,
            per_token=self._loss,
            reducer=self.reducer,
            needs=frozenset({SCORE, LOGP}),
            batch=self.batch,
            epochs=self.epochs,
            max_steps=self.max_steps,
            learning=self.learner,
            sides=self._sides,
        )

    def _sides(self, policy: "Policy", task: Task, preference: Preference) -> tuple[Trajectory, Trajectory]:
        """Request and critique of both completions. Raises `UserError` for a pair without them."""
        fields = {**task.fields, **preference.about()}
        for name in COLUMNS:
            if not isinstance(fields.get(name), str) or not fields[name].strip():
                raise UserError(
                    f"task {task.key}: the stage learns critiques, and this pair has no '{name}'; "
                    f"{nearest(name, fields)}; give each row the columns {' and '.join(COLUMNS)}, or take the stage "
                    "reward_model, which learns scores alone"
                )
        texts = ((preference.chosen, fields[COLUMNS[0]]), (preference.rejected, fields[COLUMNS[1]]))
        made = []
        for sample, (completion, critique) in enumerate(texts):
            asked = replace(task, prompt=prompt_from(task, self.request, {"completion": completion}))
            made.append(replace(demonstration(policy, asked, critique), sample=sample))
        return made[0], made[1]

    def _loss(self, tokens: Tokens, _: "Mapping[str, FloatArray]") -> PerToken:
        """[T] the loss of the pair that a token is of, and of the token itself."""
        from torch.nn.functional import logsigmoid

        pair_P2 = pairs_in(tokens)
        score_P2 = tokens.last(tokens[SCORE])[pair_P2]
        margin_P = score_P2[:, 0] - score_P2[:, 1]
        loss_P = -logsigmoid(margin_P) + self.center * score_P2.sum(1).square()
        seen = {
            "pair_accuracy": (margin_P > 0).to(margin_P.dtype),
            "pair_margin": margin_P,
            "chosen_reward": score_P2[:, 0],
            "rejected_reward": score_P2[:, 1],
        }
        metrics = {name: values.detach() for name, values in seen.items()}
        # The reducer takes the mean over both sequences of a pair; the loss has the sum of both likelihoods.
        loss_T = spread(loss_P, pair_P2, tokens) - 2.0 * self.critic * tokens.logp_T
        return PerToken(loss_T=loss_T, metrics=metrics)
