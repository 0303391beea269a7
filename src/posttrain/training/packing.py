"""From trajectories with credit to micro-batches: sequences laid end to end, and flat arrays over trained tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from posttrain.policies import Packed
from posttrain.types import FloatArray, IntArray, Tokens, Trajectory


@dataclass(frozen=True, kw_only=True)
class Example:
    """One trajectory as the learner needs it. Columns are [T] arrays over its trained tokens."""

    token_ids: IntArray
    """[L] every token."""
    positions: IntArray
    """[T] which of them are trained."""
    columns: Mapping[str, FloatArray]
    """``behavior_logp``, ``old_logp``, ``advantage``; where asked for, ``<role>_logp``, ``value``, ``value_target``."""
    turn_T: IntArray
    vectors: FloatArray | None = None
    """[L, D] the vector of every token, where tokens have one (`Segment.vectors`)."""
    group: int = 0
    reward: float = 0.0
    solved: bool = False
    """Whether it was judged right."""
    group_solved: float = 0.0
    """Share of its group's attempts that were."""

    @property
    def num_trained(self) -> int:
        """Number of trained tokens."""
        return len(self.positions)


def example_of(
    trajectory: Trajectory,
    columns: Mapping[str, FloatArray],
    *,
    group: int = 0,
    group_solved: float = 0.0,
    role: str | None = None,
) -> Example:
    """The learner's view of a trajectory.

    `columns` are over all its trained tokens; with a `role`, only the tokens that this role learns from are kept. A
    first token cannot be trained, since nothing precedes it.
    """
    positions = trajectory.trained_positions
    assert len(positions) == 0 or positions[0] > 0, "the first token of a sequence has nothing before it to learn from"
    trained = [s for s in trajectory.segments if s.trained]
    turn_T = np.repeat([s.turn for s in trained], [len(s) for s in trained]).astype(np.int64)
    kept = np.repeat([role in (None, s.learner) for s in trained], [len(s) for s in trained]).astype(bool)
    return Example(
        token_ids=trajectory.token_ids,
        positions=positions[kept],
        columns={name: column[kept] for name, column in columns.items()},
        turn_T=turn_T[kept],
        vectors=trajectory.vectors,
        group=group,
        reward=trajectory.score.value if trajectory.score is not None else 0.0,
        solved=trajectory.solved,
        group_solved=group_solved,
    )


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """Some examples of an optimizer step, packed, on the policy's device."""

    packed: Packed
    positions_T: Tensor
    """int64 [T] indices into the packed tokens."""
    columns: Mapping[str, Tensor]
    """[T] float32 each."""
    sequence_T: Tensor
    turn_T: Tensor
    group_N: Tensor
    length_N: Tensor
    reward_N: Tensor
    solved_N: Tensor
    group_solved_N: Tensor
    weight_T: Tensor = field(repr=False)
    """[T] what the reducer makes each token's loss count in the optimizer step."""


def split_evenly(order: Sequence[int], parts: int) -> list[list[int]]:
    """Cut a sequence into `parts` runs whose sizes differ by at most one; empty runs are left out."""
    return [list(part) for part in np.array_split(np.asarray(order, np.int64), parts) if len(part)]


def plan_micro_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Indices of each micro-batch: neighbours in length together (attention pads to the longest), at most `max_tokens`
    tokens in one unless a single sequence is longer.
    """
    batches: list[list[int]] = []
    total = 0
    for index in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if not batches or total + lengths[index] > max_tokens:
            batches.append([])
            total = 0
        batches[-1].append(index)
        total += lengths[index]
    return batches


def units_of(groups: Sequence[int], *, whole_groups: bool) -> list[list[int]]:
    """Indices of examples that must stay together, in order: those of each group, or every example by itself."""
    if not whole_groups:
        return [[i] for i in range(len(groups))]
    units: dict[int, list[int]] = {}
    for i, group in enumerate(groups):
        units.setdefault(group, []).append(i)
    return list(units.values())


def pack(examples: Sequence[Example], weight_N: FloatArray, device: torch.device) -> MicroBatch:
    """Lay examples end to end; `weight_N` is the reducer's weight of each one's tokens."""
    lengths = np.array([len(e.token_ids) for e in examples], np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    trained = np.array([e.num_trained for e in examples], np.int64)
    sequence_T = np.repeat(np.arange(len(examples)), trained)
    names = sorted(set().union(*(e.columns for e in examples)))

    def tensor(array: object, dtype: torch.dtype) -> Tensor:
        return torch.as_tensor(np.asarray(array), dtype=dtype).to(device)

    def joined(parts: Sequence[IntArray | FloatArray], dtype: torch.dtype) -> Tensor:
        return tensor(np.concatenate(parts), dtype)

    return MicroBatch(
        packed=Packed(
            token_ids_L=joined([e.token_ids for e in examples], torch.int64),
            starts=tuple(int(s) for s in starts),
            vectors_LD=_vectors(examples, device),
        ),
        positions_T=joined([e.positions + s for e, s in zip(examples, starts, strict=False)], torch.int64),
        columns={name: joined([e.columns[name] for e in examples], torch.float32) for name in names},
        sequence_T=tensor(sequence_T, torch.int64),
        turn_T=joined([e.turn_T for e in examples], torch.int64),
        group_N=tensor([e.group for e in examples], torch.int64),
        length_N=tensor(trained, torch.int64),
        reward_N=tensor([e.reward for e in examples], torch.float32),
        solved_N=tensor([e.solved for e in examples], torch.float32),
        group_solved_N=tensor([e.group_solved for e in examples], torch.float32),
        weight_T=tensor(np.repeat(weight_N, trained), torch.float32),
    )


def _vectors(examples: Sequence[Example], device: torch.device) -> Tensor | None:
    """[L, D] the vectors of packed examples, zeros for those that have none; None where no example has any."""
    widths = {e.vectors.shape[1] for e in examples if e.vectors is not None}
    if not widths:
        return None
    assert len(widths) == 1, "the vectors of a batch all have the width that its model takes"
    empty = (max(widths),)
    parts = [np.zeros((len(e.token_ids), *empty), np.float32) if e.vectors is None else e.vectors for e in examples]
    return torch.as_tensor(np.concatenate(parts), dtype=torch.float32).to(device)


def tokens_of(batch: MicroBatch, signals: Mapping[str, Tensor], progress: float) -> Tokens:
    """What objectives see: a micro-batch's columns joined with the signals of a forward pass."""
    columns = batch.columns
    empty = torch.full_like(batch.weight_T, float("nan"))
    references = {name.removesuffix("_logp"): c for name, c in columns.items() if name.endswith("_logp")}
    behavior, old = columns.get("behavior_logp", empty), columns.get("old_logp", empty)
    return Tokens(
        logp_T=signals.get("logp", empty),
        entropy_T=signals.get("entropy"),
        value_T=signals.get("value"),
        score_T=signals.get("score"),
        behavior_logp_T=behavior,
        old_logp_T=old,
        advantage_T=columns.get("advantage", torch.zeros_like(batch.weight_T)),
        reference_logp_T={role: c for role, c in references.items() if role not in ("behavior", "old")},
        noise_T=signals.get("noise"),
        velocity_TD=signals.get("velocity"),
        reference_velocity_TD={
            name.removesuffix("_velocity"): c for name, c in columns.items() if name.endswith("_velocity")
        },
        old_value_T=columns.get("value"),
        value_target_T=columns.get("value_target"),
        sequence_T=batch.sequence_T,
        turn_T=batch.turn_T,
        group_N=batch.group_N,
        length_N=batch.length_N,
        reward_N=batch.reward_N,
        solved_N=batch.solved_N,
        group_solved_N=batch.group_solved_N,
        progress=progress,
    )
