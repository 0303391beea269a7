"""The sampler and the learner disagree on how likely the sampled tokens were.

Then what looks like on-policy learning is not: a widely reported cause of collapse where sampling and training run on
different kernels or numbers (Yao et al. 2025, https://fengyao.notion.site/off-policy-rl). The native engine samples
with the learner's own forward pass: its gap is rounding, 1e-5 in float32. Elsewhere `correction` weighs the tokens,
and `old_logp: recomputed` keeps ratios honest.
"""

from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State
from posttrain.components.alarms._courses import persistent


@frozen
class SamplerGap(Alarm):
    """Mean distance of the log-probabilities, before the first update of a step."""

    action: Action = "note"
    """What the run does when it is raised."""
    bound: Annotated[float, Field(gt=0.0)] = 0.02
    """Nats a token."""
    patience: PositiveInt = 3
    """Steps in a row that it takes."""

    def start(self) -> State:
        """Nothing seen."""
        return {"count": 0}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare with the bound."""
        value = readings.metrics.get("sampler_gap")
        if value is None:
            return state, None
        count, fired = persistent(state["count"], value >= self.bound, self.patience)
        said = (
            f"sampler and learner differ by {value:.3g} nats a token: learning is off-policy. Use a correction, "
            "old_logp=recomputed, or float32"
        )
        return {"count": count}, said if fired else None
