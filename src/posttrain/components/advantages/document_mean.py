"""Each reward against those of the same document's rollouts, in units of their standard deviation.

Source: ERank, arXiv:2509.00520: GRPO, with the rollouts of a document as a group. A group here has all documents of a
query, which its reward compares (`rollouts/pointwise`, `rewards/list_metric`). With r of the rollouts of one document,

    A = (r - mean) / (std + 1e-6)      std with the unbiased variance; 0 where it is 0

A rollout without a document is compared with the others of its group that have none.
"""

import numpy as np

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import centered, group_std, per_token
from posttrain.components.rollouts import Pointwise
from posttrain.types import Batch, Credit

SMALLEST = 1e-6
"""Added to the standard deviation, in units of reward."""


@frozen
class DocumentMean(Advantage):
    """Compares the rollouts of a document with each other."""

    @property
    def is_relative(self) -> bool:
        """True."""
        return True

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Metrics: the share of rollouts without a score, and the mean score of the others."""
        facts = [trajectory.fact(Pointwise) for trajectory in batch.trajectories]
        names: dict[tuple[int, int], int] = {}
        owners = [-1 if fact is None else fact.document for fact in facts]
        pairs = zip(batch.group_N.tolist(), owners, strict=True)
        document_N = np.array([names.setdefault(pair, len(names)) for pair in pairs], np.int64)
        return_N = batch.return_N
        std_N = group_std(return_N, document_N)
        advantage_N = np.where(std_N > 0, centered(return_N, document_N) / (std_N + SMALLEST), 0.0)
        stated = [fact.stated for fact in facts if fact is not None and fact.stated is not None]
        metrics = {}
        if any(fact is not None for fact in facts):
            metrics["no_score"] = 1.0 - len(stated) / sum(fact is not None for fact in facts)
        if stated:
            metrics |= {"stated": float(np.mean(stated)), "stated_std": float(np.std(stated))}
        return state, Credit(advantages=per_token(advantage_N, batch), metrics=metrics)
