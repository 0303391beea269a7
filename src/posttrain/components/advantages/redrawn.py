"""Another advantage, with rollouts drawn again from the batch, by weights that depend on their rank in the group.

Source: Policy Filtration, Shen and Zhang 2024, arXiv:2409.06957, section 4, and the first variant of its release
(replay_buffer.py): advantages are computed over the whole buffer; then as many rollouts as it holds are drawn with
replacement. Weights in a group: 1 for the best and for the worst and 0 for others (``best_worst``, what is shipped),
0.4 for the best and 0.1 for others (``best_random``; the paper's rule for five rollouts), 1 for the best
(``best``), the square of the reward (``square``), or all equal (``none``). A rollout that is drawn k times has k times
its advantage, which is the gradient of k copies; the mean over the batch is that over the draws.

``rule: reliable`` takes the rule with the highest R^2 of the true score in the reward over the rollouts of the first
step's tasks, before any update (`posttrain.statistics.reliability`): the paper's criterion. The true score is a part of
the reward's, see `truth`.

Differs: the release draws each minibatch, here the draw is for the whole batch. A critic learns from every rollout.
Draws are a function of what was sampled.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.errors import UserError
from posttrain.signals import Signal
from posttrain.statistics.reliability import RULES, Rule, reliability
from posttrain.types import Batch, Credit, Group, value_of

Reals = NDArray[np.float64]


@frozen
class Redrawn(Advantage):
    """Multiplies each rollout's advantage by the number of times that it is drawn."""

    advantage: Advantage
    """The estimator, over the whole batch."""
    rule: Literal["best_worst", "best_random", "best", "square", "none", "reliable"] = "best_worst"
    """The weights of the rollouts of a group."""
    truth: str = "true"
    """For ``reliable``: the part of a score that is the true one."""

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals of the estimator."""
        return self.advantage.needs

    @property
    def tags(self) -> frozenset[str]:
        """Tags of the estimator."""
        return self.advantage.tags

    @property
    def is_relative(self) -> bool:
        """That of the estimator."""
        return self.advantage.is_relative

    @property
    def chooses(self) -> bool:
        """True: a rollout that is not drawn has no credit."""
        return True

    @property
    def reads(self) -> Literal["sum", "returns", "tokens"]:
        """As the estimator."""
        return self.advantage.reads

    @property
    def roles(self) -> frozenset[str]:
        """Those of the estimator."""
        return self.advantage.roles

    @property
    def prepares(self) -> bool:
        """Whether the rule is chosen before the first step, or the estimator prepares."""
        return self.rule == "reliable" or self.advantage.prepares

    def start(self) -> State:
        """The rule, and the state of the estimator."""
        return {"rule": "best_worst" if self.rule == "reliable" else self.rule, "inner": self.advantage.start()}

    async def prepare(self, state: State, groups: Sequence[Group], samplers: Mapping[str, Any]) -> State:
        """Choose the rule, and prepare the estimator. Raises `UserError` for scores without the true one."""
        inner = await self.advantage.prepare(state["inner"], groups, samplers)
        if self.rule != "reliable":
            return {**state, "inner": inner}
        rewards = [[value_of(t) for t in group] for group in groups]
        truths = [[self._true(t) for t in group] for group in groups]
        found = {rule: reliability(rewards, truths, rule) for rule in RULES}
        known = {rule: value for rule, value in found.items() if value is not None}
        best: Rule = max(known, key=lambda rule: known[rule]) if known else "best_worst"
        return {"rule": best, "inner": inner}

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """The estimator's credit, times the number of draws."""
        inner, credit = self.advantage(state["inner"], batch)
        times_N = self._drawn(state["rule"], batch)
        advantages = tuple((a_T * n).astype(a_T.dtype) for a_T, n in zip(credit.advantages, times_N, strict=True))
        metrics = {**credit.metrics, "drawn_share": float((times_N > 0).mean()) if len(times_N) else 0.0}
        return {**state, "inner": inner}, Credit(
            advantages=advantages, value_targets=credit.value_targets, metrics=metrics
        )

    def _drawn(self, rule: str, batch: Batch) -> Reals:
        """[N] how often each rollout is drawn; they sum to N."""
        weight_N = np.concatenate([np.zeros(0), *(weights(group, rule) for group in batch.groups)])
        if rule == "none" or not weight_N.sum():
            return np.ones(len(weight_N))
        names = [f"{t.task.key}:{t.sample}:{t.token_ids.tobytes().hex()}" for t in batch.trajectories]
        order = np.array(sorted(range(len(names)), key=names.__getitem__))  # whatever the order of the batch
        digest = hashlib.blake2b(";".join(names[i] for i in order).encode(), digest_size=8)
        rng = np.random.default_rng(int.from_bytes(digest.digest(), "little"))
        times_N = np.zeros(len(weight_N))
        times_N[order] = rng.multinomial(len(weight_N), weight_N[order] / weight_N.sum())
        return times_N

    def _true(self, trajectory: Any) -> float:
        part = trajectory.score.parts.get(self.truth) if trajectory.score is not None else None
        if part is None:
            raise UserError(
                f"advantage.rule=reliable compares the reward with the true score, but scores have no part "
                f"'{self.truth}'; set advantage.truth to a part of the reward, or name the rule"
            )
        return float(part.value)


def weights(group: Group, rule: str) -> Reals:
    """[N] weights of the rollouts of a group; of equal rewards the one that was sampled first ranks higher."""
    reward_N = np.asarray(group.rewards, np.float64)
    if rule == "none" or len(reward_N) < 2:
        return np.ones(len(reward_N))
    if rule == "square":
        return reward_N**2
    order = sorted(range(len(reward_N)), key=lambda i: (-reward_N[i], group.trajectories[i].sample))
    weight_N = np.full(len(reward_N), 0.1 if rule == "best_random" else 0.0)
    weight_N[order[0]] = 0.4 if rule == "best_random" else 1.0
    if rule == "best_worst":
        weight_N[order[-1]] = 1.0
    return weight_N
