"""How much lag losses bear, on softmax bandits: samples of step s are drawn with the weights of step s - 1 - lag.

Eight contexts of ten arms, eight groups of eight draws a step, one arm of each context right; advantages are rewards
minus the group's mean; plain gradient steps, the first with weights of 0. The losses are the components themselves.

    python docs/experiments/lagged_bandit.py [--seeds 5]
    python docs/experiments/lagged_bandit.py --features [--seeds 5]

With ``--features`` the bandit is no table and chance decides about rewards: 40 contexts are random vectors of length 1
with 16 numbers, logits their products with one matrix, so that an update about one context changes all. The best arm of
a context is rewarded always, the others with probability .35 on average (0 to .7). A step has eight of the contexts.
Share of the best expected reward in the last 20 steps, and the deepest fall below what was reached before, at several
rates.
"""

import argparse
import json
from typing import Any

import numpy as np
import torch

from posttrain.components.corrections.dropped import Dropped
from posttrain.components.objectives import Objective
from posttrain.components.objectives.aipo import AIPO
from posttrain.components.objectives.policy_gradient import PolicyGradient
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.statistics.intervals import mean
from posttrain.types import Tokens

CONTEXTS, ARMS, DRAWS, STEPS, RATE = 8, 10, 8, 120, 6.0
LAGS = (0, 1, 4, 16)
LOSSES: dict[str, Objective] = {
    "policy_gradient": PolicyGradient(),
    "ppo_clip": PPOClip(),
    "aipo rho 2": AIPO(rho=2.0),
    "aipo rho 10": AIPO(rho=10.0),
    "aipo stop above 2": AIPO(rho=2.0, stop_above=True),
    "decoupled ppo": PPOClip(),
}


def run(name: str, lag: int, seed: int) -> tuple[float, float, list[float]]:
    """Mean expected reward of the last 20 steps, largest norm of a gradient, and the logits at the end."""
    rng = np.random.default_rng(seed)
    right_C = torch.tensor(rng.integers(0, ARMS, CONTEXTS))
    logits_CA = torch.zeros(CONTEXTS, ARMS, dtype=torch.float64, requires_grad=True)
    kept = [logits_CA.detach().clone()]
    rewards, largest = [], 0.0
    for step in range(STEPS):
        sampler = kept[max(step - lag, 0)].log_softmax(1)
        arms = torch.tensor(np.array([rng.choice(ARMS, DRAWS, p=p) for p in sampler.exp().numpy()]))
        reward = (arms == right_C[:, None]).double()
        advantage_T = (reward - reward.mean(1, keepdim=True)).reshape(-1)
        behavior_T = sampler.gather(1, arms).reshape(-1)
        logp_T = logits_CA.log_softmax(1).gather(1, arms).reshape(-1)
        old_T = logp_T.detach() if name == "decoupled ppo" else behavior_T
        tokens = tokens_of(logp_T, behavior_T, old_T, advantage_T)
        loss_T = LOSSES[name](tokens).loss_T
        if name == "decoupled ppo":
            loss_T = loss_T * Dropped(cap=5.0)(tokens)
        (gradient,) = torch.autograd.grad(loss_T.mean(), logits_CA)
        largest = max(largest, float(gradient.norm()))
        with torch.no_grad():
            logits_CA -= RATE * gradient
            rewards.append(float(logits_CA.softmax(1).gather(1, right_C[:, None]).mean()))
        kept.append(logits_CA.detach().clone())
    return float(np.mean(rewards[-20:])), largest, logits_CA.detach().reshape(-1).tolist()


KINDS, FEATURES, RATES = 40, 16, (6.0, 24.0, 96.0)


def shared(name: str, lag: int, rate: float, seed: int) -> tuple[float, float]:
    """Share of the best expected reward in the last 20 steps, and the deepest fall below what was reached before."""
    rng = np.random.default_rng(seed)
    means_CA = torch.tensor(rng.uniform(0.0, 0.7, (KINDS, ARMS)))
    means_CA[torch.arange(KINDS), torch.tensor(rng.integers(0, ARMS, KINDS))] = 1.0
    inputs_CF = torch.tensor(rng.normal(size=(KINDS, FEATURES)))
    inputs_CF /= inputs_CF.norm(dim=1, keepdim=True)
    weights_FA = torch.zeros(FEATURES, ARMS, dtype=torch.float64, requires_grad=True)
    kept, rewards = [weights_FA.detach().clone()], list[float]()
    for step in range(STEPS):
        context_C = torch.tensor(rng.permutation(KINDS)[:CONTEXTS])
        sampler = (inputs_CF[context_C] @ kept[max(step - lag, 0)]).log_softmax(1)
        arms = torch.tensor(np.array([rng.choice(ARMS, DRAWS, p=p / p.sum()) for p in sampler.exp().numpy()]))
        chances = means_CA[context_C].gather(1, arms)
        reward = torch.tensor(rng.random(chances.shape) < chances.numpy()).double()
        advantage_T = (reward - reward.mean(1, keepdim=True)).reshape(-1)
        behavior_T = sampler.gather(1, arms).reshape(-1)
        logp_T = (inputs_CF[context_C] @ weights_FA).log_softmax(1).gather(1, arms).reshape(-1)
        old_T = logp_T.detach() if name == "decoupled ppo" else behavior_T
        tokens = tokens_of(logp_T, behavior_T, old_T, advantage_T)
        loss_T = LOSSES[name](tokens).loss_T
        if name == "decoupled ppo":
            loss_T = loss_T * Dropped(cap=5.0)(tokens)
        (gradient,) = torch.autograd.grad(loss_T.mean(), weights_FA)
        with torch.no_grad():
            weights_FA -= rate * gradient
        kept.append(weights_FA.detach().clone())
        expected = ((inputs_CF @ kept[-1]).softmax(1) * means_CA).sum(1).mean()
        rewards.append(float(expected))
    reached = np.maximum.accumulate(rewards)
    return float(np.mean(rewards[-20:])), float((reached - np.array(rewards)).max())


def features(seeds: int) -> dict[str, Any]:
    """The table of lag 0 and of the largest lag, at all rates."""
    table, last = [], {}
    for lag in (0, LAGS[-1]):
        for name in LOSSES:
            found = [np.array([shared(name, lag, rate, seed) for seed in range(seeds)]) for rate in RATES]
            table.append([name, str(lag), *(said(own[:, i]) for own in found for i in (0, 1))])
            last[name] = [own[:, 0] for own in found]
    differences = {
        name: [said(own - base) for own, base in zip(last[name], last["policy_gradient"], strict=True)] for name in last
    }
    columns = ["loss", "lag", *(f"rate {rate:g}, {what}" for rate in RATES for what in ("reward", "deepest fall"))]
    return {"columns": columns, "table": table, "reward_above_unweighted_at_the_largest_lag": differences}


def tokens_of(logp_T: torch.Tensor, behavior_T: torch.Tensor, old_T: torch.Tensor, advantage_T: torch.Tensor) -> Tokens:
    """Draws as sequences of one token."""
    count = len(logp_T)
    ones = torch.ones(count)
    return Tokens(
        logp_T=logp_T,
        behavior_logp_T=behavior_T,
        old_logp_T=old_T,
        advantage_T=advantage_T,
        value_target_T=None,
        signals={},
        sequence_T=torch.arange(count),
        turn_T=torch.zeros(count, dtype=torch.int64),
        group_N=torch.arange(count) // DRAWS,
        length_N=ones,
        reward_N=ones,
        solved_N=ones,
        group_solved_N=ones,
        progress=0.0,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--features", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.features:
        print(json.dumps(features(arguments.seeds), indent=1))
        return
    seeds = arguments.seeds
    found = {(name, lag): [run(name, lag, seed) for seed in range(seeds)] for lag in LAGS for name in LOSSES}
    table = []
    for name in LOSSES:
        rewards = [said(np.array([r for r, _, _ in found[name, lag]])) for lag in LAGS]
        largest = max(n for _, n, _ in found[name, LAGS[-1]])
        table.append([name, *rewards, f"{largest:.3f}"])
    same = found["policy_gradient", 0][0][2] == found["aipo rho 2", 0][0][2]
    last = {name: np.array([reward for reward, _, _ in found[name, LAGS[-1]]]) for name in LOSSES}
    differences = {name: said(own - last["policy_gradient"]) for name, own in last.items()}
    columns = ["loss", *(f"lag {lag}" for lag in LAGS), f"largest gradient, lag {LAGS[-1]}"]
    result = {"columns": columns, "table": table, "equal_to_the_bit_at_lag_0": same}
    print(json.dumps({**result, "reward_above_unweighted_at_the_largest_lag": differences}, indent=1))


def said(values: np.ndarray) -> str:
    """A mean with its 95 % interval."""
    found = mean(values)
    return f"{found.value:.3f} [{found.interval.low:.3f}, {found.interval.high:.3f}]"


if __name__ == "__main__":
    main()
