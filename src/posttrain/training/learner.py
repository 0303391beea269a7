"""The learner: packs examples, computes the loss, updates the weights. It is independent of methods.

    examples --deal--> minibatches --pack--> micro-batches --forward--> Tokens --objective--> loss, backward
                        (an optimizer step each)                                (weights from the reducer)

The loss of an optimizer step is a weighted sum over all its tokens, with weights computed before the split into
micro-batches. The split changes memory and rounding only.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from posttrain.components.balances import Shares
from posttrain.components.reducers import Reducer
from posttrain.errors import AlarmStop, UserError
from posttrain.policies import Policy
from posttrain.policies.vocabulary import rounded_once
from posttrain.signals import Signal
from posttrain.training.averages import Averages, moved_by
from posttrain.training.packing import (
    Example,
    MicroBatch,
    pack,
    plan_micro_batches,
    split_evenly,
    tokens_of,
    units_of,
)
from posttrain.training.settings import Learning
from posttrain.training.updates import Weights, total_norm
from posttrain.types import FloatArray, PerToken, Tokens

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What is minimized: a per-token loss, the signals that it reads, and the weights of tokens."""

    per_token: Callable[[Tokens], PerToken]
    reducer: Reducer
    needs: frozenset[Signal] = frozenset()
    """Signals of the forward pass that trains."""
    others: Mapping[str, Policy] = field(default_factory=dict)
    """By role, the models of the needed divergences."""
    shares: Shares = field(default_factory=Shares)
    """Weights of the losses of sampled and of demonstrated tokens."""
    temperature: float = 1.0
    """Temperature of the distribution whose log-probabilities are trained: that of sampling."""
    foresight: float = 0.0
    """Share of the model's own choices in its inputs: `Objective.foresight`."""
    whole_groups: bool = False
    """Whether the loss compares the sequences of a group, which must then be in one micro-batch."""
    inside: Callable[[], AbstractContextManager[object]] = nullcontext
    """Opened around every forward and backward pass that trains, to change what the model computes in it."""
    whole_batch: bool = False
    """Whether it compares all sequences of an update, which are then one micro-batch."""


@dataclass(frozen=True, kw_only=True)
class Learned:
    """The result of a step of the learner."""

    metrics: Mapping[str, float]
    """Means over all updates of the step."""
    signals: Sequence[Mapping[Signal, FloatArray]]
    """For each example, its [T] signals in the first epoch, before the update that it is in."""
    untouched: Sequence[int] = ()
    """Indices of the examples of the first update: their signals are those of the weights at the start of the step."""
    computed_tokens: int = 0
    """Tokens of all forward passes that were learned from, prompts included; a shared prompt counts once a pass."""


@dataclass(frozen=True, kw_only=True)
class Slice:
    """What the forward and backward pass of one micro-batch gives, besides the gradient."""

    loss: float
    signals: Mapping[Signal, Tensor]
    """[T] each, detached."""
    metrics: Mapping[str, Tensor]
    computed_tokens: int

    @classmethod
    def of(cls, policy: Policy, batch: MicroBatch, loss: Loss, progress: float) -> "Slice":
        """Do both passes; the gradient is added to the ``grad`` of the policy's weights."""
        with rounded_once(), loss.inside():
            signals = policy.evaluate(
                batch.packed,
                batch.positions_T,
                loss.needs,
                temperature=loss.temperature,
                others=loss.others,
                foresight=loss.foresight,
            )
            result = loss.per_token(tokens_of(batch, signals, progress))
            weighted = (result.loss_T * batch.weight_T).sum()
            weighted.backward()  # type: ignore[no-untyped-call]
        return cls(
            loss=float(weighted.detach()),
            signals={name: values_T.detach() for name, values_T in signals.items()},
            metrics={name: values.detach() for name, values in result.metrics.items()},
            computed_tokens=len(batch.packed.token_ids_L),
        )


class Workers(Protocol):
    """What computes the gradient of an optimizer step, adds it up, and updates the weights.

    Contract: sums run in the order of the micro-batches, ((0 + 1) + 2) + ..., so that the bits of the gradient depend
    neither on how many workers there are nor on which has what.
    """

    def slices(self, learner: "Learner", batches: Iterable[MicroBatch], loss: Loss, progress: float) -> Iterator[Slice]:
        """What each micro-batch gives, in their order. At the end, the workers have the sum, added to what they had."""
        ...

    def signals(self, asked: "Asked", batches: Iterable[MicroBatch]) -> Iterator[Mapping[Signal, Tensor]]:
        """[T] signals of each micro-batch, in their order, without gradients."""
        ...

    def together(self, works: Sequence[Callable[[], Result]]) -> list[Result]:
        """The results of works that need nothing of one another, done at the same time where processes allow it."""
        ...

    def norm(self, learner: "Learner") -> Tensor:
        """The norm of the gradient."""
        ...

    def update(self, learner: "Learner", norm: Tensor, factor: float) -> None:
        """Update the weights by the gradient, of that norm, and forget it; rates are `factor` times their peaks."""
        ...

    def gradients(self, learner: "Learner") -> Mapping[str, Tensor]:
        """The gradient by parameter, zeros where there is none; it is forgotten."""
        ...

    def drop(self, learner: "Learner") -> None:
        """Forget the gradient."""
        ...

    def state(self, learner: "Learner") -> dict[str, Tensor]:
        """Moments and masters by name; not copied."""
        ...

    def load_state(self, learner: "Learner", tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned."""
        ...

    def reset(self, learner: "Learner") -> None:
        """Forget the moments."""
        ...


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Signals that are asked of a policy."""

    policy: Policy
    needs: frozenset[Signal]
    temperature: float = 1.0
    others: Mapping[str, Policy] = field(default_factory=dict)
    """By role, the models of the needed divergences."""

    def of(self, batch: MicroBatch) -> dict[Signal, Tensor]:
        """Those of one micro-batch, without gradients."""
        with torch.no_grad():
            return dict(
                self.policy.evaluate(
                    batch.packed, batch.positions_T, self.needs, temperature=self.temperature, others=self.others
                )
            )


class InProcess:
    """One micro-batch after the other, in this process."""

    def slices(self, learner: "Learner", batches: Iterable[MicroBatch], loss: Loss, progress: float) -> Iterator[Slice]:
        """Gradients are added where they arise."""
        with learner.masters.reusing():
            for batch in batches:
                with learner.masters.collecting(learner.policy.summed_in_parts):
                    done = Slice.of(learner.policy, batch, loss, progress)
                yield done

    def signals(self, asked: Asked, batches: Iterable[MicroBatch]) -> Iterator[Mapping[Signal, Tensor]]:
        """One forward pass after the other."""
        return map(asked.of, batches)

    def together(self, works: Sequence[Callable[[], Result]]) -> list[Result]:
        """One after the other."""
        return [work() for work in works]

    def norm(self, learner: "Learner") -> Tensor:
        """By parameter, then over all."""
        return total_norm(list(learner.own.norms().values()))

    def update(self, learner: "Learner", norm: Tensor, factor: float) -> None:
        """By the learner's optimizers."""
        learner.own.update(norm, factor)

    def gradients(self, learner: "Learner") -> Mapping[str, Tensor]:
        """The ``grad`` of the parameters."""
        return learner.own.gradients()

    def drop(self, learner: "Learner") -> None:
        """Forget it."""
        learner.own.drop()

    def state(self, learner: "Learner") -> dict[str, Tensor]:
        """That of the learner's optimizers."""
        return learner.own.state()

    def load_state(self, learner: "Learner", tensors: Mapping[str, Tensor]) -> None:
        """To the learner's optimizers."""
        learner.own.load_state(tensors)

    def reset(self, learner: "Learner") -> None:
        """Of the learner's optimizers."""
        learner.own.reset()


class Learner:
    """Updates one policy. Its state (optimizer moments, update count) is saved and restored exactly."""

    def __init__(
        self,
        policy: Policy,
        settings: Learning,
        *,
        seed: int,
        num_steps: int,
        others: Mapping[str, Policy] | None = None,
    ) -> None:
        """`num_steps` calls of `step` make up the stage; schedules are spread over their updates.

        `others` are the models whose weights the optimizer reads, by role.
        """
        self.policy, self.settings, self.seed = policy, settings, seed
        if settings.offload is not None and next(policy.parameters()).device.type != "cpu":
            raise UserError("learner.offload is for models on CPUs, and this one is on a GPU; leave it out")
        policy.recompute_layers(settings.recompute)
        self.workers: Workers = InProcess()
        """What computes gradients; a run may put other processes here."""
        self.num_updates = num_steps * settings.epochs * settings.minibatches
        self.updates = 0
        if settings.privacy is not None and type(self) is Learner:
            raise UserError("learner.privacy is for an sft stage, whose records are drawn independently; leave it out")
        weights = {name: p for name, p in policy.named_parameters() if p.requires_grad}
        models = {role: dict(model.named_parameters()) for role, model in (others or {}).items()}
        self.own = Weights(weights, settings, models)
        self.masters, self.parameters = self.own.masters, self.own.parameters
        self.optimizers, self.peaks = self.own.optimizers, self.own.peaks

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(iter(self.parameters.values())).device

    @property
    def goes_on(self) -> bool:
        """Whether there may be a further step; false once a budget of the learner's own is spent."""
        return True

    @property
    def tokens_at_a_time(self) -> int:
        """Tokens in one forward pass."""
        return self.settings.tokens_for(self.policy)

    def step(self, examples: Sequence[Example], loss: Loss, *, progress: float, epochs: int | None = None) -> Learned:
        """All updates on one batch, in `epochs` epochs, or in those of the settings.

        Raises `AlarmStop` before a weight changes when a loss or gradient is not finite.
        """
        self.policy.give_back_memory()
        self.masters.follow()
        indices = [i for i, e in enumerate(examples) if e.num_trained]
        units = units_of([examples[i].group for i in indices], whole_groups=loss.whole_groups)
        averages = Averages()
        seen: list[dict[Signal, FloatArray]] = [{} for _ in examples]
        untouched: list[int] = []
        rng = np.random.Generator(np.random.Philox(key=[self.seed, self.updates]))
        for epoch in range(epochs or self.settings.epochs):
            order = list(range(len(units))) if self.settings.minibatches == 1 else rng.permutation(len(units)).tolist()
            for dealt in split_evenly(order, self.settings.minibatches):
                part = [indices[i] for unit in dealt for i in units[unit]]
                signals = self._update([examples[i] for i in part], loss, progress, averages)
                untouched = untouched or part
                if epoch == 0:
                    for i, values in zip(part, signals, strict=True):
                        seen[i] = values
                if averages.stopped:
                    break
            if averages.stopped:
                break
        self.policy.give_back_memory()
        return Learned(
            metrics=averages.means(), signals=seen, untouched=untouched, computed_tokens=averages.computed_tokens
        )

    def _update(
        self, examples: Sequence[Example], loss: Loss, progress: float, averages: Averages
    ) -> list[dict[Signal, FloatArray]]:
        """One optimizer step. Returns the signals of each example before the update."""
        total, signals = self.accumulate(examples, loss, progress, averages)
        norm = self.workers.norm(self)
        if not (math.isfinite(total) and math.isfinite(float(norm))):
            self.workers.drop(self)
            raise AlarmStop(
                f"the loss ({total}) or the gradient norm ({float(norm)}) of update {self.updates + 1} is not finite; "
                "the weights are those before it. Inspect the rollouts of this step; a smaller "
                "learner.optimizer.lr or learner.clip_norm is the usual remedy."
            )
        bound = self.settings.stop_at
        if bound is not None and averages.moved(moved_by(examples, signals, self.settings.stop_by), bound):
            self.workers.drop(self)
            return signals
        factor = self.settings.schedule.factor(self.updates / self.num_updates)
        self.workers.update(self, norm, factor)
        self.updates += 1
        self.policy.version += 1
        averages.add("loss", torch.tensor([total]))
        averages.add("gradient_norm", norm.reshape(1))
        averages.add("learning_rate", torch.tensor([self.peaks[0][0] * factor]))
        return signals

    def accumulate(
        self, examples: Sequence[Example], loss: Loss, progress: float, averages: Averages | None = None
    ) -> tuple[float, list[dict[Signal, FloatArray]]]:
        """Add the gradient of one optimizer step's loss to what the workers have: the ``grad`` of `parameters`, here.

        Returns the loss, and for each example its [T] signals.
        """
        averages = averages if averages is not None else Averages()
        total = 0.0
        seen: list[dict[Signal, FloatArray]] = [{} for _ in examples]
        parts = self._parts(examples, loss)
        batches = self._micro_batches(examples, loss, parts)
        for part, done in zip(parts, self.workers.slices(self, batches, loss, progress), strict=True):
            total += done.loss
            averages.computed_tokens += done.computed_tokens
            for name, values in done.metrics.items():
                averages.add(name, values)
            _scatter(done.signals, part, examples, seen)
        return total, seen

    def gradient(self, examples: Sequence[Example], loss: Loss, *, progress: float) -> list[Tensor]:
        """The gradient of a loss at the present weights, by parameter; nothing is updated. Zeros without an example."""
        self.masters.follow()
        own = [example for example in examples if example.num_trained]
        if own:
            self.accumulate(own, loss, progress)
        found = self.workers.gradients(self)
        return [found[name] for name in self.parameters]

    def _parts(self, examples: Sequence[Example], loss: Loss) -> list[list[int]]:
        """The examples of an optimizer step by micro-batch, as indices."""
        most = sum(len(e.token_ids) for e in examples) if loss.whole_batch else self.tokens_at_a_time
        return plan_micro_batches(examples, most, whole_groups=loss.whole_groups, share=self.policy.shares_prompts)

    def _micro_batches(
        self, examples: Sequence[Example], loss: Loss, parts: Sequence[Sequence[int]]
    ) -> Iterator[MicroBatch]:
        """The micro-batches of an optimizer step, packed one at a time."""
        demonstrated_N = np.array([np.count_nonzero(e.demonstrated_T) for e in examples], np.int64)
        sampled_N = np.array([e.num_trained for e in examples], np.int64) - demonstrated_N
        group_N = np.array([e.group for e in examples], np.int64)
        sampled_weight_N, shown_weight_N = loss.reducer.by_origin(sampled_N, demonstrated_N, group_N)
        sampled_weight_N = sampled_weight_N * np.float32(loss.shares.sampled)
        shown_weight_N = shown_weight_N * np.float32(loss.shares.demonstrated)
        share = self.policy.shares_prompts
        for part in parts:
            own, places = [examples[i] for i in part], np.array(part)
            weights = sampled_weight_N[places], shown_weight_N[places]
            yield pack(own, weights[0], self.device, demonstrated_N=weights[1], share=share)

    def state(self, *, copied: bool = True) -> tuple[dict[str, object], dict[str, Tensor]]:
        """The state for a checkpoint: plain numbers, and tensors by name.

        Without copies the tensors are those of the learner, for a caller who is done with them before the next step.
        """
        tensors = self.workers.state(self)
        if copied:
            tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        return {"updates": self.updates, "version": self.policy.version}, tensors

    def reset_optimizer(self) -> None:
        """Reset the optimizer's moments; the count of updates, and with it the schedule, continues."""
        self.workers.reset(self)

    def load_state(self, numbers: Mapping[str, object], tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned, exactly."""
        self.updates = int(str(numbers["updates"]))
        self.policy.version = int(str(numbers["version"]))
        self.workers.load_state(self, tensors)


def evaluate_examples(
    policy: Policy,
    examples: Sequence[Example],
    needs: frozenset[Signal],
    *,
    max_tokens: int,
    temperature: float = 1.0,
    others: Mapping[str, Policy] | None = None,
    workers: Workers | None = None,
) -> list[dict[Signal, FloatArray]]:
    """For each example, [T] arrays of a policy's signals, without gradients; None for `workers` is this process.

    For a reference's log-probabilities, a critic's values, and the policy's own signals before an update, including its
    divergences from the `others`, by role.
    """
    device = next(policy.parameters()).device
    results: list[dict[Signal, FloatArray]] = [{} for _ in examples]
    bare = [replace(e, columns={}) for e in examples]
    share = policy.shares_prompts
    parts = plan_micro_batches(bare, max_tokens, share=share)
    batches = (pack([bare[i] for i in p], np.zeros(len(p), np.float32), device, share=share) for p in parts)
    asked = Asked(policy=policy, needs=needs, temperature=temperature, others=others or {})
    for part, signals in zip(parts, (workers or InProcess()).signals(asked, batches), strict=True):
        _scatter(signals, part, bare, results)
    return results


def _scatter(
    signals: Mapping[Signal, Tensor],
    part: Sequence[int],
    examples: Sequence[Example],
    into: list[dict[Signal, FloatArray]],
) -> None:
    """Split flat signals of a micro-batch by example."""
    ends = np.cumsum([examples[i].num_trained for i in part])[:-1]
    for signal, values_T in signals.items():
        for i, values in zip(part, np.split(values_T.detach().float().cpu().numpy(), ends), strict=True):
            into[i][signal] = values
