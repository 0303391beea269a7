"""The audit with which a stage of reinforcement begins, where a model decides the reward."""

from typing import Annotated, Final

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward

Share = Annotated[float, Field(ge=0.0, le=1.0)]
KIND: Final = "audited"
"""The reward that audits another one."""


@frozen
class RewardAudit:
    """Which texts may outrank right answers, and how often (`posttrain.components.rewards.audited`)."""

    most_fooled: Share = 0.05
    """Largest share of right answers that a key may outrank; 1 measures, and stops nothing."""
    pairs: Annotated[int, Field(ge=1, le=100_000)] = 16
    """Right answers that each key is compared with."""
    every: Annotated[int, Field(ge=0, le=1_000_000)] = 10
    """Steps between audits by the policy's own outputs; 0 has none."""
    frequent: Annotated[int, Field(ge=1, le=256)] = 20
    """Outputs of such an audit."""
    keys: Annotated[tuple[str, ...], Field(max_length=256)] | None = None
    """Texts without content; None takes marks, openers, forged verdicts and praise."""


MEASURED: Final = RewardAudit(most_fooled=1.0)
"""An audit that stops nothing: for toy rewards that are known to be fooled."""


def audited(reward: Reward, audit: RewardAudit | None) -> Reward:
    """The reward, audited where it uses a model and does not do so by itself."""
    if audit is None or not reward.uses_models or _audits(reward):
        return reward
    given = {name: value for name, value in vars(audit).items() if value is not None}
    return Reward.find(KIND)(of=reward, path="audit", **given)  # type: ignore[call-arg]


def _audits(reward: Reward) -> bool:
    return reward.kind == KIND or any(map(_audits, reward.wrapped.values()))
