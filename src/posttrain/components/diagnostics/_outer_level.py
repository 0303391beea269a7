"""Weights of a reward, and a discount, that are learned so that what a policy gradient converges to is good.

A tabular policy's logits theta [S, A] move by an exact policy gradient with decay until they stay:

    D(theta, phi, v) = sum_s n(s) sum_a pi(a | s) (Q(s, a) - V(s)) (a's direction) - decay * theta = 0

Q and V are values of r = phi_1 + phi_2 r_p + phi_3 r_a under the discount sigmoid(v); n(s) are visits, discounted as in
the process. J(theta) is the process's own return, of r_p. At that point, with H = dD/dtheta and B = dD/d(phi, v),

    dJ/d(phi, v) = -grad J^T H^-1 B = (sum_k step (I + step H^T)^k grad J)^T B
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from posttrain.components.diagnostics._small_mdp import MDP, Reals

if TYPE_CHECKING:
    import torch

STEP: Final = 0.2
"""Step size of the inner updates."""
MOST: Final = 5000
CLOSE: Final = 1e-7
"""Inner updates, and the largest change at which they end."""
DOUBLINGS: Final = 12
"""The sum has 2^12 terms, doubled one after another. The smaller step times curvature is, the more are needed: 2^10
leave an error of 1e-4 in a corridor."""


@dataclass(frozen=True, kw_only=True)
class Outer:
    """A process with an auxiliary reward, and the rule of the inner updates."""

    mdp: MDP
    extra_SA: Reals
    """The auxiliary reward."""
    decay: float

    def update(self, theta: "torch.Tensor", weights: "torch.Tensor") -> "torch.Tensor":
        """[S, A] D, for weights phi_1, phi_2, phi_3, v."""
        import torch

        move, primary, extra, inside = self._tensors()
        reward = inside * (weights[0] + weights[1] * primary + weights[2] * extra)
        policy = theta.softmax(1)
        along = torch.einsum("sa,sat->st", policy, move)
        one = torch.eye(len(along), dtype=torch.float64)
        visits = torch.linalg.solve(one - self.mdp.gamma * along.T, torch.as_tensor(self.mdp.start_S))
        discount = weights[3].sigmoid()
        value = torch.linalg.solve(one - discount * along, (policy * reward).sum(1))
        q = reward + discount * move @ value
        change: torch.Tensor = visits[:, None] * policy * (q - value[:, None]) * inside - self.decay * theta
        return change

    def value(self, theta: "torch.Tensor") -> "torch.Tensor":
        """J of logits."""
        import torch

        move, primary, _, _ = self._tensors()
        policy = theta.softmax(1)
        along = torch.einsum("sa,sat->st", policy, move)
        one = torch.eye(len(along), dtype=torch.float64)
        values = torch.linalg.solve(one - self.mdp.gamma * along, (policy * primary).sum(1))
        found: torch.Tensor = torch.as_tensor(self.mdp.start_S) @ values
        return found

    def settle(
        self, weights: "torch.Tensor", theta: "torch.Tensor | None" = None, close: float = CLOSE
    ) -> "torch.Tensor":
        """The logits at which D is 0, from these logits or from 0; updates end at changes below `close`.

        The same as `update` in NumPy, which takes a quarter of the time for tables this small.
        """
        import torch

        mdp, inside = self.mdp, ~self.mdp.terminal_S[:, None]
        move, one = mdp.move_SAS * inside[:, :, None], np.eye(len(mdp.start_S))
        constant, primary, extra, raw = weights.detach().tolist()
        reward = inside * (constant + primary * mdp.reward_SA + extra * self.extra_SA)
        discount = 1.0 / (1.0 + np.exp(-raw))
        found = np.zeros(reward.shape) if theta is None else theta.numpy()
        for _ in range(MOST):
            policy = np.exp(found - found.max(1, keepdims=True))
            policy /= policy.sum(1, keepdims=True)
            along = (policy[:, :, None] * move).sum(1)
            visits = np.linalg.solve(one - mdp.gamma * along.T, mdp.start_S)
            value = np.linalg.solve(one - discount * along, (policy * reward).sum(1))
            gap = reward + discount * move @ value - value[:, None]
            change = visits[:, None] * policy * gap * inside - self.decay * found
            found = found + STEP * change
            if np.abs(change).max() < close:
                break
        return torch.as_tensor(found)

    def _tensors(self) -> "tuple[torch.Tensor, ...]":
        import torch

        inside = torch.as_tensor(~self.mdp.terminal_S, dtype=torch.float64)[:, None]
        move = torch.as_tensor(self.mdp.move_SAS) * inside[:, :, None]
        return move, torch.as_tensor(self.mdp.reward_SA) * inside, torch.as_tensor(self.extra_SA), inside


def implicit(
    outer: Outer, weights: "torch.Tensor", theta: "torch.Tensor", doublings: int = DOUBLINGS
) -> "torch.Tensor":
    """Gradient of J in the weights where D is 0, by the implicit function theorem and a sum of 2^doublings terms."""
    import torch

    theta, weights = theta.detach().requires_grad_(), weights.detach().requires_grad_()
    (slope,) = torch.autograd.grad(outer.value(theta), theta)
    change = outer.update(theta, weights)
    held = weights.detach()
    turn = torch.autograd.functional.jacobian(lambda own: outer.update(own, held), theta.detach())  # type: ignore[no-untyped-call]
    turn = torch.eye(theta.numel(), dtype=torch.float64) + STEP * turn.reshape(theta.numel(), -1).T
    total = STEP * slope.flatten()
    for _ in range(doublings):
        total, turn = total + turn @ total, turn @ turn
    (found,) = torch.autograd.grad(change, weights, total.reshape(theta.shape))
    return found


def finite_differences(
    outer: Outer, weights: "torch.Tensor", theta: "torch.Tensor", size: float = 1e-5
) -> "torch.Tensor":
    """The same by solving the inner problem again on both sides of each weight."""
    import torch

    found = torch.zeros_like(weights)
    for i in range(len(weights)):
        ends = []
        for sign in (1.0, -1.0):
            moved = weights.detach().clone()
            moved[i] += sign * size
            ends.append(float(outer.value(outer.settle(moved, theta, close=1e-11))))
        found[i] = (ends[0] - ends[1]) / (2 * size)
    return found


Slope = Callable[[Outer, "torch.Tensor", "torch.Tensor"], "torch.Tensor"]
HYPERGRADIENTS: Final[dict[str, Slope]] = {"implicit": implicit, "finite_differences": finite_differences}


def raised(
    outer: Outer, start: Reals, slope: Slope, *, steps: int, rate: float, discount_cost: float
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Weights after gradient ascent on J - discount_cost * sigmoid(v), and the logits that they lead to.

    The inner problem begins where the one before it ended.
    """
    import torch

    weights = torch.as_tensor(start, dtype=torch.float64).clone()
    theta = outer.settle(weights)
    for _ in range(steps):
        change = slope(outer, weights, theta)
        discount = weights[3].sigmoid()
        change[3] -= discount_cost * discount * (1.0 - discount)
        weights = weights + rate * change
        theta = outer.settle(weights, theta)
    return weights, theta


def bandit(primary: Reals) -> MDP:
    """Arms that end the episode."""
    arms = len(primary)
    move, ends = np.zeros((2, arms, 2)), np.array([False, True])
    move[:, :, 1] = 1.0
    reward = np.stack([primary, np.zeros(arms)])
    return MDP(move_SAS=move, reward_SA=reward, start_S=np.eye(2)[0], terminal_S=ends, gamma=0.9)


def corridor(cells: int = 6) -> MDP:
    """A wall on the left, and 1 for the step into the last cell; actions left and right; the start is the first."""
    move = np.zeros((cells, 2, cells))
    for cell in range(cells):
        move[cell, 0, max(cell - 1, 0)] = move[cell, 1, min(cell + 1, cells - 1)] = 1.0
    reward = np.zeros((cells, 2))
    reward[cells - 2, 1] = 1.0
    ends = np.arange(cells) == cells - 1
    start = np.eye(cells)[0]
    return MDP(move_SAS=move, reward_SA=reward, start_S=start, terminal_S=ends, gamma=0.95)
