"""Do learned weights meet a requested rate where fixed ones do not, and does a discriminator of two policies imitate?

Rates: ten kinds of tasks; a long answer is right with a larger probability than a short one, by 0 to 0.6 from the first
kind to the last. At most 30 % of the answers may be long. A tabular policy decides by kind, with a small bonus of
entropy; 800 steps of 16 groups of 8 answers, advantages by `advantages/constrained` (with two constraints that
contradict each other at the end), or of a reward with a fixed weight on long answers. Reported are the rate of the last
100 steps, accuracy, and the weight of the reward at the end. The best policy within the rate is right in 56 % of all
answers, the best one without in 70 %.

Imitation: chains of 2 states and 2 actions, 4 steps, tables, all trajectories enumerated. A round trains the
discriminator of `objectives/asaf` and copies its policy. Reported is the total variation of trajectories.

    python docs/experiments/reward_rates.py --seeds 5
"""

import argparse
import json
from dataclasses import replace
from itertools import product

import numpy as np
import torch

from posttrain.components.advantages.constrained import Constrained
from posttrain.statistics.intervals import mean
from posttrain.types import Batch, Group, Score, Segment, Task, Trajectory

KINDS, GROUPS, GROUP, STEPS, RATE, ENTROPY = 10, 16, 8, 800, 2.0, 0.02
SHORT, LATE = 0.4, 100
GAIN = np.linspace(0.0, 0.6, KINDS)
HORIZON, ROUNDS = 4, 20


def drawn(rng: np.random.Generator, table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Kinds of the groups, and whether each answer is long and right."""
    kind = rng.integers(KINDS, size=GROUPS)
    long = rng.random((GROUPS, GROUP)) < 1 / (1 + np.exp(-table[kind]))[:, None]
    right = rng.random((GROUPS, GROUP)) < SHORT + GAIN[kind][:, None] * long
    return kind, long, right


def batch_of(long: np.ndarray, right: np.ndarray) -> Batch:
    """The answers as the input of an advantage."""
    groups = []
    for g, (lengths, answers) in enumerate(zip(long, right, strict=True)):
        rollouts = [
            TEMPLATE.scored(
                Score(value=float(ok), status="ok", parts={"long": Score(value=1.0, status="ok" if own else "wrong")})
            )
            for own, ok in zip(lengths, answers, strict=True)
        ]
        groups.append(Group(key=str(g), trajectories=tuple(rollouts)))
    rewards = tuple(np.array([float(ok)], np.float32) for ok in right.ravel())
    return Batch(groups=tuple(groups), signals={}, token_rewards=rewards, progress=0.0)


TEMPLATE = Trajectory(
    task=Task(key="task", prompt="task"),
    segments=(Segment(actor="policy", token_ids=np.zeros(1, np.int64), text="a", trained=True),),
    stop_reason="stop",
)


def rates(seed: int, advantage: Constrained | float) -> tuple[float, float, float]:
    """Share of long answers and of right ones in the last 100 steps, and the weight of the reward."""
    rng, table = np.random.default_rng(seed), np.zeros(KINDS)
    state = advantage.start() if isinstance(advantage, Constrained) else {}
    late, weight = [], 1.0
    for step in range(STEPS):
        kind, long, right = drawn(rng, table)
        if isinstance(advantage, Constrained):
            state, credit = advantage(state, batch_of(long, right))
            own = np.concatenate(credit.advantages).reshape(GROUPS, GROUP)
            weight = credit.metrics["weight/reward"]
        else:
            value = right - advantage * long
            own = (value - value.mean(1, keepdims=True)) / (1 + advantage)
        chance = 1 / (1 + np.exp(-table[kind]))[:, None]
        bonus = -ENTROPY * table[kind] * (chance * (1 - chance))[:, 0]
        np.add.at(table, kind, RATE * ((own * (long - chance)).mean(1) + bonus))
        late += [(long.mean(), right.mean())] if step >= STEPS - LATE else []
    return (*np.mean(late, 0).tolist(), weight)


def imitated(seed: int, per: str) -> float:
    """Total variation between trajectories of the demonstrator and of the policy after the last round."""
    rng = np.random.default_rng([seed, 9])
    move = torch.tensor(rng.dirichlet(np.ones(2), (2, 2)))
    expert = torch.tensor(rng.dirichlet(np.ones(2), 2))
    paths = [(s, a) for s in product(range(2), repeat=HORIZON) for a in product(range(2), repeat=HORIZON)]
    state, action = (torch.tensor(own) for own in zip(*paths, strict=True))
    world = 0.5 * move[state[:, :-1], action[:, :-1], state[:, 1:]].prod(1)
    logits = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)

    def logp(table: torch.Tensor) -> torch.Tensor:
        steps = table.log_softmax(1)[state, action]
        return steps if per == "token" else steps.sum(1, keepdim=True)

    of_expert = world * logp(expert.log()).sum(1).exp()
    for _ in range(ROUNDS):
        old = logits.detach().clone()
        of_old = world * logp(old).sum(1).exp()
        optimizer = torch.optim.LBFGS([logits], max_iter=30, line_search_fn="strong_wolfe")

        def loss(old: torch.Tensor = old, of_old: torch.Tensor = of_old) -> torch.Tensor:
            logits.grad = None
            logit = logp(logits) - logp(old)
            told = torch.nn.functional.softplus
            total = (of_expert[:, None] * told(-logit) + of_old[:, None] * told(logit)).sum()
            total.backward()
            return total

        optimizer.step(loss)
    return float((world * logp(logits.detach()).sum(1).exp() - of_expert).abs().sum()) / 2


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    learned = Constrained(at_most={"long": 0.3}, rate=0.005)
    arms: dict[str, Constrained | float] = {
        "no constraint": 0.0,
        "fixed weight 0.1": 0.1,
        "fixed weight 0.3": 0.3,
        "fixed weight 1": 1.0,
        "learned weight": learned,
        "at most 20 % and at least 80 %": replace(learned, at_most={"long": 0.2}, at_least={"long": 0.8}),
    }
    table = []
    for name, arm in arms.items():
        found = np.array([rates(seed, arm) for seed in seeds])
        table.append([name, *map(_cell, found.T)])
    for per in ("sequence", "token"):
        table.append([f"imitation, {per}: total variation", _cell([imitated(seed, per) for seed in seeds]), "", ""])
    print(json.dumps({"columns": ["weights", "long answers", "right answers", "reward's weight"], "table": table}))


def _cell(values: object) -> str:
    own = mean(np.asarray(values))
    return f"{own.value:.3f} [{own.interval.low:.3f}, {own.interval.high:.3f}]"


if __name__ == "__main__":
    main()
