"""Rollouts for review: those that are likely to show a fault of the task, the grader or the policy."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a rollout should be reviewed."""

    label: str
    why: str
    """What it may show."""
    condition: str
    """SQL; ``{everything}`` stands for all rollouts of the steps in question."""
    order: str
    """A key of `posttrain.viewer.search.ORDERS`."""


REASONS: Mapping[str, Reason] = {
    "unscored": Reason(
        label="not scored",
        why="The grader failed or gave no verdict: nothing was learned from these.",
        condition="(score_status = 'error' OR score_status IS NULL AND stage IN "
        "(SELECT DISTINCT stage FROM {everything} WHERE score_status IS NOT NULL))",
        order="newest",
    ),
    "truncated": Reason(
        label="cut at the limit",
        why="Was the answer on its way, or did the model not stop?",
        condition="stop_reason = 'length'",
        order="newest",
    ),
    "unlikely": Reason(
        label="highest reward at lowest probability",
        why="New and right, or rewarded for the wrong reason: where reward hacking begins.",
        condition="score_status = 'ok' AND mean_logp IS NOT NULL",
        order="unlikely",
    ),
    "likely": Reason(
        label="wrong although likely",
        why="The policy is sure of these: a wrong reference answer, a strict grader, or a habit.",
        condition="score_status = 'wrong' AND mean_logp IS NOT NULL",
        order="likely",
    ),
    "disagreement": Reason(
        label="same answer, different scores",
        why="The grader disagrees with itself on one task.",
        condition="(task_key, completion) IN (SELECT (task_key, completion) FROM {everything} WHERE reward IS NOT NULL "
        "AND NOT isnan(reward) GROUP BY task_key, completion HAVING min(reward) < max(reward))",
        order="together",
    ),
}
"""By name."""
NOTED = "noted"
"""The reason of rollouts that have a label or a note of one's own."""
