"""DARE: drop entries of the differences at random and scale up the rest, then merge by another method.

Source: Yu et al. 2023, arXiv:2311.03099, and the release of Wu et al. 2025, arXiv:2503.20641, for long-to-short
reasoning: each entry of each difference is dropped with probability p, and the others are divided by 1 - p, so that the
mean is unchanged. Then comes task arithmetic, an average or TIES. With p = 1 all are dropped, and nothing is divided.
As an option of the release, the smallest entries are dropped instead of random ones.

Differs: draws are a function of (seed, parameter, model). The smallest entries are exactly int(p n) of n.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final, Self

import numpy as np
from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.merges import Merge, Survey, Whole
from posttrain.components.merges._differences import check_base
from posttrain.components.merges.task_arithmetic import TaskArithmetic

if TYPE_CHECKING:
    import torch

ROWS: Final = (292,)


@frozen
class DARE(Merge):
    """Random or smallest entries of each difference dropped, then another merge."""

    p: Annotated[float, Field(ge=0.0, le=1.0)] = 0.3
    """Probability of dropping an entry (0.3 in the paper, 0.4 at 14B; it must be below 0.5 there)."""
    by_size: bool = False
    """Whether the smallest entries are dropped, not random ones; the rest is scaled up in the same way."""
    then: Merge = TaskArithmetic()
    """How the models with the changed differences are merged."""
    seed: NonNegativeInt = 0
    """Seed of the draws."""

    def check(self, count: int) -> None:
        """There must be a model beside the base."""
        check_base(self.kind, count)
        self.then.check(count)

    def at(self, coefficient: float) -> Self:
        """With another coefficient of the merge that follows."""
        return replace(self, then=self.then.at(coefficient))

    def survey(self, whole: Whole) -> Survey:
        """What the merge that follows needs, of the changed models."""

        def changed() -> "Iterator[tuple[str, Sequence[torch.Tensor]]]":
            for name, tensors in whole.tensors():
                yield name, self._changed(name, tensors)

        return self.then.survey(replace(whole, tensors=changed))

    def __call__(self, name: str, tensors: "Sequence[torch.Tensor]", survey: Survey) -> "torch.Tensor":
        """Drop, scale, merge."""
        return self.then(name, self._changed(name, tensors), survey)

    def _changed(self, name: str, tensors: "Sequence[torch.Tensor]") -> "list[torch.Tensor]":
        """The base, and the others with what is left of their differences."""
        base = tensors[0]
        changed = [base]
        for number, other in enumerate(tensors[1:]):
            difference = other - base
            difference.masked_fill_(self._dropped(difference, name, number), 0.0)
            if self.p < 1.0:
                difference.div_(1.0 - self.p)
            changed.append(difference.add_(base))
        return changed

    def _dropped(self, difference: "torch.Tensor", name: str, number: int) -> "torch.Tensor":
        """Whether each entry is dropped."""
        import torch

        if self.by_size:
            order = difference.abs().flatten().argsort(stable=True)
            dropped = torch.zeros(difference.numel(), dtype=torch.bool, device=difference.device)
            dropped[order[: int(self.p * len(order))]] = True
            return dropped.reshape(difference.shape)
        key = np.random.SeedSequence([self.seed, zlib.crc32(name.encode()), number])
        drawn = np.random.Generator(np.random.Philox(key)).random(tuple(difference.shape), np.float32)
        return torch.as_tensor(drawn < self.p).to(difference.device)
