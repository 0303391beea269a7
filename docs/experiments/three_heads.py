"""Do three heads on one trunk learn their own dimension from labels of which 30 % are missing, and what do they reward?

A text has 0 to 2 each of three words that matter and of twelve that do not; the label of each dimension is the number
of its word, with noise. Linear heads on the counts learn by the loss of the stage `heads`. A policy then draws the
three numbers independently, and GRPO (groups of 8, 16 groups a step) rewards it by the weighted mean of the scores
(`rewards/heads`), as they are or standardized within a group. In the last two arms the first label is ten times larger.

    python docs/experiments/three_heads.py --seeds 5
"""

import argparse
import json

import numpy as np
import torch

from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.heads import standardized
from posttrain.stages.heads import HeadsTraining
from posttrain.statistics.intervals import mean

WORDS, TEXTS, MISSING, NOISE, GROUPS, SIZE, RATE = 15, 400, 0.3, 0.3, 16, 8, 0.3
STAGE = HeadsTraining(reducer=Sequences(), labels=("a", "b", "c"))


def learned(seed: int, scale: float) -> np.ndarray:
    """[3, W + 1] weights of the heads, the bias last."""
    rng = np.random.default_rng(seed)
    count_MW = rng.integers(0, 3, (TEXTS, WORDS)).astype(float)
    label_MK = count_MW[:, :3] + NOISE * rng.normal(size=(TEXTS, 3))
    label_MK[:, 0] *= scale
    weight_MK = torch.tensor(rng.random((TEXTS, 3)) >= MISSING)
    input_MW = torch.tensor(np.hstack([count_MW, np.ones((TEXTS, 1))]))
    head_KW = torch.zeros(3, WORDS + 1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([head_KW], max_iter=100)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss_MK = STAGE.of_heads(input_MW @ head_KW.T, torch.tensor(label_MK))
        loss = (loss_MK * weight_MK).sum() / weight_MK.sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return head_KW.detach().numpy()


def correlations(seed: int) -> tuple[float, float]:
    """Smallest correlation of a head with its own number in new texts, and the largest with another one."""
    head_KW = learned(seed, 1.0)
    count_MW = np.random.default_rng(seed + 1000).integers(0, 3, (2000, WORDS)).astype(float)
    score_MK = count_MW @ head_KW[:, :-1].T + head_KW[:, -1]
    found = np.corrcoef(score_MK.T, count_MW[:, :3].T)[:3, 3:]
    return float(found.diagonal().min()), float(np.abs(found - np.diag(found.diagonal())).max())


def trained(seed: int, weights: tuple[float, ...], scale: float, by_group: bool, steps: int) -> np.ndarray:
    """[3] expected numbers of the words, of at most 2."""
    rng = np.random.default_rng(seed)
    head_KW = learned(seed, scale)
    head_KW = np.hstack([head_KW[:, :3], head_KW[:, -1:]])
    weight_K = np.array(weights) / sum(weights)
    logits = np.zeros((3, 3))
    for _ in range(steps):
        chance = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        slope = np.zeros_like(logits)
        for _ in range(GROUPS):
            drawn = np.stack([rng.choice(3, SIZE, p=row) for row in chance], 1)
            score_NK = drawn @ head_KW[:, :3].T + head_KW[:, 3]
            part_NK = standardized(score_NK, np.ones(SIZE, bool)) if by_group else score_NK
            reward = part_NK @ weight_K
            advantage = (reward - reward.mean()) / (reward.std(ddof=1) + 1e-4)
            for k in range(3):
                slope[k] += (advantage[:, None] * (np.eye(3)[drawn[:, k]] - chance[k])).mean(0)
        logits += RATE * slope / GROUPS
    chance = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return np.asarray(chance @ np.arange(3))


def shown(values: np.ndarray) -> str:
    """Mean and interval."""
    found = mean(values)
    return f"{found.value:.3f} [{found.interval.low:.3f}, {found.interval.high:.3f}]"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    own, other = np.array([correlations(seed) for seed in seeds]).T
    arms = {
        "equal weights": ((1.0, 1.0, 1.0), 1.0, False),
        "the first alone": ((1.0, 0.0, 0.0), 1.0, False),
        "equal weights, standardized": ((1.0, 1.0, 1.0), 1.0, True),
        "the first label times 10": ((1.0, 1.0, 1.0), 10.0, False),
        "the first label times 10, standardized": ((1.0, 1.0, 1.0), 10.0, True),
    }
    table = []
    for name, arm in arms.items():
        for steps in (25, 200):
            results = np.array([trained(seed, *arm, steps) for seed in seeds])
            table.append([name, str(steps), *(shown(column) for column in results.T)])
    columns = ["reward", "steps", "first", "second", "third"]
    said = f"smallest correlation with the own number {shown(own)}, largest with another {shown(other)}"
    print(json.dumps({"said": said, "columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
