"""Tunes a model whose states after one layer are replaced by their reconstructions by a sparse autoencoder.

Source: Resa, Wang et al. 2025, arXiv:2506.09967, and its release. The student is the model with adapters, in which the
output of the layer is replaced; the teacher is the same model without adapters and without a sparse autoencoder. The
loss is KL(teacher || student), summed over vocabulary and tokens and divided by the number of texts; there is no
likelihood of answers. The sparse autoencoder is frozen and nothing is differentiated through it, so that weights up to
its layer get no gradient. What is learned is to work with what it loses: with a perfect one the loss is 0.

``inserted: noise`` is a control: the states, moved in a random direction as far as the reconstruction would move them.

Differs: adapters have no dropout (0.05 in the paper).
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.reducers import Reducer
from posttrain.components.tasks import Tasks
from posttrain.datasets.order import shuffled
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.signals import Signal
from posttrain.stages import Models, PreviewContext, Stage, StageContext
from posttrain.stages.fit import Step, fit_role, steps_in
from posttrain.stages.needs import Need
from posttrain.stages.states import answered, read_layer
from posttrain.training.settings import Learning
from posttrain.types import PerToken, Task, Tokens

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.policies import Policy
    from posttrain.training.packing import Example


@frozen
class SAETuning(Stage):
    """Self-distillation through a sparse autoencoder."""

    reducer: Reducer
    """How the divergences of tokens are weighed (their sum over the number of texts in the paper)."""
    role: str = "policy"
    """The student, which is trained."""
    teacher: str = "base"
    """The model that it begins as, frozen."""
    coder: str = "sae"
    """The sparse autoencoder."""
    layer: NonNegativeInt | None = None
    """The layer whose output is replaced, counted from 0; None is the last one of the first half."""
    inserted: Literal["coder", "noise"] = "coder"
    """What its output is replaced by: the reconstruction, or itself with noise of the same size."""
    completion: str = "#### {answer}"
    """What follows the prompt; ``{answer}`` stands for the verified answer."""
    batch: PositiveInt = 16
    """Texts in each update (1 of 2,048 tokens in the paper)."""
    epochs: PositiveFloat = 1.0
    """Passes over the texts; fractions are allowed (2 in the paper)."""
    max_steps: PositiveInt | None = None
    """Upper limit on the number of steps."""
    learner: Learning = Learning()
    """How the student is updated."""
    tasks: Tasks | None = None
    """Tasks of this stage; None takes the recipe's."""

    @property
    def roles(self) -> frozenset[str]:
        """Student, teacher and sparse autoencoder."""
        return frozenset({self.role, self.teacher, self.coder})

    @property
    def _divergence(self) -> Signal:
        return Signal("forward_kl", of=self.teacher)

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """The divergence from the teacher."""
        return [Need(signal=self._divergence, role=self.role, path="teacher", setting="teacher")]

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """There must be a layer after that which is replaced, and a task with an answer."""
        policy = models.get(self.role, models["policy"])
        self._layer(policy)
        answered(policy, tasks, self.completion)

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """Number of steps of the epochs, at least one."""
        count = sum(task.answer is not None for task in tasks)
        return steps_in(count, batch=self.batch, epochs=self.epochs, max_steps=self.max_steps)

    def run(self, models: Models, context: StageContext) -> Models:
        """Train the student, and return the models."""
        from posttrain.policies.layers import replaced
        from posttrain.policies.sparse_coder import SparseCoder
        from posttrain.training.learner import Loss

        student, coder = models[self.role], models[self.coder]
        layer = self._layer(student)
        texts = answered(student, context.tasks, self.completion)
        if not isinstance(coder, SparseCoder):
            raise UserError(f"stage {context.name}: the model in the role '{self.coder}' is no sparse autoencoder")
        if coder.sizes.width != student.body.width:
            raise UserError(
                f"stage {context.name}: the sparse autoencoder '{self.coder}' is of states of {coder.sizes.width} "
                f"numbers, and those of '{self.role}' have {student.body.width}"
            )

        def change(state_RD: "Tensor") -> "Tensor":
            found = coder(state_RD.detach()).detach()
            return found if self.inserted == "coder" else noisy(state_RD.detach(), found, context.seed)

        def examples(step: Step) -> "list[Example]":
            return [texts[i] for i in shuffled(len(texts), self.batch, step.index, context.seed)]

        def per_token(tokens: Tokens) -> PerToken:
            kl_T = tokens[self._divergence]
            return PerToken(loss_T=kl_T, metrics={"nats": kl_T.detach()})

        loss = Loss(
            per_token=per_token,
            reducer=self.reducer,
            needs=frozenset({self._divergence}),
            others={self.teacher: models[self.teacher]},
            inside=lambda: replaced(student.body, {layer: change}),
        )
        steps = self.total_steps(context.tasks)
        return fit_role(
            context, models, role=self.role, learning=self.learner, loss=loss, steps=steps, examples=examples
        )

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """The number of texts and steps, and the first text."""
        policy = models.get(self.role, models["policy"])
        texts = answered(policy, context.tasks, self.completion)
        return [
            f"{len(texts)} texts, {self.total_steps(context.tasks)} steps of {self.batch}",
            f"first text: {policy.tokenizer.decode(texts[0].token_ids)!r}",
        ]

    def _layer(self, policy: "Policy") -> int:
        """The layer. Raises `UserError` for one that there is not, and for the last one."""
        from posttrain.policies.layers import layers_of

        model, layer = read_layer(policy, self.layer, f"the {self.kind} stage")
        count = len(layers_of(model.body))
        if layer == count - 1:
            most = f"; give 0 to {count - 2}" if count > 1 else ""
            raise UserError(
                f"the {self.kind} stage replaces the output of layer {layer}, the last of {count}: no weight after it "
                f"could learn{most}"
            )
        return layer


def noisy(state_RD: "Tensor", found_RD: "Tensor", seed: int) -> "Tensor":
    """States moved as far as `found_RD` is from them, in directions that are a function of all states and the seed."""
    import torch

    own = zlib.crc32(state_RD.float().cpu().numpy().tobytes(), seed % 2**32)
    drawn_RD = torch.randn(state_RD.shape, generator=torch.Generator().manual_seed(own)).to(state_RD)
    far_R1 = (found_RD - state_RD).norm(dim=-1, keepdim=True)
    moved_RD: Tensor = state_RD + far_R1 * drawn_RD / drawn_RD.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    return moved_RD
