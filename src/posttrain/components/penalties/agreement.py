"""A partial reward by agreement: a wrong answer gets more reward where its rollout resembles the demonstration.

Source: the partial reward of CARFT, arXiv:2508.15868, and of its released code (v11): an answer that was found but is
wrong, rewarded with 0.1 in ReFT, gets 0.2 + 0.1 cos(z_shown, z), with the embeddings of the demonstration and of the
rollout when it was sampled: sum_t softmax(v)_t e_t over the tokens, with e and v of the policy's projection.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from posttrain.component import frozen
from posttrain.components.penalties import Penalty
from posttrain.signals import OLD_EMBEDDING, OLD_SCORE, SHOWN, Signal
from posttrain.types import FloatArray, Trajectory


@frozen
class Agreement(Penalty):
    """Replaces the score of wrong answers by middle + span times a cosine."""

    needs: ClassVar[frozenset[Signal]] = frozenset({OLD_EMBEDDING, OLD_SCORE, SHOWN})

    middle: float = 0.2
    """Reward of a wrong answer whose rollout is orthogonal to the demonstration (0.2 in the release)."""
    span: float = 0.1
    """What a cosine of 1 adds to it (0.1)."""

    def in_reward(self, trajectory: Trajectory, signals: Mapping[Signal, FloatArray]) -> FloatArray | None:
        """[T] what is added at the last token: 0 for correct rollouts, for those without an answer, and without a
        demonstration.
        """
        embedding_TE, score_T, shown_TE = (signals[need] for need in (OLD_EMBEDDING, OLD_SCORE, SHOWN))
        added_T = np.zeros(trajectory.num_trained, np.float32)
        score = trajectory.score
        partial = score is not None and score.status == "wrong" and score.answer is not None
        if score is None or not partial or not len(added_T) or np.isnan(shown_TE[0]).any():
            return added_T
        weight_T = np.exp(score_T.astype(np.float64) - score_T.max())
        own_E = weight_T @ embedding_TE.astype(np.float64)
        size = float(np.linalg.norm(own_E) * np.linalg.norm(shown_TE[0]))
        cosine = float(own_E @ shown_TE[0]) / size if size > 0 else 0.0
        added_T[-1] = self.middle + self.span * cosine - score.value
        return added_T
