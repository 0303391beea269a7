"""Which rank holds which shard for training and for generation, and what moves between both.

Source: HybridFlow (Sheng et al. 2024, arXiv:2409.19256), section 5 and table 2, from memory and derived anew. Training
cuts a model p x t ways (pipeline, tensor) on d replicas; generation pg x tg ways, with pg a divisor of p and tg one of
t, on d (p / pg) (t / tg) replicas. Rank (i, j) of a replica takes the generation shard (floor(i pg / p), floor(j tg /
t)), which contains its training shard, so that nothing is held twice; an all-gather among the (p / pg)(t / tg) ranks
with the same generation shard brings the rest.

A shard is a rectangle of unit cells, p of layers by t of columns: the cell (i, j) is what rank (i, j) trains.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from posttrain.errors import UserError

Cell = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Cuts:
    """Degrees of both layouts. Raises `UserError` where generation does not divide training."""

    pipeline: int
    tensor: int
    data: int = 1
    generation_pipeline: int = 1
    generation_tensor: int = 1

    def __post_init__(self) -> None:
        for name, whole, part in (
            ("pipeline", self.pipeline, self.generation_pipeline),
            ("tensor", self.tensor, self.generation_tensor),
        ):
            if part < 1 or whole % part:
                raise UserError(f"{name}: {part} ways for generation do not divide the {whole} ways of training")

    @property
    def ranks(self) -> Iterator[Cell]:
        """The ranks of one replica, by pipeline and tensor."""
        return ((i, j) for i in range(self.pipeline) for j in range(self.tensor))

    @property
    def replicas(self) -> int:
        """Replicas that generate."""
        return self.data * (self.pipeline // self.generation_pipeline) * (self.tensor // self.generation_tensor)

    def shard(self, rank: Cell) -> Cell:
        """The generation shard of a rank."""
        return (
            rank[0] * self.generation_pipeline // self.pipeline,
            rank[1] * self.generation_tensor // self.tensor,
        )

    def cells(self, shard: Cell) -> frozenset[Cell]:
        """What a generation shard consists of."""
        high, wide = self.pipeline // self.generation_pipeline, self.tensor // self.generation_tensor
        return frozenset(
            (i, j)
            for i in range(shard[0] * high, (shard[0] + 1) * high)
            for j in range(shard[1] * wide, (shard[1] + 1) * wide)
        )

    def senders(self, rank: Cell) -> dict[Cell, Cell]:
        """For each cell that a rank receives, the rank of its group that has it."""
        return {cell: cell for cell in sorted(self.cells(self.shard(rank)) - {rank})}

    @property
    def received(self) -> Fraction:
        """Share of the model that each rank receives."""
        trained, generated = self.pipeline * self.tensor, self.generation_pipeline * self.generation_tensor
        return Fraction(trained - generated, generated * trained)

    @property
    def received_in_replica(self) -> Fraction:
        """The same where the whole model is gathered within a replica."""
        trained = self.pipeline * self.tensor
        return Fraction(trained - 1, trained)

    @property
    def received_everywhere(self) -> Fraction:
        """The same where it is gathered from all ranks, each with a part of its own."""
        every = self.pipeline * self.tensor * self.data
        return Fraction(every - 1, every)

    def consecutive(self, rank: Cell) -> frozenset[Cell]:
        """The cells that a rank would hold twice with consecutive ranks as generation groups: its training cell, where
        its generation shard does not contain it.
        """
        number = rank[0] * self.tensor + rank[1]
        place = number % (self.generation_pipeline * self.generation_tensor)
        shard = (place // self.generation_tensor, place % self.generation_tensor)
        return frozenset({rank} - self.cells(shard))
