"""KTO: raises good completions and lowers bad ones, each by itself, with a loss that flattens for gains and losses.

Source: Ethayarajh et al. 2024, arXiv:2402.01306, equation 8 and section 4.1. With r(x, y) the log-probability of a
completion, summed over its tokens, minus the same under the reference:

    good:  weight (1 - sigmoid(beta (r(x, y) - z)))
    bad:   weight (1 - sigmoid(beta (z - r(x, y))))

z estimates the divergence KL(policy || reference) from mismatched pairs of the batch, each prompt with the completion
of the next one: z = max(0, mean r(x_i, y_(i+1))). No gradient goes through it.

Differs: z is computed before the update from the whole batch; the paper's code does it in every micro-batch. With
several updates per batch it is that of the weights before the first. A mismatched pair that exceeds the context is left
out of the mean.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.reducers import Reducer
from posttrain.components.selections import Selection
from posttrain.components.tasks import Tasks
from posttrain.datasets.order import shuffled
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.signals import ADVANTAGE, LOGP, Signal, logp_of
from posttrain.stages import Given, Models, PreviewContext, Stage, StageContext
from posttrain.stages.columns import signals_of_models, with_columns
from posttrain.stages.fit import Step, check_trained, fit_role, steps_in
from posttrain.stages.needs import Need
from posttrain.stages.pairs import comparable, notes_on_pairs, pair_trajectories
from posttrain.stages.prompts import check_prompts
from posttrain.stages.sft import demonstration
from posttrain.training.settings import Learning
from posttrain.types import Fact, PerToken, Task, Tokens, Trajectory

if TYPE_CHECKING:
    import torch

    from posttrain.policies import Policy
    from posttrain.training.packing import Example


@dataclass(frozen=True, kw_only=True)
class Desirable(Fact):
    """Whether a completion is good."""

    desirable: bool


@dataclass(frozen=True, kw_only=True)
class Rating:
    """A completion that is good or bad."""

    task: Task
    text: str
    good: bool


@frozen
class KTO(Stage):
    """Training of the policy on rated completions, and on both completions of preference pairs."""

    reducer: Reducer
    beta: PositiveFloat = 0.1
    """Reward per nat; smaller regularizes less towards the reference."""
    desirable_weight: NonNegativeFloat = 1.0
    """Weight of good completions, the paper's lambda_D."""
    undesirable_weight: NonNegativeFloat = 1.0
    """Weight of bad completions, lambda_U. The paper chooses both so that the weighted counts of good and bad
    completions are about equal, the good ones a little above."""
    good_from: float = 0.5
    """Smallest rating of a good completion; a label is 1 or 0."""
    reference: str = "reference"
    """The role of the reference."""
    batch: Annotated[int, Field(ge=2, le=10**6)] = 32
    """Completions per step, at least two: the baseline is of the mismatched pairs among them."""
    epochs: PositiveFloat = 1.0
    """Passes over the completions; fractions are allowed."""
    max_steps: PositiveInt | None = None
    """Upper limit on the number of steps."""
    learner: Learning = Learning()
    """How the policy is updated."""
    tasks: Tasks | None = None
    """Tasks of this stage; None takes the recipe's."""
    selection: Selection | None = None
    """Which tasks are trained on, chosen once with the models at the start of the stage; None takes all."""

    @property
    def needs(self) -> frozenset[Signal]:
        """The reference's log-probabilities."""
        return frozenset({logp_of(self.reference)})

    @property
    def roles(self) -> frozenset[str]:
        """The policy, the reference, and those that select tasks."""
        return frozenset({"policy", self.reference}) | (self.selection.roles if self.selection else frozenset())

    @property
    def learns_from(self) -> frozenset[Given]:
        """Pairs and rated completions."""
        return frozenset({"preferences", "rated completions"})

    def given(self, policy: "Policy", task: Task) -> Sequence[Trajectory]:
        """Both completions of each pair, and the good ones of rated completions."""
        good = [rated.completion for rated in task.rated if rated.rating >= self.good_from]
        pairs = [side for pair in comparable(task) for side in pair_trajectories(policy, task, pair)]
        return [*pairs, *(demonstration(policy, task, text) for text in good)]

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """The log-probabilities of the reference."""
        return [Need(signal=need, role=self.reference, path="reference", setting="reference") for need in self.needs]

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Every completion must have tokens to learn and fit into the context of the policy, which must be trained."""
        check_trained(models["policy"], "policy", f"the {self.kind} stage")
        if self.written("preferences"):
            check_prompts(models["policy"], tasks, "the tasks that pairs are written for")
            return
        for rating in self.ratings(tasks):
            trajectory_of(models["policy"], rating)

    def notes(self, tasks: Sequence[Task]) -> Sequence[str]:
        """How many pairs are left out."""
        return notes_on_pairs(tasks)

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """Number of steps of the epochs, at least one."""
        count = 2 * len(tasks) if self._waits(tasks) else len(self.ratings(tasks))
        return steps_in(count, batch=self.batch, epochs=self.epochs, max_steps=self.max_steps)

    def ratings(self, tasks: Sequence[Task]) -> list[Rating]:
        """All completions. Raises `UserError` where there are none."""
        found = []
        for task in tasks:
            for pair in comparable(task):
                found += [Rating(task=task, text=pair.chosen, good=True)]
                found += [Rating(task=task, text=pair.rejected, good=False)]
            found += [Rating(task=task, text=r.completion, good=r.rating >= self.good_from) for r in task.rated]
        if not found:
            raise UserError(
                f"none of the {len(tasks)} tasks has a completion that is good or bad; give columns named completion "
                "and label, or chosen and rejected"
            )
        return found

    def run(self, models: Models, context: StageContext) -> Models:
        """Train on the completions in a seeded order that is new in every epoch."""
        from posttrain.training.learner import Loss

        ratings, baseline = self.ratings(context.tasks), 0.0

        def examples(step: Step) -> "list[Example]":
            nonlocal baseline
            places = shuffled(len(ratings), self.batch, step.index, context.seed)
            chosen = [ratings[i] for i in places]
            shown = [trajectory_of(models["policy"], rating) for rating in chosen]
            step.record.shown = list(enumerate(shown))
            with context.phase("signals"):
                baseline = self.divergence(models, chosen)
                step.record.metrics |= {"epoch": (step.index + 1) * self.batch / len(ratings), "baseline": baseline}
                plain = [_example(trajectory, i) for i, trajectory in enumerate(shown)]
                return with_columns(plain, self.needs, models, role="policy", learning=self.learner)

        loss = Loss(per_token=lambda tokens: self.loss(tokens, baseline), reducer=self.reducer)
        steps = self.total_steps(context.tasks)
        return fit_role(
            context, models, role="policy", learning=self.learner, loss=loss, steps=steps, examples=examples
        )

    def divergence(self, models: Models, ratings: Sequence[Rating]) -> float:
        """Z in nats: 0 or more, the mean over each prompt with the completion of the next one."""
        mismatched = []
        for i, rating in enumerate(ratings):
            after = ratings[(i + 1) % len(ratings)]
            try:
                mismatched.append(_example(trajectory_of(models["policy"], replace(rating, text=after.text)), i))
            except UserError:  # the two do not fit into the context together, as each of them does with its own
                continue
        if not mismatched:
            return 0.0
        needs = frozenset({LOGP}) | self.needs

        def max_tokens(policy: "Policy") -> int:
            return self.learner.tokens_for(policy)

        found = signals_of_models(mismatched, needs, models, role="policy", max_tokens=max_tokens)
        reference = logp_of(self.reference)
        gains = [float((own[LOGP] - own[reference]).sum(dtype=np.float64)) for own in found]
        return max(0.0, float(np.mean(gains)))

    def loss(self, tokens: Tokens, baseline: float) -> PerToken:
        """For each token the loss of its sequence."""
        gain_N = tokens.sequence_sum(tokens.logp_T - tokens[logp_of(self.reference)])
        good_N = tokens.last(tokens.advantage_T) > 0
        loss_N = self.losses(gain_N, good_N, baseline)
        reward_N = self.beta * gain_N.detach()
        metrics = {"desirable_reward": reward_N[good_N], "undesirable_reward": reward_N[~good_N]}
        return PerToken(loss_T=loss_N[tokens.sequence_T], metrics=metrics)

    def losses(self, gain_N: "torch.Tensor", good_N: "torch.Tensor", baseline: float) -> "torch.Tensor":
        """[N] losses from the gains r in nats."""
        import torch

        margin_N = self.beta * torch.where(good_N, gain_N - baseline, baseline - gain_N)
        weight_N = torch.where(good_N, self.desirable_weight, self.undesirable_weight).to(gain_N.dtype)
        return weight_N * (1 - margin_N.sigmoid())

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """The number of completions and steps, their balance, and the first one."""
        if self._waits(context.tasks):
            return [f"models write the pairs of up to {len(context.tasks)} tasks when the stage begins"]
        ratings = self.ratings(context.tasks)
        good = sum(rating.good for rating in ratings)
        first = ratings[0]
        return [
            f"{len(ratings)} completions, {self.total_steps(context.tasks)} steps of {self.batch}",
            f"{good} good and {len(ratings) - good} bad, with weights {self.desirable_weight:g} and "
            f"{self.undesirable_weight:g}",
            *self.notes(context.tasks),
            f"first prompt: {first.task.prompt!r}",
            f"first completion ({'good' if first.good else 'bad'}): {first.text!r}",
        ]

    def _waits(self, tasks: Sequence[Task]) -> bool:
        """Whether pairs are yet to be written."""
        return self.written("preferences") and not any(task.preferences or task.rated for task in tasks)


def trajectory_of(policy: "Policy", rating: Rating) -> Trajectory:
    """A completion as a trajectory. Raises `UserError` for one without a token to learn, or beyond the context."""
    trajectory = demonstration(policy, rating.task, rating.text)
    if not trajectory.num_trained:
        raise UserError(
            f"task {rating.task.key}: a completion has no token that can be learned; give the row a prompt, or leave "
            "it out"
        )
    return replace(trajectory, facts=(*trajectory.facts, Desirable(desirable=rating.good)))


def _example(trajectory: Trajectory, index: int) -> "Example":
    """The learner's form: the advantage is 1 of a good completion and -1 of a bad one."""
    from posttrain.training.packing import example_of

    fact = trajectory.fact(Desirable)
    sign = 1.0 if fact is not None and fact.desirable else -1.0
    return example_of(trajectory, {ADVANTAGE: np.full(trajectory.num_trained, sign, np.float32)}, group=index)
