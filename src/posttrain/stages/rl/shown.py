"""Signals of the demonstrations of the tasks of rollouts: what losses of embeddings compare rollouts with.

Source: CARFT, arXiv:2508.15868, and its released code. The embedding of a text is sum_t softmax(v)_t e_t over its
tokens, with the embedding e and the value v of the state after each. A tenth of a demonstration's tokens, drawn, is
left out of its embedding. What a demonstration and a rollout have in common is their longest common subsequence of
tokens.

Differs: the release looks for common tokens in the prompts too, where all are.
"""

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from posttrain.signals import EMBEDDING, IN_SHOWN, SCORE, SHOWN, SHOWN_ONLY, Signal
from posttrain.stages.sft import demonstration
from posttrain.types import FloatArray, IntArray, Trajectory

if TYPE_CHECKING:
    from posttrain.policies import Policy

LEFT_OUT: Final = 0.1
"""Share of a demonstration's tokens that is not in its embedding."""


def shown_signals(
    trajectories: Sequence[Trajectory], needs: frozenset[Signal], policy: "Policy", max_tokens: int
) -> dict[Signal, tuple[FloatArray, ...]]:
    """The needed signals of demonstrations, for every rollout in the shape of its own: one row per trained token."""
    wanted = frozenset(need for need in needs if need.shows)
    if not wanted:
        return {}
    from posttrain.training.learner import evaluate_examples
    from posttrain.training.packing import example_of

    tasks = {t.task.key: t.task for t in trajectories if t.task.demonstrations}
    shown = {key: demonstration(policy, task, task.demonstrations[0]) for key, task in tasks.items()}
    examples = [example_of(trajectory, {}) for trajectory in shown.values()]
    values = evaluate_examples(policy, examples, frozenset({EMBEDDING, SCORE}), max_tokens=max_tokens)
    known = {key: (ids_of(t), own) for (key, t), own in zip(shown.items(), values, strict=True)}
    width = next((own[EMBEDDING].shape[1] for own in values), 1)
    rows = [_of_rollout(t, known.get(t.task.key), wanted, width) for t in trajectories]
    return {need: tuple(row[need] for row in rows) for need in sorted(wanted)}


def _of_rollout(
    trajectory: Trajectory,
    shown: tuple[IntArray, dict[Signal, FloatArray]] | None,
    wanted: frozenset[Signal],
    width: int,
) -> dict[Signal, FloatArray]:
    """The signals of one rollout; NaN without a demonstration."""
    count = trajectory.num_trained
    if shown is None:
        nothing = np.full((count, width), np.nan, np.float32)
        return {SHOWN: nothing, SHOWN_ONLY: nothing, IN_SHOWN: nothing[:, 0]}
    ids, own = shown
    mine = ids_of(trajectory)
    draw = np.random.default_rng([zlib.crc32(mine.tobytes()), zlib.crc32(ids.tobytes())])
    kept_S = draw.random(len(ids)) >= LEFT_OUT
    in_shown_T, in_rollout_S = np.zeros(count, bool), np.zeros(len(ids), bool)
    if wanted & {SHOWN_ONLY, IN_SHOWN}:
        in_shown_T, in_rollout_S = common_tokens(mine, ids)
    return {
        SHOWN: np.tile(pooled(own[EMBEDDING], own[SCORE], kept_S if kept_S.any() else ~kept_S), (count, 1)),
        SHOWN_ONLY: np.tile(pooled(own[EMBEDDING], own[SCORE], ~in_rollout_S), (count, 1)),
        IN_SHOWN: in_shown_T.astype(np.float32),
    }


def ids_of(trajectory: Trajectory) -> IntArray:
    """[T] ids of the trained tokens."""
    return trajectory.token_ids[trajectory.trained_positions]


def pooled(embedding_TE: FloatArray, score_T: FloatArray, kept_T: NDArray[np.bool_]) -> FloatArray:
    """[E] mean of the embeddings of the tokens that are kept, weighted by the softmax of their scores; NaN of none."""
    if not kept_T.any():
        return np.full(embedding_TE.shape[1], np.nan, np.float32)
    score = score_T[kept_T].astype(np.float64)
    weight = np.exp(score - score.max())
    return np.asarray((weight / weight.sum()) @ embedding_TE[kept_T], np.float32)


def common_tokens(a: IntArray, b: IntArray) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which tokens of each are in their longest common subsequence."""
    longest = np.zeros((len(a) + 1, len(b) + 1), np.int64)
    for i, token in enumerate(a):
        longest[i + 1, 1:] = np.maximum.accumulate(np.maximum(longest[i, 1:], longest[i, :-1] + (b == token)))
    in_a, in_b = np.zeros(len(a), bool), np.zeros(len(b), bool)
    i, j = len(a), len(b)
    while i and j:
        if a[i - 1] == b[j - 1]:
            i, j = i - 1, j - 1
            in_a[i] = in_b[j] = True
        elif longest[i - 1, j] > longest[i, j - 1]:
            i -= 1
        else:
            j -= 1
    return in_a, in_b
