"""Are weights of rewards learned from samples so that a misleading bonus does no harm, and a helpful one is used?

Ten kinds of tasks with three arms each, which are right with probability 1, 0.9 and 0; a tabular policy, whose logits
have a decay of 0.1. A bonus is misleading (1 for the second arm, 0.2 for the third), helpful (0.5 for the first), or
one of ten Bernoulli draws for each kind and arm (random). Each outer step follows two updates with 16 groups of 8
answers, and has 16 groups of its own (`stages/implicit`, three terms): the derivative is estimated from samples, with
the group's mean as baseline, as in the stage `outer`. Reported is the probability that an answer is right, exact, at
the end, that of the first arm, and the weights of rightness and of the bonus.

    python docs/experiments/weighted_arms.py --seeds 5
"""

import argparse
import json

import numpy as np
import torch

from posttrain.stages.implicit import curvature_product, dot, passed_on
from posttrain.statistics.intervals import mean

KINDS, GROUPS, GROUP, STEPS, INNER, DECAY = 10, 16, 8, 150, 2, 0.1
UPDATE, RATE, STEP, TERMS = 1.0, 0.1, 0.2, 3
RIGHT = np.array([1.0, 0.9, 0.0])
BONUS = {"misleading": [0.0, 1.0, 0.2], "helpful": [0.5, 0.0, 0.0]}


class Arms:
    """Sampled answers of a table, and gradients from them."""

    def __init__(self, seed: int, bonus: str) -> None:
        self.rng = np.random.default_rng([seed, 188])
        table = self.rng.integers(0, 2, (KINDS, 3)) if bonus == "random" else np.tile(BONUS[bonus], (KINDS, 1))
        self.bonus = table.astype(float)
        self.theta = torch.zeros(KINDS, 3, dtype=torch.float64)

    def drawn(self) -> dict[str, np.ndarray]:
        """Kinds, arms, log-probabilities and both rewards of a batch."""
        kind = np.repeat(self.rng.integers(KINDS, size=GROUPS)[:, None], GROUP, 1)
        logp = self.theta.log_softmax(1).numpy()[kind]
        arm = (np.exp(logp).cumsum(2) < self.rng.random(kind.shape)[..., None]).sum(2).clip(max=2)
        right = self.rng.random(kind.shape) < RIGHT[arm]
        behavior = np.take_along_axis(logp, arm[..., None], 2)[..., 0]
        return {"kind": kind, "arm": arm, "logp": behavior, "right": right * 1.0, "bonus": self.bonus[kind, arm]}

    def field(self, batch: dict[str, np.ndarray], value: np.ndarray) -> list[torch.Tensor]:
        """The policy gradient of a batch at the present logits, with importance weights."""
        theta = self.theta.clone().requires_grad_()
        now = theta.log_softmax(1)[torch.as_tensor(batch["kind"]), torch.as_tensor(batch["arm"])]
        ratio = (now.detach() - torch.as_tensor(batch["logp"])).exp()
        gain = torch.as_tensor(value - value.mean(1, keepdims=True))
        (found,) = torch.autograd.grad((ratio * gain * now).mean() * KINDS, theta)
        return [found]

    def slopes(self, batch: dict[str, np.ndarray], weights: np.ndarray) -> np.ndarray:
        """The derivative of rightness in both weights."""
        outer = self.drawn()
        total = weights[0] * batch["right"] + weights[1] * batch["bonus"]

        def product(direction: list[torch.Tensor]) -> list[torch.Tensor]:
            return curvature_product(
                lambda: [self.field(batch, total)[0] - DECAY * self.theta], [self.theta], direction, 1e-4
            )

        through = passed_on(self.field(outer, outer["right"]), product, step=STEP, terms=TERMS)
        return np.array([dot(through, self.field(batch, batch[name])) for name in ("right", "bonus")])


def run(seed: int, bonus: str, start: tuple[float, float], learned: bool) -> tuple[float, float, float, float]:
    """Rightness, the first arm's probability, and both weights at the end."""
    arms, weights = Arms(seed, bonus), np.array(start)
    first, second = np.zeros(2), np.zeros(2)
    for step in range(STEPS):
        for _ in range(INNER):
            batch = arms.drawn()
            total = weights[0] * batch["right"] + weights[1] * batch["bonus"]
            arms.theta += UPDATE * (arms.field(batch, total)[0] - DECAY * arms.theta)
        if learned:
            slope = arms.slopes(batch, weights)
            first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
            size = np.sqrt(second / (1 - 0.999 ** (step + 1))) + 1e-8
            weights = weights + RATE * first / (1 - 0.9 ** (step + 1)) / size
    policy = arms.theta.softmax(1).numpy()
    return float((policy @ RIGHT).mean()), float(policy[:, 0].mean()), *weights.tolist()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    table = []
    for bonus in ("misleading", "helpful", "random"):
        for name, start, learned in (
            ("rightness alone", (1.0, 0.0), False),
            ("fixed sum", (1.0, 1.0), False),
            ("learned from rightness alone", (1.0, 0.0), True),
            ("learned from 0.3", (1.0, 0.3), True),
            ("learned from the sum", (1.0, 1.0), True),
        ):
            found = np.array([run(seed, bonus, start, learned) for seed in seeds])
            table.append([bonus, name, *map(_cell, found.T)])
    columns = ["bonus", "weights", "right", "first arm", "weight of rightness", "weight of the bonus"]
    print(json.dumps({"columns": columns, "table": table}))


def _cell(values: np.ndarray) -> str:
    own = mean(values)
    return f"{own.value:.3f} [{own.interval.low:.3f}, {own.interval.high:.3f}]"


if __name__ == "__main__":
    main()
