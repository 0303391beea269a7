"""Does the worst head of an ensemble keep a policy from the fault of one head, and whose sureness matters?

First a bandit of 20 arms of standard normal value, five heads with noise, of which head 0 overrates the worst arm by 7,
and is the surest or the least sure one. The policy is a softmax that follows exact gradients of the mean reward less
0.1 of the KL to a flat one, for 2,000 steps; rewards are those of `rewards/robust`, or of the head with the lowest mean
over the policy's answers. Reported is the regret, the value of the policy less that of the best arm.

Then 300 arms with 40 features, of which 40 arms are seen in 80 noisy pairs. Five linear heads learn from bootstrapped
pairs, and the policy follows the exact gradient without a KL: the mean of the heads against mixes and the worst head,
with the value of the policy at its best and at the end, where the best arm has 1 and a flat policy 0.

    python docs/experiments/worst_head.py --seeds 40
"""

import argparse
import json

import numpy as np

from posttrain.components.rewards.robust import Robust
from posttrain.statistics.intervals import mean

ARMS, HEADS, FAULT, BETA, RATE, STEPS = 20, 5, 7.0, 0.1, 1.0, 2000


def softmax(logits: np.ndarray) -> np.ndarray:
    """[A] probabilities."""
    shifted = np.exp(logits - logits.max())
    return np.asarray(shifted / shifted.sum())


def followed(rewards_of: object, arms: int, beta: float, steps: int, rate: float) -> list[np.ndarray]:
    """[A] the policy after each step of exact gradients."""
    logits, found = np.zeros(arms), []
    for _ in range(steps):
        policy = softmax(logits)
        gain = rewards_of(policy) - beta * (np.log(policy + 1e-30) + np.log(arms))  # type: ignore[operator]
        logits = logits + rate * policy * (gain - policy @ gain)
        found.append(softmax(logits))
    return found


def of(head_KA: np.ndarray, log_std_KA: np.ndarray, reward: Robust) -> np.ndarray:
    """[A] rewards of all arms."""
    outputs = np.concatenate([head_KA, log_std_KA]).T
    return np.array([reward.of_outputs(row).value for row in outputs])


def one_fault(seed: int, arm: str, sure: bool) -> float:
    """Regret of the last policy."""
    rng = np.random.default_rng(seed)
    value = rng.normal(size=ARMS)
    head_KA = value + 0.3 * rng.normal(size=(HEADS, ARMS))
    head_KA[0, value.argmin()] += FAULT
    std_KA = rng.uniform(0.4, 0.6, (HEADS, ARMS))
    std_KA[0] = 0.2 if sure else 0.8
    log_std_KA = np.log(std_KA)
    fixed = {
        "head 0 alone": lambda: head_KA[0],
        "surest": lambda: of(head_KA, log_std_KA, Robust(alpha=1.0)),
        "mean": lambda: of(head_KA, log_std_KA, Robust(alpha=1.0, nominal="mean")),
        "worst": lambda: of(head_KA, log_std_KA, Robust(alpha=0.0)),
        "mix of surest and worst, alpha 0.4": lambda: of(head_KA, log_std_KA, Robust(alpha=0.4)),
        "mix, alpha 0.8": lambda: of(head_KA, log_std_KA, Robust(alpha=0.8)),
    }
    if arm in fixed:
        reward = fixed[arm]()
        policy = followed(lambda _: reward, ARMS, BETA, STEPS, RATE)[-1]
    else:
        nominal = of(head_KA, log_std_KA, Robust(alpha=1.0))
        policy = followed(
            lambda p: 0.4 * nominal + 0.6 * head_KA[int((head_KA @ p).argmin())], ARMS, BETA, STEPS, RATE
        )[-1]
    return float(policy @ value - value.max())


def bootstrapped(seed: int, arm: str) -> tuple[float, float]:
    """Value of the best and of the last policy, from 0 (flat) to 1 (the best arm)."""
    rng = np.random.default_rng(seed)
    feature_AD = rng.normal(size=(300, 40))
    value = feature_AD @ rng.normal(size=40) / 40**0.5
    seen = rng.choice(300, 40, replace=False)
    pair_P2 = np.array([rng.choice(seen, 2, replace=False) for _ in range(80)])
    margin = value[pair_P2[:, 0]] - value[pair_P2[:, 1]]
    first = rng.random(80) < 1 / (1 + np.exp(-2 * margin))
    difference_PD = (feature_AD[pair_P2[:, 0]] - feature_AD[pair_P2[:, 1]]) * np.where(first, 1, -1)[:, None]
    heads = []
    for _ in range(HEADS):
        weight_P, head_D = rng.poisson(1.0, 80), np.zeros(40)
        for _ in range(300):
            wrong_P = weight_P / (1 + np.exp(difference_PD @ head_D))
            head_D += 0.1 * (difference_PD.T @ wrong_P / 80 - 0.02 * head_D)
        score_A = feature_AD @ head_D
        heads.append((score_A - score_A[seen].mean()) / score_A[seen].std())
    head_KA = np.array(heads)
    alpha = {"mean": 1.0, "mix of mean and worst, alpha 0.4": 0.4, "worst": 0.0}.get(arm)
    reward = head_KA[0] if alpha is None else alpha * head_KA.mean(0) + (1 - alpha) * head_KA.min(0)
    values = [float(policy @ value) for policy in followed(lambda _: reward, 300, 0.0, 1500, 2.0)]
    flat = value.mean()
    return tuple((x - flat) / (value.max() - flat) for x in (max(values), values[-1]))  # type: ignore[return-value]


def shown(values: np.ndarray) -> str:
    """Mean and interval."""
    found = mean(values)
    return f"{found.value:.3f} [{found.interval.low:.3f}, {found.interval.high:.3f}]"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=40)
    seeds = range(parser.parse_args().seeds)
    table = []
    mixes = ("mix of surest and worst, alpha 0.4", "mix, alpha 0.4, one head for the batch", "mix, alpha 0.8")
    for arm in ("head 0 alone", "surest", "mean", "worst", *mixes):
        regrets = [shown(np.array([one_fault(seed, arm, sure) for seed in seeds])) for sure in (True, False)]
        table.append([f"one head is at fault: {arm}", *regrets])
    for arm in ("one head", "mean", "mix of mean and worst, alpha 0.4", "worst"):
        best, last = np.array([bootstrapped(seed, arm) for seed in seeds]).T
        table.append([f"bootstrapped heads: {arm}", shown(best), shown(last)])
    columns = [
        "reward",
        "regret, it is the surest; or value at best",
        "regret, it is the least sure; or value at the end",
    ]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
