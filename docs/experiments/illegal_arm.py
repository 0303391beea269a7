"""CGPO on bandits: is the best arm left alone where it breaks a constraint, and does one weight do the same?

    python docs/experiments/illegal_arm.py --seeds 5

The first table: five arms with rewards 0.2, 0.4, 0.6, 0.8 and 1.0, the last of which breaks its constraint; 8 draws a
step, 150 steps, plain gradient steps of 1. Plain is the reward minus the mean of the batch, calibrated the same with
sigmoid(r - r_0), r_0 that of the first arm, and the three rules are the components themselves. A checker lets a broken
constraint pass with probability `false`. Reported is the probability of the illegal arm and of the best legal one.

The second: two tasks of five arms; the best legal arm and the illegal one have the rewards 0.8 and 1.0 in the first,
4.8 and 5.8 in the second. One sum for both, reward minus a weight where the constraint is broken, at three weights,
against CRPG. Reported is the probability of the best legal arm in each.

The third has the same tasks, but one sum has the checkers of both, as a sum of rewards for all prompts does: the best
legal arm of the first task breaks the constraint that belongs to the second. CRPG uses each task's own checker.
"""

import argparse
import json

import numpy as np

from posttrain.components.advantages.cgpo import CGPO
from posttrain.components.rewards.constraints import calibrated
from posttrain.signals import logp_of
from posttrain.statistics.intervals import mean
from posttrain.types import Batch, Group, Score, Segment, Task, Trajectory

REWARDS = np.array([0.2, 0.4, 0.6, 0.8, 1.0])
DRAWS, STEPS, RATE, BETA = 8, 150, 1.0, 0.1
TASK = Task(key="arms", prompt="Pull.")


def batch_of(arms: np.ndarray, rewards: np.ndarray, kept: np.ndarray, base: float, logp: np.ndarray) -> Batch:
    """Draws as rollouts of one token, with a uniform reference."""
    made = []
    for i, arm in enumerate(arms):
        c = calibrated(float(rewards[i]), base)
        score = Score(
            value=c if kept[i] else 0.0,
            status="ok" if kept[i] else "wrong",
            parts={"calibrated": Score(value=c, status="ok")},
        )
        segment = Segment(
            actor="policy", token_ids=np.array([arm]), trained=True, logp=np.array([logp[arm]], np.float32)
        )
        made.append(Trajectory(task=TASK, segments=(segment,), stop_reason="stop", sample=i, score=score))
    reference = np.array([-np.log(len(REWARDS))], np.float32)
    return Batch(
        groups=(Group(trajectories=tuple(made), key="arms"),),
        token_rewards=tuple(np.array([t.score.value], np.float32) for t in made if t.score),
        signals={logp_of("reference"): tuple(reference for _ in made)},
    )


def trained(
    rule: str, false: float, seed: int, rewards: np.ndarray = REWARDS, weight: float = 0.0, other: int | None = None
) -> np.ndarray:
    """[arms] probabilities after training; the arm `other` breaks a constraint of another task."""
    rng = np.random.Generator(np.random.Philox(key=[seed, 11]))
    logits = np.zeros(len(rewards))
    for _ in range(STEPS):
        p = np.exp(logits - logits.max())
        p /= p.sum()
        arms = rng.choice(len(rewards), DRAWS, p=p)
        passed = (arms < len(rewards) - 1) | (rng.random(DRAWS) < false)
        given = rewards[arms]
        if rule == "plain":
            advantage = given - given.mean()
        elif rule == "weighted":
            own = given - weight * (~passed | (arms == other) if other is not None else ~passed)
            advantage = own - own.mean()
        elif rule == "calibrated":
            own = np.array([calibrated(float(r), float(rewards[0])) for r in given])
            advantage = own - own.mean()
        else:
            batch = batch_of(arms, given, passed, float(rewards[0]), np.log(p))
            advantage = np.array([a[0] for a in CGPO(rule=rule)({}, batch)[1].advantages])  # type: ignore[arg-type]
        if rule == "codpo":
            # the gradient of -log sigmoid(beta margin) - lp_chosen, for the pair; beta as in the port
            chosen, rejected = arms[advantage > 0], arms[advantage < 0]
            if len(chosen):
                margin = BETA * (logits[chosen[0]] - logits[rejected[0]])
                push = BETA / (1 + np.exp(margin)) * (np.eye(len(p))[chosen[0]] - np.eye(len(p))[rejected[0]])
                logits += RATE * (push + np.eye(len(p))[chosen[0]] - p)
            continue
        logits += RATE * (advantage[:, None] * (np.eye(len(p))[arms] - p)).mean(0)
    return np.asarray(p)


def said(values: list[float]) -> str:
    """A mean with its 95 % interval."""
    own = mean(values)
    return f"{own.value:.3f} [{own.interval.low:.3f}, {own.interval.high:.3f}]"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    table = []
    for rule in ("plain", "calibrated", "crpg", "crraft", "codpo"):
        for false in (0.0, 0.1) if rule not in ("plain", "calibrated") else (0.0,):
            ends = [trained(rule, false, seed) for seed in seeds]
            table.append([rule, false, said([float(p[4]) for p in ends]), said([float(p[3]) for p in ends])])
    print(json.dumps({"columns": ["rule", "false passes", "illegal arm", "best legal arm"], "table": table}))
    both = (REWARDS, np.array([0.2, 1.6, 3.0, 4.8, 5.8]))
    rows = []
    for rule, weight in (("weighted", 0.1), ("weighted", 0.5), ("weighted", 2.0), ("crpg", 0.0)):
        cells = [said([float(trained(rule, 0.0, seed, rewards, weight)[3]) for seed in seeds]) for rewards in both]
        rows.append([f"weight {weight:g}" if rule == "weighted" else rule, *cells])
    print(json.dumps({"columns": ["trained with", "first task", "second task"], "table": rows}))
    rows = []
    for rule, weight in (*(("weighted", w) for w in (0.1, 0.5, 0.8, 1.2, 2.0)), ("crpg", 0.0)):
        ends = [
            [trained(rule, 0.0, seed, own, weight, o) for seed in seeds] for own, o in zip(both, (3, None), strict=True)
        ]
        best = [said([float(p[3]) for p in own]) for own in ends]
        worse = said([min(float(a[3]), float(b[3])) for a, b in zip(*ends, strict=True)])
        rows.append([f"weight {weight:g}" if rule == "weighted" else rule, *best, worse])
    columns = ["trained with checkers of both", "first task", "second task", "the worse of both"]
    print(json.dumps({"columns": columns, "table": rows}))


if __name__ == "__main__":
    main()
