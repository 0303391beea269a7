"""The audit with which a stage of reinforcement begins, where a model decides the reward."""

from typing import Final

from posttrain.components.rewards import Reward, RewardAudit

KIND: Final = "audited"
"""The reward that audits another one."""
MEASURED: Final = RewardAudit(most_fooled=1.0)
"""An audit that stops nothing: for toy rewards that are known to be fooled."""


def audited(reward: Reward, audit: RewardAudit | None) -> Reward:
    """The reward, audited where it uses a model and does not do so by itself."""
    if audit is None or not reward.uses_models or _audits(reward):
        return reward
    return Reward.find(KIND)(of=reward, audit=audit, path="audit")  # type: ignore[call-arg]


def _audits(reward: Reward) -> bool:
    return reward.kind == KIND or any(map(_audits, reward.wrapped.values()))
