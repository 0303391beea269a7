"""Trains a sparse autoencoder of the states after one layer of a model, on prompts with their verified answers.

Source: Resa, Wang et al. 2025, arXiv:2506.09967, and its release (a fork of EleutherAI's sparsify): the loss is the
fraction of variance unexplained over a batch of texts; steps by the sign of the gradient with the rate
5e-3 / sqrt(latents / 2^14), averaged as in schedule-free learning (Defazio et al. 2024, arXiv:2405.15682) with momentum
0.95: the gradient is taken between the last iterate z and the mean x of all iterates, at 0.05 z + 0.95 x, and the model
is x. The decoder begins as the encoder, and its bias as the mean of the first batch.

Differs: texts are packed without attending to one another, where the release cuts their concatenation into 2,048
tokens. Rows of the decoder are brought to norm 1 in the mean, once per step. The weights of the loss that the release
leaves at 0 (dead latents, several k) are not there.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.order import shuffled
from posttrain.errors import AlarmStop, UserError
from posttrain.stages import Models, PreviewContext, Stage, StageContext
from posttrain.stages.fit import fit, steps_in
from posttrain.stages.states import answered, read_layer
from posttrain.types import Task

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.policies.language_model import LanguageModelPolicy
    from posttrain.policies.sparse_coder import SparseCoder
    from posttrain.training.learner import Learner
    from posttrain.training.packing import Example

MOMENTUM: Final = 0.95


@frozen
class SparseAutoencoder(Stage):
    """Training of a sparse autoencoder, which is a new model."""

    of: str = "policy"
    """The model whose states are coded."""
    role: str = "sae"
    """The role of the sparse autoencoder, whose source is ``made``."""
    layer: NonNegativeInt | None = None
    """The layer after which states are read, counted from 0; None is the last one of the first half."""
    latents: PositiveInt = 2048
    """Number of latents (65,536 in the paper, for a width of 1,536)."""
    k: PositiveInt = 32
    """Most active latents (32)."""
    completion: str = "#### {answer}"
    """What follows the prompt; ``{answer}`` stands for the verified answer."""
    batch: PositiveInt = 64
    """Texts in each update (16 of 2,048 tokens in the paper)."""
    epochs: PositiveFloat = 10.0
    """Passes over the texts; fractions are allowed."""
    max_steps: PositiveInt | None = 200
    """Upper limit on the number of steps."""
    lr: PositiveFloat | None = None
    """Size of a step; None is 5e-3 / sqrt(latents / 2^14)."""
    tasks: Tasks | None = None
    """Tasks of this stage; None takes the recipe's."""

    @property
    def roles(self) -> frozenset[str]:
        """The model that it reads."""
        return frozenset({self.of})

    @property
    def makes(self) -> frozenset[str]:
        """The sparse autoencoder."""
        return frozenset({self.role})

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """The model must have the layer, and a task an answer."""
        policy, _ = read_layer(models.get(self.of, models["policy"]), self.layer, f"the {self.kind} stage")
        answered(policy, tasks, self.completion)
        if self.k > self.latents:
            raise UserError(f"the {self.kind} stage keeps k={self.k} of {self.latents} latents; give a smaller k")

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """Number of steps of the epochs, at least one."""
        count = sum(task.answer is not None for task in tasks)
        return steps_in(count, batch=self.batch, epochs=self.epochs, max_steps=self.max_steps)

    def run(self, models: Models, context: StageContext) -> Models:
        """Train, and return the models with the new one among them."""
        from posttrain.policies.sparse_coder import Sizes, SparseCoder

        policy, layer = read_layer(models[self.of], self.layer, f"stage {context.name}")
        texts = answered(policy, context.tasks, self.completion)
        if context.steps_done:
            coder = cast("SparseCoder", models[self.role])
        else:
            sizes = Sizes(width=policy.body.width, latents=self.latents, k=self.k)
            coder = SparseCoder(self.role, sizes, seed=context.seed % 2**63)
            coder.to(next(policy.parameters()).device)
        averaged = Averaged(coder, self.lr or 5e-3 / (self.latents / 2**14) ** 0.5)
        made = {**models, self.role: coder}
        learners = {self.role: cast("Learner", averaged)}
        for step in fit(context, made, learners, steps=self.total_steps(context.tasks)):
            chosen = [texts[i] for i in shuffled(len(texts), self.batch, step.index, context.seed)]
            with context.phase("signals"):
                state_RD = states_of(policy, chosen, layer)
            with context.phase("learn"):
                loss = averaged.step(state_RD, first=step.index == 0)
            step.record.metrics |= {"loss": loss, "states": float(len(state_RD))}
        for parameter in coder.parameters():
            parameter.requires_grad_(False)
        return made

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """The number of texts, and the first one."""
        policy = models.get(self.of, models["policy"])
        texts = answered(policy, context.tasks, self.completion)
        return [f"{len(texts)} texts", f"first text: {policy.tokenizer.decode(texts[0].token_ids)!r}"]


class Averaged:
    """Steps by the sign of the gradient, and the mean of all iterates; see `posttrain.training.learner.Learner`."""

    goes_on = True

    def __init__(self, coder: "SparseCoder", lr: float) -> None:
        self.coder, self.lr, self.updates = coder, lr, 0
        self.iterates: dict[str, Tensor] = {name: p.detach().clone() for name, p in coder.named_parameters()}

    def step(self, state_RD: "Tensor", *, first: bool) -> float:
        """One update; gives the fraction of variance unexplained before it, where the gradient is taken."""
        import torch

        named = dict(self.coder.named_parameters())
        with torch.no_grad():
            if first:
                self.coder.decoder_bias.copy_(state_RD.mean(0))
                self.iterates["decoder_bias"].copy_(self.coder.decoder_bias)
            means = {name: parameter.detach().clone() for name, parameter in named.items()}
            for name, parameter in named.items():
                parameter.requires_grad_(True).lerp_(self.iterates[name], 1.0 - MOMENTUM)
        loss = self.coder.unexplained(state_RD)
        gradients = torch.autograd.grad(loss, list(named.values()))
        if not torch.isfinite(loss):
            raise AlarmStop(f"the loss of update {self.updates + 1} of the sparse autoencoder is not finite")
        self.updates += 1
        with torch.no_grad():
            for (name, parameter), gradient in zip(named.items(), gradients, strict=True):
                self.iterates[name] -= self.lr * gradient.sign()
                parameter.copy_(means[name].lerp_(self.iterates[name], 1.0 / self.updates))
            self.coder.normalize()
        self.coder.version += 1
        return float(loss.detach())

    def state(self, *, copied: bool = True) -> "tuple[dict[str, object], dict[str, Tensor]]":
        """The state for a checkpoint; the means are the model."""
        numbers: dict[str, object] = {"updates": self.updates, "version": self.coder.version}
        return numbers, {name: x.clone() if copied else x for name, x in self.iterates.items()}

    def load_state(self, numbers: Mapping[str, Any], tensors: "Mapping[str, Tensor]") -> None:
        """Restore what `state` returned, exactly."""
        self.updates, self.coder.version = int(numbers["updates"]), int(numbers["version"])
        for name, iterate in self.iterates.items():
            iterate.copy_(tensors[name])


def states_of(policy: "LanguageModelPolicy", texts: "Sequence[Example]", layer: int) -> "Tensor":
    """[R, D] the states of all tokens of texts after a layer, in float32; without gradient."""
    import numpy as np
    import torch

    from posttrain.policies.layers import states
    from posttrain.training.packing import pack, plan_micro_batches
    from posttrain.training.settings import Learning

    device = next(policy.parameters()).device
    found = []
    for part in plan_micro_batches(texts, Learning().tokens_for(policy)):
        batch = pack([texts[i] for i in part], np.zeros(len(part), np.float32), device)
        with torch.no_grad():
            found.append(states(policy.body, batch.packed, [layer])[layer].float())
    return torch.cat(found)
