"""The sampler and the learner disagree on the log-probabilities of the sampled tokens.

Learning that seems on-policy is then off-policy: a widely reported cause of collapse where sampling and training use
different kernels or number types (Yao et al. 2025, https://fengyao.notion.site/off-policy-rl). The native engine
samples with the learner's own forward pass: its gap is rounding, 1e-5 in float32. Elsewhere `correction` weighs the
tokens, and `old_logp: recomputed` keeps ratios honest.
"""

from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State
from posttrain.components.alarms._curves import persistent


@frozen
class SamplerGap(Alarm):
    """Mean difference of the log-probabilities, before the first update of a step."""

    action: Action = "note"
    """What the run does when it is raised."""
    bound: Annotated[float, Field(gt=0.0)] = 0.02
    """Nats per token."""
    patience: PositiveInt = 3
    """Consecutive steps beyond the bound that raise it."""

    def start(self) -> State:
        """State before the first step."""
        return {"count": 0}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare with the bound."""
        value = readings.metrics.get("sampler_gap")
        if value is None:
            return state, None
        count, fired = persistent(state["count"], value >= self.bound, self.patience)
        message = (
            f"sampler and learner differ by {value:.3g} nats per token: learning is off-policy. Use a correction, "
            "old_logp=recomputed, or float32"
        )
        return {"count": count}, message if fired else None
