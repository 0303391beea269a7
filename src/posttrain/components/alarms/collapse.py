"""The policy collapses within its first steps: most often, the learning rate is far too high for the model.

Such a run loses in five steps what the model could do, long before a moving average shows it. A measured case: an
instruction model of 135 million weights, GRPO with a learning rate of 1e-4, 50 times the usual one. Entropy fell from
2.39 to 0.18 nats in three steps, and held-out accuracy from 90 % to 19 % in fourteen.

Three signs, each compared with the start of the stage: entropy at a tenth of that of the first step, before an update,
while the reward has not risen; held-out accuracy below the lower end of the first evaluation's interval, and its own
interval below the first accuracy; a KL divergence from a reference role that has grown by more than a bound.

A model that learns may also lose entropy fast, as it stops guessing. Its reward rises, and it is not a collapse.
"""

from typing import Annotated, Any

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.alarms import Action, Alarm, Readings, State

Share = Annotated[float, Field(gt=0.0, lt=1.0)]
REMEDY = (
    "The usual cause is a learning rate that is too high for the model; lr=auto takes the usual one. With "
    "alarms.collapse.action=stop or roll_back the run does not go on like this"
)


@frozen
class Collapse(Alarm):
    """Entropy, held-out accuracy or the distance from a reference, against the start of the stage."""

    action: Action = "note"
    """What the run does when it is raised. ``roll_back`` draws other rollouts but keeps the learning rate, so that
    ``stop`` is the better choice where nobody watches."""
    entropy_share: Share = 0.1
    """Share of the first step's entropy, in (0, 1)."""
    patience: PositiveInt = 2
    """Consecutive steps below it that raise it."""
    kl_bound: Annotated[float, Field(gt=0.0)] = 3.0
    """Nats per token by which the divergence from a reference role has grown since the first step."""
    solved: Share = 0.9
    """No alarm by entropy where at least this share of the rollouts is correct."""

    def start(self) -> State:
        """State before the first step."""
        return {"entropy": None, "reward": None, "low": 0, "accuracy": None, "kl": {}}

    def check(self, state: State, readings: Readings) -> tuple[State, str | None]:
        """Compare each sign with the start."""
        new = {**state, "kl": dict(state["kl"])}
        found = [self._entropy(new, readings), self._accuracy(new, readings), self._divergence(new, readings)]
        signs = [sign for sign in found if sign]
        return new, f"{'; '.join(signs)}. {REMEDY}" if signs else None

    def _entropy(self, state: dict[str, Any], readings: Readings) -> str | None:
        """The sign of the entropy; changes the state."""
        entropy, reward = readings.metrics.get("entropy"), readings.metrics.get("reward", 0.0)
        if entropy is None:
            return None
        first, before = state["entropy"], state["reward"]
        if first is None:
            state |= {"entropy": entropy, "reward": reward}
            return None
        discrete = min(first, entropy) >= 0.0  # the entropy of a density has no lower bound of 0
        learned = reward > before or readings.metrics.get("solved", 0.0) >= self.solved
        low = state["low"] + 1 if discrete and not learned and entropy <= self.entropy_share * first else 0
        state["low"] = low
        if low < self.patience:
            return None
        return (
            f"entropy has fallen to {entropy:.2g} nats per token from {first:.2g} in the first step, and the reward to "
            f"{reward:.3g} from {before:.3g}"
        )

    def _accuracy(self, state: dict[str, Any], readings: Readings) -> str | None:
        """The sign of the newest evaluation against the last one before the stage; changes the state."""
        scored = [e for e in readings.evaluations if e.get("accuracy") is not None]
        if state["accuracy"] is None:
            earlier = [e for e in scored if e.get("step", 0) < readings.step]
            if not earlier:
                return None
            state["accuracy"] = [earlier[-1]["accuracy"], earlier[-1]["accuracy_interval"][0]]
        (first, low), last = state["accuracy"], scored[-1]
        if last["accuracy"] < low and last["accuracy_interval"][1] < first:
            return f"held-out accuracy is {100 * last['accuracy']:.1f} % after {100 * first:.1f} %"
        return None

    def _divergence(self, state: dict[str, Any], readings: Readings) -> str | None:
        """The sign of the divergence from a reference; changes the state."""
        for name, value in readings.metrics.items():
            if not name.startswith("kl/"):
                continue
            first = state["kl"].setdefault(name, value)
            if value - first >= self.kl_bound:
                role = name.removeprefix("kl/")
                return f"the policy is {value:.2g} nats per token away from the role '{role}', after {first:.2g}"
        return None
