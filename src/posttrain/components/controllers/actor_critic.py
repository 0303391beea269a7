"""Actor-critic: soft actor-critic that learns bounds and noise during the training that it steers.

Source: Khadangi et al. 2025, arXiv:2507.22565 (RLDP), and soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905).
An action is a log-scale for the bound of every group and one for the noise multiplier, each within a limit. The state
is the released share of records within each bound, the released loss and its change, the share of the budget that is
spent, and the present log-scales. The reward of an interval is the fall of the loss less `price` times the share of the
budget that it cost. After every interval there are two updates with batches of four.

Differs: the released code could not be opened. State and reward are of the form that summaries give, and everything in
them is released with noise and counted in the ledger. Networks are small, as an interval is one sample.
"""

import math
from typing import Any

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.controllers import Controller, Knobs, Measured, State


@frozen
class ActorCritic(Controller):
    """Soft actor-critic over log-scales of the recipe's settings."""

    every: PositiveInt = 10
    """Steps of an interval; the paper's 112 are of a longer training."""
    clip_reach: PositiveFloat = 1.0
    """Largest absolute log-scale of a bound, relative to the recipe's."""
    noise_reach: NonNegativeFloat = 0.2
    """Largest absolute log-scale of the noise multiplier."""
    price: NonNegativeFloat = 1.0
    """Reward that the whole budget costs, in nats of loss."""
    batch: PositiveInt = 4
    """Intervals in an update."""
    updates: PositiveInt = 2
    """Updates after each interval."""
    lr: PositiveFloat = 3e-3
    """Learning rate of actor, critics and temperature."""

    def start(self, first: Knobs, seed: int) -> State:
        """Networks, an empty replay, and log-scales of 0."""
        from posttrain.components.controllers._soft import new_networks

        groups = len(first.clips)
        return {
            "action": [0.0] * (groups + 1),
            "last": None,
            "loss": None,
            "replay": [],
            "draws": 0,
            "seed": seed,
            "networks": new_networks(2 * groups + 4, groups + 1, seed),
        }

    def knobs(self, state: State, first: Knobs) -> Knobs:
        """The recipe's settings times the present scales."""
        *scales, noise = state["action"]
        clips = [clip * math.exp(self.clip_reach * s) for clip, s in zip(first.clips, scales, strict=True)]
        return Knobs(clips=clips, noise=first.noise * math.exp(self.noise_reach * noise))

    def observe(self, state: State, measured: Measured) -> State:
        """Reward the action of the interval, learn, and take the next action."""
        from posttrain.components.controllers._soft import act, learn

        change = 0.0 if state["loss"] is None else state["loss"] - measured.loss
        seen = [*measured.within, measured.loss, change, measured.spent, *state["action"]]
        replay: list[Any] = list(state["replay"])
        if state["last"] is not None:
            reward = change - self.price * measured.cost
            replay = [*replay, [state["last"], state["action"], reward, seen]][-64:]
        networks, draws = state["networks"], state["draws"]
        for _ in range(self.updates if len(replay) >= self.batch else 0):
            networks = learn(networks, replay, self.batch, self.lr, (state["seed"], draws))
            draws += 1
        action = act(networks, seen, (state["seed"], draws))
        return {
            **state,
            "action": action,
            "last": seen,
            "loss": measured.loss,
            "replay": replay,
            "draws": draws + 1,
            "networks": networks,
        }
