"""Packs trajectories into micro-batches: sequences end to end, and flat arrays over trained tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from posttrain.policies import Packed
from posttrain.signals import ADVANTAGE, BEHAVIOR_LOGP, LOGP, OLD_LOGP, VALUE_TARGET, Signal
from posttrain.types import FloatArray, IntArray, Tokens, Trajectory

MIN_SHARED: Final = 8
"""Shortest common prefix of examples that is computed once."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """One trajectory in the learner's form. Columns are [T] arrays over its trained tokens."""

    token_ids: IntArray
    """[L] every token."""
    positions: IntArray
    """[T] positions of the trained ones."""
    columns: Mapping[Signal, FloatArray]
    """Data from before the updates: log-probabilities, credit, and required signals."""
    turn_T: IntArray
    vectors: FloatArray | None = None
    """[L, D] the vector of every token, where tokens have one (`Segment.vectors`)."""
    allowed: tuple[IntArray, IntArray] | None = None
    """Where trained tokens were drawn among allowed ones (`Segment.allowed`): [M] ids of these, and [M] the trained
    token that each is for. A token without any may be every one. None where all may be."""
    group: int = 0
    reward: float = 0.0
    solved: bool = False
    """Whether its score is correct."""
    group_solved: float = 0.0
    """Share of correct rollouts in its group."""

    @property
    def num_trained(self) -> int:
        """Number of trained tokens."""
        return len(self.positions)

    @property
    def demonstrated_T(self) -> NDArray[np.bool_]:
        """[T] whether each trained token was not sampled."""
        sampled = self.columns.get(BEHAVIOR_LOGP)
        return np.ones(self.num_trained, bool) if sampled is None else np.isnan(sampled)


def example_of(
    trajectory: Trajectory,
    columns: Mapping[Signal, FloatArray],
    *,
    group: int = 0,
    group_solved: float = 0.0,
    role: str | None = None,
) -> Example:
    """The learner's view of a trajectory.

    `columns` are over all its trained tokens; with a `role`, only the tokens that this role is trained on are kept. A
    first token cannot be trained, since no token precedes it.
    """
    positions = trajectory.trained_positions
    assert len(positions) == 0 or positions[0] > 0, "the first token of a sequence has no token before it"
    trained = [s for s in trajectory.segments if s.trained]
    turn_T = np.repeat([s.turn for s in trained], [len(s) for s in trained]).astype(np.int64)
    kept = np.repeat([role in (None, s.learner) for s in trained], [len(s) for s in trained]).astype(bool)
    return Example(
        token_ids=trajectory.token_ids,
        positions=positions[kept],
        columns={signal: column[kept] for signal, column in columns.items()},
        turn_T=turn_T[kept],
        vectors=trajectory.vectors,
        allowed=_allowed_of(trajectory, kept),
        group=group,
        reward=trajectory.score.value if trajectory.score is not None else 0.0,
        solved=trajectory.solved,
        group_solved=group_solved,
    )


def _allowed_of(trajectory: Trajectory, kept_T: NDArray[np.bool_]) -> tuple[IntArray, IntArray] | None:
    """`Example.allowed` of those trained tokens that are kept."""
    trained = [s for s in trajectory.segments if s.trained]
    if all(s.allowed is None for s in trained):
        return None
    begins = np.cumsum([0, *map(len, trained)])
    own = [(s.allowed, len(s), begin) for s, begin in zip(trained, begins, strict=False) if s.allowed is not None]
    ids_M = np.concatenate([allowed[length:] for allowed, length, _ in own])
    place_M = np.concatenate([np.repeat(np.arange(length), allowed[:length]) + begin for allowed, length, begin in own])
    kept_M = kept_T[place_M]
    return ids_M[kept_M], (kept_T.cumsum() - 1)[place_M[kept_M]]


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """Some examples of an optimizer step, packed, on the policy's device."""

    packed: Packed
    positions_T: Tensor
    """int64 [T] indices into the packed tokens."""
    columns: Mapping[Signal, Tensor]
    """[T] float32 each."""
    sequence_T: Tensor
    turn_T: Tensor
    group_N: Tensor
    length_N: Tensor
    reward_N: Tensor
    solved_N: Tensor
    group_solved_N: Tensor
    weight_T: Tensor = field(repr=False)
    """[T] weight of each token's loss in the optimizer step, from the reducer."""


def split_evenly(order: Sequence[int], parts: int) -> list[list[int]]:
    """Split a sequence into `parts` runs whose sizes differ by at most one; empty runs are dropped."""
    return [list(part) for part in np.array_split(np.asarray(order, np.int64), parts) if len(part)]


def plan_micro_batches(
    examples: Sequence[Example], max_tokens: int, *, whole_groups: bool = False, share: bool = False
) -> list[list[int]]:
    """Indices of each micro-batch: at most `max_tokens` tokens in one, unless a single unit has more.

    Units of `units_of` are not split. Where prompts are shared, examples of a group are adjacent, and their common
    prefix counts once. Otherwise examples are sorted by length (attention may pad to the longest).
    """
    groups = [e.group for e in examples]
    units = units_of(groups, whole_groups=whole_groups)
    begins = {group: shared_begin([examples[i] for i in own]) for group, own in _by_group(groups).items() if share}
    sizes = [sum(len(examples[i].token_ids) - begins.get(groups[i], 0) for i in unit) for unit in units]
    first_seen = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    batches: list[list[int]] = []
    total, begun = 0, None
    for u in sorted(range(len(units)), key=lambda u: (first_seen[groups[units[u][0]]] if share else sizes[u], u)):
        group = groups[units[u][0]]
        begin = begins.get(group, 0)
        more = sizes[u] + (begin if group != begun else 0)
        if not batches or total + more > max_tokens:
            batches.append([])
            total, more = 0, sizes[u] + begin
        batches[-1] += units[u]
        total, begun = total + more, group
    return batches


def shared_begin(examples: Sequence[Example]) -> int:
    """Length of the examples' common untrained prefix; 0 if it is too short to share."""
    if len(examples) < 2:
        return 0
    first = examples[0]
    common = min(int(e.positions[0]) if e.num_trained else len(e.token_ids) for e in examples)
    for other in examples[1:]:
        differs = first.token_ids[:common] != other.token_ids[:common]
        if (first.vectors is None) != (other.vectors is None):
            return 0
        if first.vectors is not None and other.vectors is not None:
            differs |= (first.vectors[:common] != other.vectors[:common]).any(1)
        common = int(differs.argmax()) if differs.any() else common
    return common if common >= MIN_SHARED else 0


def _by_group(groups: Sequence[int]) -> dict[int, list[int]]:
    """Indices of each group's examples, in the order in which the groups are first seen."""
    members: dict[int, list[int]] = {}
    for i, group in enumerate(groups):
        members.setdefault(group, []).append(i)
    return members


def units_of(groups: Sequence[int], *, whole_groups: bool) -> list[list[int]]:
    """Indices of examples that must stay together, in order: those of each group, or every example by itself."""
    return list(_by_group(groups).values()) if whole_groups else [[i] for i in range(len(groups))]


def pack(
    examples: Sequence[Example],
    weight_N: FloatArray,
    device: torch.device,
    *,
    demonstrated_N: FloatArray | None = None,
    share: bool = False,
) -> MicroBatch:
    """Lay examples end to end; `weight_N` is the reducer's weight of each one's tokens.

    `demonstrated_N` is that of its demonstrated tokens, where they have another. With `share`, the common prefix of a
    group's examples is packed once (`Packed.after`).
    """
    packed, moved_N = _packed(examples, device, share=share)
    trained = np.array([e.num_trained for e in examples], np.int64)
    packed = replace(packed, allowed=_allowed(examples, trained, device))
    sequence_T = np.repeat(np.arange(len(examples)), trained)
    known = sorted(set[Signal]().union(*(e.columns for e in examples)))
    weight_T = np.repeat(weight_N, trained)
    if demonstrated_N is not None:
        demonstrated_T = np.concatenate([e.demonstrated_T for e in examples])
        weight_T = np.where(demonstrated_T, np.repeat(demonstrated_N, trained), weight_T)

    def tensor(array: object, dtype: torch.dtype) -> Tensor:
        return torch.as_tensor(np.asarray(array), dtype=dtype).to(device)

    def joined(parts: Sequence[IntArray | FloatArray], dtype: torch.dtype) -> Tensor:
        return tensor(np.concatenate(parts), dtype)

    return MicroBatch(
        packed=packed,
        positions_T=joined([e.positions + by for e, by in zip(examples, moved_N, strict=True)], torch.int64),
        columns={signal: joined([e.columns[signal] for e in examples], torch.float32) for signal in known},
        sequence_T=tensor(sequence_T, torch.int64),
        turn_T=joined([e.turn_T for e in examples], torch.int64),
        group_N=tensor([e.group for e in examples], torch.int64),
        length_N=tensor(trained, torch.int64),
        reward_N=tensor([e.reward for e in examples], torch.float32),
        solved_N=tensor([e.solved for e in examples], torch.float32),
        group_solved_N=tensor([e.group_solved for e in examples], torch.float32),
        weight_T=tensor(weight_T, torch.float32),
    )


def _packed(examples: Sequence[Example], device: torch.device, *, share: bool) -> tuple[Packed, list[int]]:
    """The examples' tokens end to end, and the offset of each example's tokens."""
    members = _by_group([e.group for e in examples]) if share else {}
    begins = {group: shared_begin([examples[i] for i in own]) for group, own in members.items()}
    pieces: list[tuple[Example, slice]] = []
    after: list[int] = []
    moved_N: list[int] = []
    placed: dict[int, int] = {}
    total = 0
    for example in examples:
        begin = begins.get(example.group, 0)
        if begin and example.group not in placed:
            placed[example.group] = len(pieces)
            pieces.append((example, slice(begin)))
            after.append(-1)
            total += begin
        pieces.append((example, slice(begin, None)))
        after.append(placed.get(example.group, -1))
        moved_N.append(total - begin)
        total += len(example.token_ids) - begin
    ids = [example.token_ids[part] for example, part in pieces]
    packed = Packed(
        token_ids_L=torch.as_tensor(np.concatenate(ids), dtype=torch.int64).to(device),
        starts=(0, *accumulate(len(part) for part in ids)),
        vectors_LD=_vectors(pieces, device),
        after=tuple(after) if placed else None,
    )
    return packed, moved_N


def _allowed(examples: Sequence[Example], trained_N: IntArray, device: torch.device) -> tuple[Tensor, Tensor] | None:
    """`Packed.allowed` of the examples."""
    before_N = trained_N.cumsum() - trained_N
    own = [(e.allowed, int(b)) for e, b in zip(examples, before_N, strict=True) if e.allowed is not None]
    if not own:
        return None
    parts = [np.concatenate([ids for (ids, _), _ in own]), np.concatenate([place + b for (_, place), b in own])]
    ids_M, place_M = (torch.as_tensor(part, dtype=torch.int64).to(device) for part in parts)
    return ids_M, place_M


def _vectors(pieces: Sequence[tuple[Example, slice]], device: torch.device) -> Tensor | None:
    """[L, D] the vectors of packed tokens, zeros for those that have none; None where no example has any."""
    widths = {e.vectors.shape[1] for e, _ in pieces if e.vectors is not None}
    if not widths:
        return None
    assert len(widths) == 1, "the vectors of a batch all have the width that its model takes"
    parts = [
        np.zeros((len(e.token_ids[part]), *widths), np.float32) if e.vectors is None else e.vectors[part]
        for e, part in pieces
    ]
    return torch.as_tensor(np.concatenate(parts), dtype=torch.float32).to(device)


def tokens_of(batch: MicroBatch, signals: Mapping[Signal, Tensor], progress: float) -> Tokens:
    """The input of objectives: a micro-batch's columns with the signals of a forward pass."""
    known = {**batch.columns, **signals}
    empty = torch.full_like(batch.weight_T, float("nan"))
    return Tokens(
        logp_T=known.pop(LOGP, empty),
        behavior_logp_T=known.pop(BEHAVIOR_LOGP, empty),
        old_logp_T=known.pop(OLD_LOGP, empty),
        advantage_T=known.pop(ADVANTAGE, torch.zeros_like(batch.weight_T)),
        value_target_T=known.pop(VALUE_TARGET, None),
        signals=known,
        sequence_T=batch.sequence_T,
        turn_T=batch.turn_T,
        group_N=batch.group_N,
        length_N=batch.length_N,
        reward_N=batch.reward_N,
        solved_N=batch.solved_N,
        group_solved_N=batch.group_solved_N,
        progress=progress,
    )
