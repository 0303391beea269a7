"""Reward model: learn a scalar score of completions from preference pairs.

Source: Bradley and Terry 1952, doi:10.2307/2334029; for language models Ouyang et al. 2022, arXiv:2203.02155,
equation 1, and Dong et al. 2024, arXiv:2405.07863, section 2.1. With r the output of the model at the last token of a
completion:

    loss = -log sigmoid(r(chosen) - r(rejected))

Only differences are learned: adding a constant to r does not change the loss. `ranking` takes another loss of the
difference, with a margin for example, and `regularizers` of the scores themselves are added for each completion.

With `contrast` states of a completion are also drawn towards later ones of the same chosen completion, and away from
those of the rejected one: goal-conditioned representations, Nath et al. 2024, arXiv:2407.13887, and its release
(goal-conditioned-rm at 46e3a96, models/loss.py). `GoalContrast` has the loss.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Annotated, Final, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen, nearest
from posttrain.components.penalties import Penalty
from posttrain.components.preferences import pairs_in, spread
from posttrain.components.rankings import Ranking
from posttrain.components.reducers import Reducer
from posttrain.components.selections import Selection
from posttrain.components.tasks import Tasks
from posttrain.datasets.templates import prompt_from
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.signals import SCORE, STATE, Signal
from posttrain.stages import Models, PreviewContext, Stage, StageContext
from posttrain.stages.needs import Need, needs_of
from posttrain.stages.pairs import DRAWS, WEIGHT, PairTraining, notes_on_pairs, pair_trajectories
from posttrain.training.settings import Learning
from posttrain.types import FloatArray, PerToken, Preference, Task, Tokens, Trajectory

if TYPE_CHECKING:
    import torch

    from posttrain.policies import Policy

SETS: Final = 4
"""Sets of positions that are drawn for a pair: both ends of pairs within the chosen one, sources of it, the rejected.
"""


@frozen
class GoalContrast:
    """Contrast of the states h of a pair: beta times (-log P - log(1 - N)).

    P is the mean over all pairs of a step, and over all combinations of `positions` sources and as many goals, of
    sigmoid(cos(h_source, h_goal)); both are states of the chosen completion, drawn in pairs whose earlier one is the
    source. N is the same mean for `positions` states of the chosen and as many of the rejected completion. The mean is
    taken before the logarithm; the gradient flows into both sides; there is no temperature. With `averaged` goals and
    rejected states are averaged before they are compared. The position from the end is floor(u n + 1) of n tokens of a
    completion, u uniform in [percentile, 1).
    """

    beta: NonNegativeFloat = 0.5
    """Weight; 0 is the plain reward model. With 0.5 the term is in [0.313, 1.313], and 0.813 where all states are
    equal."""
    positions: Annotated[int, Field(ge=1, le=256)] = 16
    """States of each set."""
    percentile: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """0 draws all positions; above it only the first part of a completion, since u counts from the end."""
    averaged: bool = False
    """Whether states that others are compared with are averaged first."""

    def __call__(
        self, chosen: "Sequence[torch.Tensor]", rejected: "Sequence[torch.Tensor]", draws: "torch.Tensor"
    ) -> "torch.Tensor":
        """The loss of a step: [T, D] states of chosen and rejected completions, [P, 4 positions] uniform numbers."""
        import torch

        alike, unlike = [], []
        for chosen_TD, rejected_TD, draw in zip(chosen, rejected, draws, strict=True):
            one, other, source, wrong = draw.unflatten(0, (SETS, self.positions))
            first_K, second_K = self.places(one, len(chosen_TD)), self.places(other, len(chosen_TD))
            earlier_K, later_K = torch.minimum(first_K, second_K), torch.maximum(first_K, second_K)
            alike.append(self._mean(chosen_TD[earlier_K], chosen_TD[later_K]))
            own_KD = chosen_TD[self.places(source, len(chosen_TD))]
            unlike.append(self._mean(own_KD, rejected_TD[self.places(wrong, len(rejected_TD))]))
        positive, negative = torch.stack(alike).mean(), torch.stack(unlike).mean()
        return self.beta * (-positive.log() - (1 - negative).log())

    def places(self, draw_K: "torch.Tensor", length: int) -> "torch.Tensor":
        """[K] positions in a completion of this many tokens."""
        share_K = self.percentile + (1 - self.percentile) * draw_K
        return (length - (share_K * length + 1).floor().long()).clamp(min=0)

    def _mean(self, source_KD: "torch.Tensor", goal_KD: "torch.Tensor") -> "torch.Tensor":
        """Mean of sigmoid(cos) over all combinations."""
        from torch.nn.functional import normalize

        goal_KD = goal_KD.mean(0, keepdim=True) if self.averaged else goal_KD
        return (normalize(source_KD, dim=-1) @ normalize(goal_KD, dim=-1).T).sigmoid().mean()


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
    request: str | None = None
    """Prompt of each pair, with the text of its field ``principles`` (SALMON, arXiv:2310.05910). Placeholders:
    principles, question. None is the task's prompt."""
    per_task: bool = False
    """Whether all pairs of a task together weigh as much as those of any other (VisionPrefer, arXiv:2404.15100); else
    all pairs weigh the same."""
    ranking: Ranking | None = None
    """Loss of a pair by the difference of its scores; None is that of Bradley and Terry, without a margin."""
    regularizers: Mapping[str, Penalty] = field(default_factory=dict)
    """Terms added to the loss of each completion, by name: ``{kind: score_barrier}``."""
    contrast: GoalContrast | None = None
    """Contrast of the states of a pair, beside the loss of its scores; None has none."""
    tasks: Tasks | None = None
    """Tasks of this stage; None takes the recipe's."""
    selection: Selection | None = None
    """Which tasks are trained on, chosen once with the models at the start of the stage; None takes all."""

    @model_validator(mode="after")
    def check_regularizers(self) -> Self:
        """Require penalties of the loss that read scores only: a reward model samples nothing and has no reference."""
        for name, penalty in self.regularizers.items():
            if not penalty.acts_in_loss or penalty.needs != {SCORE}:
                raise PydanticCustomError(
                    "regularizers",
                    "'{name}' is no penalty of scores; take score_barrier or score_square",
                    {"name": name},
                )
        return self

    @property
    def roles(self) -> frozenset[str]:
        """The reward model, and those that select or write pairs."""
        return frozenset({self.role}) | (self.selection.roles if self.selection else frozenset())

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """The scores of the reward model, and the needs of the selection."""
        own = [Need(signal=need, role=self.role, path="role", setting="role") for need in sorted(self._needs)]
        return [*own, *needs_of("selection", self.selection, role="policy")]

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Every pair must fit into the context of the model."""
        self._training.check(models, tasks)

    def notes(self, tasks: Sequence[Task]) -> Sequence[str]:
        """How many pairs are left out."""
        return notes_on_pairs(tasks)

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
    def _needs(self) -> frozenset[Signal]:
        return frozenset({SCORE} if self.contrast is None else {SCORE, STATE})

    @property
    def _training(self) -> PairTraining:
        return PairTraining(
            role=self.role,
            per_token=self._loss,
            reducer=self.reducer,
            needs=self._needs,
            reads=self.ranking.reads if self.ranking else frozenset(),
            gives=self.selection.gives if self.selection else frozenset(),
            draws=0 if self.contrast is None else SETS * self.contrast.positions,
            whole_batch=self.contrast is not None,
            per_task=self.per_task,
            sides=None if self.request is None else self._sides,
            batch=self.batch,
            epochs=self.epochs,
            max_steps=self.max_steps,
            learning=self.learner,
            written=self.written("preferences"),
        )

    def _sides(self, policy: "Policy", task: Task, preference: Preference) -> tuple[Trajectory, Trajectory]:
        """Both completions below the principles of the pair. Raises `UserError` for a pair without them."""
        fields = {**task.fields, **preference.about()}
        if not isinstance(fields.get("principles"), str):
            raise UserError(
                f"task {task.key}: request shows the principles of each pair, and this pair has no text "
                f"'principles'; {nearest('principles', fields)}; give each row such a column, or leave request out"
            )
        prompt = prompt_from(task, self.request or "", {"principles": fields["principles"]})
        return pair_trajectories(policy, replace(task, prompt=prompt), preference)

    def _loss(self, tokens: Tokens, numbers: Mapping[str, FloatArray]) -> PerToken:
        """[T] the loss of each token's pair and the penalties of its scores, and the contrast of the step."""
        import torch

        pairwise = _with_penalties(by_scores(tokens, self.ranking, numbers), self.regularizers, tokens)
        if self.contrast is None:
            return pairwise
        pair_P2 = pairs_in(tokens)
        states = torch.split(tokens[STATE], tokens.length_N.tolist())
        drawn = torch.as_tensor(numbers[DRAWS]).to(tokens[STATE])[tokens.group_N[pair_P2[:, 0]]]
        extra = self.contrast([states[i] for i in pair_P2[:, 0]], [states[i] for i in pair_P2[:, 1]], drawn)
        metrics = {**pairwise.metrics, "contrast": extra.detach().expand(1)}
        return PerToken(loss_T=pairwise.loss_T + extra, metrics=metrics)


def bradley_terry(tokens: Tokens) -> PerToken:
    """[T] for each token the loss of its pair, from the scores at the last tokens."""
    return by_scores(tokens, None, {})


def by_scores(tokens: Tokens, ranking: Ranking | None, numbers: Mapping[str, FloatArray]) -> PerToken:
    """[T] for each token the loss of its pair, from the scores at the last tokens; with [G] numbers of each group, of
    which `WEIGHT` is the weight of its loss.
    """
    import torch
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
    group_P = tokens.group_N[pair_P2[:, 0]]
    names = {WEIGHT} & set(numbers) | (ranking.reads if ranking else set())
    own = {name: torch.as_tensor(numbers[name]).to(margin_P)[group_P] for name in names}
    loss_P = -logsigmoid(margin_P) if ranking is None else ranking(margin_P, own)
    if WEIGHT in own:
        loss_P = loss_P * own[WEIGHT]
    return PerToken(loss_T=spread(loss_P, pair_P2, tokens), metrics=metrics)


def _with_penalties(loss: PerToken, penalties: Mapping[str, Penalty], tokens: Tokens) -> PerToken:
    """The loss with the terms of the penalties, and their metrics below their names."""
    for name, penalty in penalties.items():
        term = penalty.in_loss(tokens)
        assert term is not None, "it acts in the loss"
        metrics = {f"{name}/{metric}": values for metric, values in term.metrics.items()}
        loss = PerToken(loss_T=loss.loss_T + term.loss_T, metrics={**loss.metrics, **metrics})
    return loss
