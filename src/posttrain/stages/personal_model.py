"""Personal model: a reward model that infers what a user likes from a few of the user's pairs, for several tastes.

Source: VPL, arXiv:2408.10075, and its release (WEIRDLabUW/vpl_llm at fdfdfa7); `posttrain.policies.latent` has encoder
and decoder. The field ``context`` of a task has pairs of its user (`tasks/personal`). With z drawn from N(m, exp(l))
and brought to the length sqrt(Z), and r the reward of a text given z,

    loss = -log sigmoid(r(chosen, z) - r(rejected, z)) + weight a(step) KL(N(m, exp(l)) || N(0, 1))
    a(step) = floor + (1 - floor) (cos(pi (step / cycle - 1)) + 1) / 2    step from 0 in each cycle

The model reads the field ``request`` of a task in place of its prompt, if there is one: what it learns of a prompt that
names the user holds for no other user. At inference z is m, and not brought to any length. The KL is on the clamped
numbers. The release for control leaves out its factor of 1/2 (``kl: doubled``), so that the weight counts twice there.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.preferences import pairs_in, spread
from posttrain.components.reducers import Reducer
from posttrain.components.tasks import Tasks
from posttrain.datasets.users import context_of, shown_as
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.signals import SCORES, STATE
from posttrain.stages import Models, PreviewContext, Stage, StageContext
from posttrain.stages.needs import Need
from posttrain.stages.pairs import DRAWS, PairTraining, notes_on_pairs, pair_trajectories
from posttrain.stages.sft import demonstration
from posttrain.training.settings import Learning
from posttrain.types import FloatArray, PerToken, Preference, Task, Tokens, Trajectory

if TYPE_CHECKING:
    import torch

    from posttrain.policies import Policy
    from posttrain.policies.latent import Latent


@frozen
class PersonalModelTraining(Stage):
    """Training of a reward model with a latent on pairs of several users."""

    reducer: Reducer
    weight: NonNegativeFloat = 1e-4
    """Of the KL (3e-6 for users of UltraFeedback, 1e-4 for pets, in the release)."""
    floor: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1
    """Share of the weight at the start of a cycle; 1 has no schedule."""
    cycle: Annotated[int, Field(ge=1, le=1_000_000_000)] = 10_000
    """Steps in which the weight rises from its floor to 1, before it falls to its floor again."""
    kl: Literal["plain", "doubled"] = "plain"
    """The KL itself, or twice the KL, as the release for control has it."""
    role: str = "reward"
    """The reward model; it needs ``head: reward``, ``latent`` and ``trained: true``."""
    batch: PositiveInt = 32
    """Pairs per step."""
    epochs: PositiveFloat = 2.0
    """Passes over the pairs; fractions are allowed."""
    max_steps: PositiveInt | None = None
    """Upper limit on the number of steps."""
    learner: Learning = Learning()
    """How the reward model is updated."""
    tasks: Tasks | None = None
    """Tasks of this stage; None takes the recipe's."""

    @property
    def roles(self) -> frozenset[str]:
        """The reward model."""
        return frozenset({self.role})

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """The outputs of the reward model."""
        return [Need(signal=SCORES, role=self.role, path="role", setting="role")]

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Every pair must have a context, and fit with it into that of the model."""
        self._training(None).check(models, tasks)

    def notes(self, tasks: Sequence[Task]) -> Sequence[str]:
        """How many pairs are left out."""
        return notes_on_pairs(tasks)

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """Number of steps of the epochs, at least one."""
        return self._training(None).total_steps(tasks)

    def run(self, models: Models, context: StageContext) -> Models:
        """Train on the pairs, and return the models with the reward model's new weights."""
        latent, training = self._latent(models), self._training(None)
        if not context.steps_done:
            pairs = training.pairs(context.tasks)[: self.batch]
            latent.center(
                _last_states(
                    models[self.role], [pair_trajectories(models[self.role], shown_as(t), p) for t, p in pairs]
                )
            )
        return self._training(latent, self.total_steps(context.tasks)).run(models, context)

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """The number of pairs and steps, and the first pair."""
        return self._training(None).preview(models, context)

    def share(self, step: int) -> float:
        """a(step): the share of the weight of the KL."""
        place = (step % self.cycle) / self.cycle
        return self.floor + (1.0 - self.floor) * (math.cos(math.pi * (place - 1.0)) + 1.0) / 2.0

    def _latent(self, models: Models) -> "Latent":
        found: Latent | None = getattr(models[self.role], "latent", None)
        if found is None:
            raise UserError(
                f"the stage {self.kind} trains a reward model that infers what users like, and models.{self.role} has "
                f"no part for it; set models.{self.role}.latent=8"
            )
        return found

    def _training(self, latent: "Latent | None", steps: int = 1) -> PairTraining:
        return PairTraining(
            role=self.role,
            per_token=partial(self._loss, latent, steps),
            reducer=self.reducer,
            needs=frozenset({SCORES, STATE}),
            draws=0 if latent is None else latent.size,
            sides=self._sides,
            batch=self.batch,
            epochs=self.epochs,
            max_steps=self.max_steps,
            learning=self.learner,
        )

    def _sides(self, policy: "Policy", task: Task, preference: Preference) -> tuple[Trajectory, Trajectory]:
        """Both completions after the pairs of the user. Raises `UserError` where these exceed the context."""
        before = [
            demonstration(policy, replace(task, prompt=prompt), text).token_ids
            for prompt, chosen, rejected in context_of(task)
            for text in (chosen, rejected)
        ]
        sides = pair_trajectories(policy, shown_as(task), preference)
        chosen, rejected = (self._after(before, side) for side in sides)
        if (longest := max(map(len, (chosen.token_ids, rejected.token_ids)))) > policy.context:
            raise UserError(
                f"task {task.key}: a completion has {longest:,} tokens with the {len(before) // 2} pairs of its user, "
                f"more than the context of {policy.context:,} of the role '{self.role}'; show fewer pairs"
            )
        return chosen, rejected

    def _after(self, before: Sequence[np.ndarray], side: Trajectory) -> Trajectory:
        """A completion after the texts of the context, which are read as a part of its prompt."""
        start = side.segments[0]
        ids = np.concatenate([*before, start.token_ids]).astype(start.token_ids.dtype)
        return replace(side, segments=(replace(start, token_ids=ids), *side.segments[1:]))

    def _loss(self, latent: "Latent | None", steps: int, tokens: Tokens, numbers: Mapping[str, FloatArray]) -> PerToken:
        """[T] the loss of each token's pair."""
        import torch
        from torch.nn.functional import logsigmoid

        from posttrain.policies.latent import divergence, drawn

        assert latent is not None, "made by run"
        pair_P2 = pairs_in(tokens)
        last_NO, state_ND = tokens.last(tokens[SCORES]), tokens.last(tokens[STATE])
        mean_PZ, spread_PZ = last_NO[pair_P2[:, 0], 1:].chunk(2, -1)
        uniform_PZ = torch.as_tensor(numbers[DRAWS]).to(mean_PZ)[tokens.group_N[pair_P2[:, 0]]]
        normal_PZ = torch.special.ndtri(uniform_PZ.clamp(1e-6, 1.0 - 1e-6))
        z_PZ = drawn(mean_PZ, spread_PZ, normal_PZ)
        chosen_P, rejected_P = (latent.decode(state_ND[pair_P2[:, side]], z_PZ) for side in (0, 1))
        margin_P = chosen_P - rejected_P
        kl_P = divergence(mean_PZ, spread_PZ) * (2.0 if self.kl == "doubled" else 1.0)
        scale = self.weight * self.share(round(tokens.progress * steps))
        at_mean_P2 = last_NO[:, 0][pair_P2]
        seen = {
            "pair_accuracy": (at_mean_P2[:, 0] > at_mean_P2[:, 1]).to(margin_P.dtype),
            "pair_margin": margin_P,
            "user_kl": kl_P,
        }
        metrics = {name: values.detach() for name, values in seen.items()}
        return PerToken(loss_T=spread(scale * kl_P - logsigmoid(margin_P), pair_P2, tokens), metrics=metrics)


def _last_states(policy: "Policy", pairs: Sequence[tuple[Trajectory, Trajectory]]) -> "torch.Tensor":
    """[R, D] states after completions."""
    import torch

    from posttrain.training.learner import evaluate_examples
    from posttrain.training.packing import example_of

    examples = [example_of(side, {}) for pair in pairs for side in pair]
    found = evaluate_examples(policy, examples, frozenset({STATE}), max_tokens=Learning().tokens_for(policy))
    return torch.stack([torch.as_tensor(own[STATE][-1]) for own in found])
