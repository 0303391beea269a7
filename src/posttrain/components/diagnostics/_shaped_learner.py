"""Tabular learners by REINFORCE on shaped rewards, and a learner's own shaping (ExploRS); N repetitions at once.

Every 2 episodes the logits of a softmax policy move by `rate` times the mean, over all steps of the last 5 episodes, of
return times gradient of the log-probability. Returns are those of the shaped reward, as it was when they were sampled.

ExploRS trains on r + phi(s, a) + B(s'). B(s) = 1 / sqrt(1 + n) with n the steps that left s so far, 0 in a terminal
state. Every 5 episodes, over all steps of the last 10, with G the return of the original reward and pi the policy that
sampled: phi(s, .) += 0.01 pi(a | s) (G - V(s)) (onehot(a) - pi(. | s)), summed, then V(s) += 0.01 times the sum of
G - V(s) over the number of all steps.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from posttrain.components.diagnostics._small_mdp import MDP, Reals

EVERY, LAST = 2, 5
EVERY_SHAPING, LAST_SHAPING = 5, 10
META_RATE: Final = 0.01


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One episode of each repetition, in arrays of [N, T]."""

    state_NT: np.ndarray
    action_NT: np.ndarray
    live_NT: np.ndarray
    """Whether the episode had not ended."""
    return_NT: Reals
    """Of the shaped reward, from this step on, discounted."""
    original_NT: Reals
    """The same of the original reward."""
    policy_NSA: Reals
    """The policy that acted."""


@dataclass(frozen=True, kw_only=True)
class Learned:
    """The outcome of N repetitions."""

    value_NE: Reals
    """Value of the policy under the original reward, after every 10 episodes."""
    reward_NSA: Reals
    """The reward as it was at the end; a bonus is the expected one of the next state."""


class Shaping:
    """What a learner adds to a given reward by itself."""

    def __init__(self, mdp: MDP, count: int, *, learned: bool, bonus: bool) -> None:
        self._mdp, self._learned, self._bonus = mdp, learned, bonus
        self.left_NS = np.zeros((count, len(mdp.start_S)))
        self.phi_NSA = np.zeros((count, *mdp.reward_SA.shape))
        self.value_NS = np.zeros((count, len(mdp.start_S)))

    def bonus_NS(self) -> Reals:
        """B of every state."""
        return np.asarray(self._bonus * ~self._mdp.terminal_S / np.sqrt(1.0 + self.left_NS))

    def update(self, episodes: "list[Episode]") -> None:
        """Change phi, then V, from episodes."""
        if not self._learned:
            return
        gaps, steps = np.zeros_like(self.value_NS), np.zeros(len(self.value_NS))
        add = np.zeros_like(self.phi_NSA)
        for own in episodes:
            n, t = np.nonzero(own.live_NT)
            s, a = own.state_NT[n, t], own.action_NT[n, t]
            gap = own.original_NT[n, t] - self.value_NS[n, s]
            p = own.policy_NSA[n, s]
            push = -p
            push[np.arange(len(n)), a] += 1.0
            np.add.at(add, (n, s), META_RATE * (p[np.arange(len(n)), a] * gap)[:, None] * push)
            np.add.at(gaps, (n, s), gap)
            np.add.at(steps, n, 1.0)
        self.phi_NSA += add
        self.value_NS += META_RATE * gaps / np.maximum(steps, 1.0)[:, None]


def learn(
    mdp: MDP,
    design: Callable[[Reals], Reals],
    *,
    seeds: int,
    episodes: int,
    rate: float,
    learned: bool = False,
    bonus: bool = False,
    renew: int = 0,
) -> Learned:
    """Train; `design` gives the reward for a policy [S, A], asked again every `renew` episodes (0: once)."""
    shape = mdp.reward_SA.shape
    logits, shaping = np.zeros((seeds, *shape)), Shaping(mdp, seeds, learned=learned, bonus=bonus)
    draws = [np.random.default_rng([seed, 7]) for seed in range(seeds)]
    given, values = np.zeros((seeds, *shape)), []
    kept: deque[Episode] = deque(maxlen=max(LAST, LAST_SHAPING))
    for episode in range(episodes):
        policy = _softmax(logits)
        if episode == 0 or (renew and episode % renew == 0):
            given = np.stack([design(own) for own in policy]) if renew else np.repeat(design(policy[0])[None], seeds, 0)
        kept.append(_play(mdp, policy, given, shaping, draws))
        if (episode + 1) % EVERY_SHAPING == 0:
            shaping.update([*kept][-LAST_SHAPING:])
        if (episode + 1) % EVERY == 0:
            logits += rate * _slope(policy, [*kept][-LAST:])
        if (episode + 1) % 10 == 0:
            values.append([mdp.value(own) for own in _softmax(logits)])
    ahead = np.einsum("sat,nt->nsa", mdp.move_SAS, shaping.bonus_NS())
    return Learned(value_NE=np.array(values).T, reward_NSA=given + shaping.phi_NSA + ahead)


def _play(mdp: MDP, policy: Reals, given: Reals, shaping: Shaping, draws: list[np.random.Generator]) -> Episode:
    """One episode of each repetition."""
    count, every = len(policy), np.arange(len(policy))
    uniform = np.stack([rng.random((mdp.horizon + 1, 2)) for rng in draws])
    chance, moves = policy.cumsum(2), mdp.move_SAS.cumsum(2)
    state = _drawn(np.repeat(mdp.start_S.cumsum()[None], count, 0), uniform[:, -1, 0])
    live, rows = ~mdp.terminal_S[state], []
    for t in range(mdp.horizon):
        if not live.any():
            break
        action = _drawn(chance[every, state], uniform[:, t, 0])
        onward = _drawn(moves[state, action], uniform[:, t, 1])
        bonus = shaping.bonus_NS()[every, onward]
        original = mdp.reward_SA[state, action]
        shaped = given[every, state, action] + shaping.phi_NSA[every, state, action] + bonus
        rows.append((state, action, live, live * shaped, live * original))
        shaping.left_NS[every, state] += live
        state, live = np.where(live, onward, state), live & ~mdp.terminal_S[onward]
    states, actions, alive, shapeds, originals = (np.stack(column, 1) for column in zip(*rows, strict=True))
    return Episode(
        state_NT=states,
        action_NT=actions,
        live_NT=alive,
        return_NT=_returns(shapeds, mdp.gamma),
        original_NT=_returns(originals, mdp.gamma),
        policy_NSA=policy,
    )


def _slope(policy: Reals, episodes: list[Episode]) -> Reals:
    """[N, S, A] mean over steps of return times gradient of the log-probability in the logits."""
    total, steps = np.zeros_like(policy), np.zeros(len(policy))
    for own in episodes:
        n, t = np.nonzero(own.live_NT)
        s, a = own.state_NT[n, t], own.action_NT[n, t]
        push = -policy[n, s]
        push[np.arange(len(n)), a] += 1.0
        np.add.at(total, (n, s), own.return_NT[n, t][:, None] * push)
        np.add.at(steps, n, 1.0)
    return np.asarray(total / np.maximum(steps, 1.0)[:, None, None])


def _returns(reward_NT: Reals, gamma: float) -> Reals:
    found, later = np.zeros_like(reward_NT), np.zeros(len(reward_NT))
    for t in reversed(range(reward_NT.shape[1])):
        later = reward_NT[:, t] + gamma * later
        found[:, t] = later
    return found


def _drawn(cumulative: Reals, uniform: Reals) -> np.ndarray:
    """The drawn index of each row."""
    return np.asarray(np.minimum((cumulative <= uniform[:, None]).sum(1), cumulative.shape[1] - 1))


def _softmax(logits: Reals) -> Reals:
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(-1, keepdims=True))
