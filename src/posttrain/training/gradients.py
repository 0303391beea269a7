"""Gradients of single records: their norms by group of parameters, and weighted sums.

Where only adapters are trained, one packed backward pass gives them all: the gradient of a record is a product over its
own rows of a layer's inputs and of the gradients of its outputs (Goodfellow 2015, arXiv:1510.01799). Otherwise each
record has a backward pass of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posttrain.policies import Policy
from posttrain.policies.lora import LoRALinear, adapters
from posttrain.signals import Signal
from posttrain.training.packing import Example, pack, plan_micro_batches, tokens_of
from posttrain.types import FloatArray

if TYPE_CHECKING:
    from posttrain.training.averages import Averages
    from posttrain.training.learner import Learner, Loss

Groups = Sequence[Sequence[str]]


class Gradients(Protocol):
    """Gradients of N records."""

    loss_N: FloatArray
    """Loss of each."""
    signals: list[dict[Signal, FloatArray]]
    """[T] signals of each."""

    def norms(self, groups: Groups) -> Tensor:
        """[G, N] norms in float64; not finite where a gradient is not."""

    def weighted(self, groups: Groups, factor_GN: Tensor) -> dict[str, Tensor]:
        """By parameter, the sum over records of factor times gradient; records of factor 0 add nothing, whatever their
        gradient is.
        """
        raise NotImplementedError


def gradients_of(
    learner: "Learner", examples: Sequence[Example], loss: "Loss", progress: float, averages: "Averages"
) -> Gradients:
    """The gradients of each record's own loss at the present weights; the learner's ``grad`` stay empty."""
    alone = [replace(example, group=i) for i, example in enumerate(examples)]
    if only_adapters(learner.policy) and not learner.masters.own:
        return _of_adapters(learner, alone, loss, progress, averages)
    return _one_by_one(learner, alone, loss, progress, averages)


def _weights(policy: Policy) -> dict[str, nn.Parameter]:
    return {name: p for name, p in policy.named_parameters() if p.requires_grad}


def only_adapters(policy: Policy) -> bool:
    """Whether nothing but adapters is trained."""
    own = {id(p) for layer in adapters(policy).values() for p in (layer.lora_A, layer.lora_B)}
    return all(id(p) in own for p in _weights(policy).values())


def weight_of(loss: "Loss", example: Example) -> float:
    """Weight of each token of a record in its own loss: that of the reducer for a batch of this record alone."""
    shown = int(np.count_nonzero(example.demonstrated_T))
    own = np.array([example.num_trained - shown]), np.array([shown])
    sampled, demonstrated = loss.reducer.by_origin(*own, np.zeros(1, np.int64))
    return float(demonstrated[0] if shown else sampled[0])


@dataclass
class _Separate:
    """Whole gradients, one record after the other."""

    loss_N: FloatArray
    signals: list[dict[Signal, FloatArray]]
    gradients: list[dict[str, Tensor]]

    def norms(self, groups: Groups) -> Tensor:
        """[G, N] norms."""
        found = [
            [sum((own[name].double() ** 2).sum() for name in names if name in own) for own in self.gradients]
            for names in groups
        ]
        return torch.tensor(found, dtype=torch.float64).reshape(len(groups), len(self.gradients)).sqrt()

    def weighted(self, groups: Groups, factor_GN: Tensor) -> dict[str, Tensor]:
        """Weighted sums."""
        sums: dict[str, Tensor] = {}
        for g, names in enumerate(groups):
            for n, own in enumerate(self.gradients):
                factor = float(factor_GN[g, n])
                for name in names:
                    if name in own and factor:
                        part = own[name] * factor
                        sums[name] = sums[name] + part if name in sums else part
        return sums


def _one_by_one(
    learner: "Learner", examples: Sequence[Example], loss: "Loss", progress: float, averages: "Averages"
) -> _Separate:
    """A backward pass for each record."""
    losses, signals, gradients = [], [], []
    for example in examples:
        total, seen = learner.accumulate([example], loss, progress, averages)
        losses.append(total)
        signals.append(seen[0])
        gradients.append({n: p.grad.clone() for n, p in learner.parameters.items() if p.grad is not None})
        for optimizer in learner.optimizers:
            optimizer.zero_grad()
    return _Separate(np.array(losses, np.float32), signals, gradients)


@dataclass
class _Rows:
    """What a pass leaves of one adapted layer: inputs [L, in] and gradients of outputs [L, out]."""

    layer: LoRALinear
    input_LD: Tensor
    gradient_LD: Tensor

    def products(self, place_NM: Tensor, is_token_NM: Tensor) -> tuple[Tensor, Tensor]:
        """[N, r, in] and [N, out, r] gradients of both matrices for each record, whose rows are at `place_NM`.

        A record that is shorter than the longest has a row of its own where `is_token_NM` is 0.
        """
        x, y, scale = self.input_LD, self.gradient_LD, self.layer.scale
        weight_NM1 = (is_token_NM * scale)[..., None].to(y)
        inner = F.linear(x, self.layer.lora_A.detach())[place_NM] * weight_NM1
        outer = (y @ self.layer.lora_B.detach())[place_NM] * weight_NM1
        return outer.transpose(1, 2) @ x[place_NM], y[place_NM].transpose(1, 2) @ inner


@dataclass
class _Packed:
    """Gradients of adapters, a matrix for each record."""

    loss_N: FloatArray
    signals: list[dict[Signal, FloatArray]]
    passes: list[tuple[list[int], dict[str, Tensor]]] = field(default_factory=list)
    """Of each forward pass, the records in it, and by parameter their gradients, which are as small as the rows that
    they are products of where a record has as many tokens as an adapter has ranks.
    """

    def norms(self, groups: Groups) -> Tensor:
        """[G, N] norms."""
        zero = torch.zeros(len(self.signals), dtype=torch.float64)
        squares: dict[str, Tensor] = {}
        for places, products in self.passes:
            for name, product in products.items():
                into = squares.setdefault(name, zero.clone())
                into[places] = product.double().square().sum((1, 2)).cpu()
        found = [sum((squares.get(name, zero) for name in names), zero) for names in groups]
        return torch.stack(found).sqrt()

    def weighted(self, groups: Groups, factor_GN: Tensor) -> dict[str, Tensor]:
        """Weighted sums."""
        factor_of = {name: factor_GN[g] for g, names in enumerate(groups) for name in names}
        sums: dict[str, Tensor] = {}
        for places, products in self.passes:
            for name, product in products.items():
                factor_N = factor_of[name][torch.tensor(places)].to(product)
                # What is left out may be not finite, and 0 times that is not 0.
                kept = product if bool((factor_N > 0).all()) else product[factor_N > 0]
                part = torch.tensordot(factor_N[factor_N > 0], kept, dims=1)
                sums[name] = sums[name] + part if name in sums else part
        return sums


def _of_adapters(
    learner: "Learner", examples: Sequence[Example], loss: "Loss", progress: float, averages: "Averages"
) -> _Packed:
    """One backward pass for all records of a pass."""
    policy = learner.policy
    found = _Packed(np.zeros(len(examples), np.float32), [{} for _ in examples])
    weights = [weight_of(loss, example) for example in examples]
    for part in plan_micro_batches(examples, learner.tokens_at_a_time) if examples else []:
        own = [examples[i] for i in part]
        batch = pack(own, np.array([weights[i] for i in part], np.float32), learner.device)
        with _recording(policy) as rows:
            signals = policy.evaluate(
                batch.packed,
                batch.positions_T,
                loss.needs,
                temperature=loss.temperature,
                others=loss.others,
                foresight=loss.foresight,
            )
            result = loss.per_token(tokens_of(batch, signals, progress))
            weighted_T = result.loss_T * batch.weight_T
            weighted_T.sum().backward()  # type: ignore[no-untyped-call]
        products: dict[str, Tensor] = {}
        places = _places(batch.packed.starts, learner.device)
        for name, own_rows in rows.items():
            pair = own_rows.products(*places)
            products |= {f"{name}.lora_A": pair[0], f"{name}.lora_B": pair[1]}
        found.passes.append((list(part), products))
        ends = np.cumsum([e.num_trained for e in own])[:-1]
        for i, values in zip(part, np.split(weighted_T.detach().float().cpu().numpy(), ends), strict=True):
            found.loss_N[i] = values.sum()
        for signal, values_T in signals.items():
            for i, values in zip(part, np.split(values_T.detach().float().cpu().numpy(), ends), strict=True):
                found.signals[i][signal] = values
        averages.computed_tokens += len(batch.packed.token_ids_L)
        for name, metric in result.metrics.items():
            averages.add(name, metric)
    return found


def _places(starts: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
    """[N, M] rows of N records of at most M tokens, and whether each is a token; after the last it is repeated."""
    first_N1, length_N1 = torch.tensor(starts[:-1])[:, None], torch.tensor(np.diff(starts))[:, None]
    number_M = torch.arange(int(length_N1.max()))
    places = first_N1 + torch.minimum(number_M, length_N1 - 1)
    return places.to(device), (number_M < length_N1).to(device)


@contextmanager
def _recording(policy: Policy) -> Iterator[Mapping[str, _Rows]]:
    """Inside, adapted layers keep the rows of a pass, by the layer's name, and have no gradients."""
    layers, rows = adapters(policy), dict[str, _Rows]()

    def keep(name: str, input_LD: Tensor, gradient_LD: Tensor) -> None:
        assert name not in rows, "a layer is called once in a pass"
        rows[name] = _Rows(layers[name], input_LD.detach(), gradient_LD.detach())

    for name, layer in layers.items():
        layer.keep = partial(keep, name)
    try:
        yield rows
    finally:
        for layer in layers.values():
            layer.keep = None
