"""Which tasks to train on: selections by visits, outcomes and lengths, for a learner with known difficulties.

The learner of `posttrain diagnose curriculum`: task j of skill k is solved with p = sigmoid(theta_k - d_j), and a step
adds the exact gradient of group-normalized rewards, sqrt(s (1 - s)) of each group, to theta; a part of what one skill
gains goes to another one, or is lost there. The loss is divided by all groups.

    visits      512 tasks of one skill, d from N(1.5, 3). Before training each is tried until it is solved, at most 50
                times (K); 60 steps of 16 x 8 on the tasks that a rule keeps.
    outcomes    three kinds of questions with d around 0, 1.5 and 3; what one gains, the others lose a part of. Three
                stages of 40 steps of 16; before each the learner answers every question once, and wrong and right ones
                are kept in a ratio; 8 rollouts, 16 from the second stage on.
    lengths     short tasks with d around 0 and long ones with d around 2, whose rollouts cost three times as many
                tokens; 0.5 of what short ones gain goes to long ones, 0.3 back. Equal tokens: those of 100 steps of 16
                long groups of 8.

    python docs/experiments/phases.py visits --seeds 5
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from posttrain.components.diagnostics._simulated import Learner, Pool, one_skill
from posttrain.components.rewards.match import Match
from posttrain.components.selections.by_length import ByLength
from posttrain.components.selections.by_outcome import ByOutcome
from posttrain.components.selections.by_visits import ByVisits
from posttrain.statistics.intervals import mean
from posttrain.types import Task

BATCH, BUDGET, LOST = 16, 50, 0.1
COST = np.array([1.0, 3.0])
"""Tokens of a rollout of a short and of a long task."""
Found = dict[str, dict[str, list[float]]]


def made(skills: Sequence[float], each: int, transfer: np.ndarray, seed: int) -> Pool:
    """Tasks of several skills, with difficulties of standard deviation 1.5 around each center."""
    rng = np.random.default_rng([seed, 1])
    skill_P = np.repeat(np.arange(len(skills)), each)
    difficulty_P = np.asarray(skills)[skill_P] + rng.normal(0.0, 1.5, len(skill_P))
    tasks = [Task(key=f"t{i}", prompt="p", domain=str(k)) for i, k in enumerate(skill_P.tolist())]
    fixed_P = np.full(len(tasks), np.nan)
    return Pool(tasks=tasks, skill_P=skill_P, difficulty_P=difficulty_P, fixed_P=fixed_P, transfer_KK=transfer)


def learner_of(pool: Pool, seed: int, n: int = 8) -> Learner:
    """The learner before any step."""
    return Learner(pool=pool, n=n, rate=0.25, divide="all", rng=np.random.default_rng([seed, 2]))


def train(learner: Learner, kept: np.ndarray, steps: int, rng: np.random.Generator, n: int = 8) -> float:
    """Steps on tasks drawn evenly from those that are kept; the share of groups with unequal rewards."""
    spread = []
    for _ in range(steps if len(kept) else 0):
        places = rng.choice(kept, BATCH, replace=len(kept) < BATCH)
        _, share_B = learner.sample(places, n)
        learner.learn(places, share_B)
        spread.append(float(np.mean((share_B > 0) & (share_B < 1))))
    return float(np.mean(spread)) if spread else 0.0


def keys(tasks: Sequence[Task]) -> np.ndarray:
    """Places of tasks in their pool."""
    return np.array([int(task.key.removeprefix("task ").removeprefix("t")) for task in tasks], np.int64)


def visits(seed: int) -> Found:
    """Accuracy on all and on the harder half after training on what each rule keeps."""
    pool = one_skill(512, np.random.default_rng([seed, 1]))
    first = learner_of(pool, seed)
    rng = np.random.default_rng([seed, 3])
    tries = np.minimum(rng.geometric(np.maximum(first.rate_P, 1e-12)), BUDGET + 1)
    share_P = rng.binomial(8, first.rate_P) / 8
    rule = ByVisits(reward=Match())
    above = keys(rule.choose(pool.tasks, tries.tolist()).tasks)
    rules = {
        "all tasks": np.arange(512),
        "K above 5, and unsolved": above,
        "K above 5, solved": keys(ByVisits(reward=Match(), unsolved=False).choose(pool.tasks, tries.tolist()).tasks),
        "unsolved alone": np.flatnonzero(tries > BUDGET),
        "solved, up to half of 8": np.flatnonzero((share_P > 0) & (share_P <= 0.5)),
        "random, as many as K above 5": rng.choice(512, len(above), replace=False),
    }
    hard_P = pool.difficulty_P > np.median(pool.difficulty_P)
    found: Found = {}
    for name, kept in rules.items():
        learner = learner_of(pool, seed)
        spread = train(learner, kept, 60, np.random.default_rng([seed, 4]))
        row = {"tasks": float(len(kept)), "with spread": spread}
        row |= {"accuracy": learner.accuracy, "harder half": float(learner.rate_P[hard_P].mean())}
        found[name] = {column: [value] for column, value in row.items()}
    return found


def outcomes(seed: int) -> Found:
    """Accuracy by kind of question after three stages in each ratio."""
    transfer = np.full((3, 3), -LOST)
    np.fill_diagonal(transfer, 1.0)
    found: Found = {}
    ratios = {"any": None, "1 : 1": (1, 1), "2 : 1": (2, 1), "1 : 0": (1, 0)}
    for name, ratio in ratios.items():
        learner = learner_of(made((0.0, 1.5, 3.0), 170, transfer, seed), seed)
        spreads = []
        for stage in range(3):
            rng, n = np.random.default_rng([seed, 5, stage]), 16 if stage else 8
            kept = np.arange(len(learner.pool.tasks))
            if ratio is not None:
                answers = (rng.random(len(kept)) < learner.rate_P).astype(float).tolist()
                now = (1, 1) if stage == 0 and ratio == (2, 1) else ratio
                rule = ByOutcome(reward=Match(), wrong=now[0], right=now[1], seed=seed)
                kept = keys(rule.choose(learner.pool.tasks, answers).tasks)
            spreads.append(train(learner, kept, 40, rng, n))
        rate_P, skill_P = learner.rate_P, learner.pool.skill_P
        row = {f"{k + 1} hops": float(rate_P[skill_P == k].mean()) for k in range(3)}
        row |= {"accuracy": learner.accuracy, "with spread, last stage": spreads[-1]}
        found[name] = {column: [value] for column, value in row.items()}
    return found


def lengths(seed: int) -> Found:
    """Accuracy on short and long tasks at equal tokens."""
    transfer = np.array([[1.0, 0.5], [0.3, 1.0]])
    total = 100 * BATCH * 8 * float(COST[1])
    found: Found = {}
    for name in ("long tasks", "all tasks", "phased", "phased, unsolved ones return"):
        learner = learner_of(made((0.0, 2.0), 256, transfer, seed), seed)
        rng = np.random.default_rng([seed, 6])
        pool = learner.pool
        solved = (rng.binomial(8, learner.rate_P) / 8).tolist()
        rows = [{"length": 10 + 20 * int(k), "solved": s} for k, s in zip(pool.skill_P, solved, strict=True)]
        second = ByLength(reward=Match(), above=15, again="return" in name)
        returned = keys(second.choose(pool.tasks, rows).tasks)
        short, long = np.flatnonzero(pool.skill_P == 0), np.flatnonzero(pool.skill_P == 1)
        spent, halfway = 0.0, float("nan")
        while spent < total:
            phase = short if spent < total / 4 else returned
            kept = {"long tasks": long, "all tasks": np.arange(len(pool.tasks))}.get(name, phase)
            places = rng.choice(kept, BATCH, replace=False)
            _, share_B = learner.sample(places, 8)
            learner.learn(places, share_B)
            spent += 8 * float(COST[pool.skill_P[places]].sum())
            if np.isnan(halfway) and spent >= total / 2:
                halfway = float(learner.rate_P[long].mean())
        row = {"long, half of the tokens": halfway, "long": float(learner.rate_P[long].mean())}
        row |= {"short": float(learner.rate_P[short].mean()), "returned": float((pool.skill_P[returned] == 0).sum())}
        found[name] = {column: [value] for column, value in row.items()}
    return found


PARTS: Mapping[str, Callable[[int], Found]] = {"visits": visits, "outcomes": outcomes, "lengths": lengths}


def said(values: Sequence[float]) -> str:
    """A mean with its 95 % interval; a count as a mean alone."""
    own = mean(list(values))
    if max(values) > 1.0:
        return f"{own.value:.0f}"
    return f"{own.value:.3f} [{own.interval.low:.3f}, {own.interval.high:.3f}]"


def main() -> None:
    """Print the table of a part."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=sorted(PARTS))
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    runs = [PARTS[args.part](seed) for seed in range(args.seeds)]
    columns = list(next(iter(runs[0].values())))
    table = [[name, *(said([run[name][c][0] for run in runs]) for c in columns)] for name in runs[0]]
    print(json.dumps({"columns": ["trained on", *columns], "table": table}, indent=1))


if __name__ == "__main__":
    main()
