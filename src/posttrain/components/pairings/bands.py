"""A relevant text preferred to irrelevant ones from bands of a ranking, so that hard and easy negatives are mixed.

Source: DDRO, Mekonnen et al. 2025, arXiv:2504.05181 (kidist-amde/ddro at cd5d1f77, bm25_negative_sampling_msmarco): per
query one positive, drawn from the relevant ones, and 32 negatives of a ranking (BM25) of 1000: 10 of the ranks 1 to
100, 10 of 101 to 500, 12 of 501 to 1000, without the relevant ones. A query with fewer candidates in a band than are to
be drawn is dropped.

A task has the relevant texts in its demonstrations, and in the field `field` a list of texts by falling rank. No
rollout is used. A negative that equals the positive, as where two documents have one code, is left out before the draw.
Candidates that are not labelled count as irrelevant, so that false negatives are possible in the first band.

No rollouts are sampled for it.

Differs: nothing known.
"""

from typing import Annotated, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.pairings import Paired, Pairing, Rollouts
from posttrain.engines import Sampler
from posttrain.types import Preference


@frozen
class Bands(Pairing):
    """Pairs a relevant text with negatives of each band."""

    field: str = "ranked"
    """Column of a task with the ranked candidates."""
    ends: Annotated[tuple[PositiveInt, ...], Field(min_length=1, max_length=32)] = (100, 500, 1000)
    """Last rank of each band, rising."""
    counts: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1, max_length=32)] = (10, 10, 12)
    """Negatives that are drawn from each band, without replacement."""

    @model_validator(mode="after")
    def check_bands(self) -> Self:
        """Refuse bands that do not rise, and another number of counts."""
        if list(self.ends) != sorted(set(self.ends)) or len(self.ends) != len(self.counts):
            raise PydanticCustomError("bands", "ends must rise, each once, and counts have one number for each of them")
        return self

    @property
    def reads(self) -> tuple[str, ...]:
        """The ranking."""
        return (self.field,)

    @property
    def needs_rollouts(self) -> bool:
        """It reads texts of the data alone."""
        return False

    async def pair(self, rollouts: Rollouts) -> Paired:
        """One pair for each negative."""
        task, draw = rollouts.task, rollouts.sampler
        ranked = task.fields.get(self.field)
        if not isinstance(ranked, (list, tuple)) or not all(isinstance(text, str) for text in ranked):
            return Paired(reason=f"no list of texts in the column '{self.field}'")
        relevant = list(dict.fromkeys(text for text in task.demonstrations if text.strip()))
        if not relevant:
            return Paired(reason="no relevant text")
        chosen = relevant[int(draw.uniform() * len(relevant))]
        pairs, first = [], 0
        for end, count in zip(self.ends, self.counts, strict=True):
            band = [(rank + 1, ranked[rank]) for rank in range(first, min(end, len(ranked)))]
            band = [(rank, text) for rank, text in band if text not in relevant and text.strip()]
            if len(band) < count:
                return Paired(reason="too few negatives in a band")
            pairs += [self._made(chosen, text, rank, end) for rank, text in _drawn(band, count, draw)]
            first = end
        return Paired(pairs=tuple(pairs)) if pairs else Paired(reason="no negative is wanted")

    def _made(self, chosen: str, rejected: str, rank: int, end: int) -> Preference:
        origin = [{"writer": "data"}, {"writer": "data", "rank": rank}]
        return Preference(
            chosen=chosen, rejected=rejected, fields={"rule": self.kind, "rank": rank, "band": end, "origin": origin}
        )


def _drawn(band: list[tuple[int, str]], count: int, draw: Sampler) -> list[tuple[int, str]]:
    """`count` of a band, each equally likely, in the order of drawing."""
    left = list(band)
    return [left.pop(int(draw.uniform() * len(left))) for _ in range(count)]
