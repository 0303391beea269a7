"""Groups without a difference: dropped, replaced by copies of others, or sampled again (WebSailor, DUPO).

64 prompts with success rates sigmoid(skill + b), b from N(-2, 2.5): most of 16 groups of 8 in a step are all wrong at
first. One number, the skill, is learned with the gradient of the policy: the mean over rollouts of A (r - p), A the
reward minus the mean of its group over the std. Filter and refill are those of the package. Counted are steps, and
rollouts with those of groups that were not trained on, until the mean success is 0.7; a step takes the time of its
rollouts.

    python docs/experiments/copied_groups.py
"""

import argparse
import json
from collections.abc import Sequence

import numpy as np

from posttrain.components.filters import Dropped
from posttrain.components.filters.mixed import Mixed
from posttrain.stages.rl.refill import Refill
from posttrain.statistics.intervals import mean
from posttrain.types import Group, Score, Segment, Task, Trajectory

PROMPTS, ROLLOUTS, POOL, RATE, GOAL = 16, 8, 64, 0.5, 0.7
ARMS = {
    "dropped": Refill(rounds=0),
    "copied (DUPO)": Refill(rounds=0, when_spent="copies"),
    "sampled again (DAPO)": Refill(rounds=9),
}
TASK = Task(key="task", prompt="")
NONE = Segment(actor="prompt", token_ids=np.zeros(1, np.int64))
SCORES = {
    True: Trajectory(task=TASK, segments=(NONE,), stop_reason="stop", score=Score(value=1.0, status="ok")),
    False: Trajectory(task=TASK, segments=(NONE,), stop_reason="stop", score=Score(value=0.0, status="wrong")),
}


def success(skill: float, hard_P: np.ndarray) -> np.ndarray:
    """[P] success rates."""
    return np.asarray(1.0 / (1.0 + np.exp(-(skill + hard_P))))


def gradient(group: Group, p: float) -> np.ndarray:
    """[N] what each rollout adds."""
    reward_N = group.rewards
    return np.asarray((reward_N - reward_N.mean()) / (reward_N.std(ddof=1) + 1e-6) * (reward_N - p))


def trained(refill: Refill, seed: int, most: int = 2000) -> tuple[float, float, float]:
    """Steps and rollouts to the goal, and the standard deviation of a step."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    hard_P = rng.normal(-2.0, 2.5, POOL)
    skill, rollouts, moves = 0.0, 0, []
    for step in range(1, most + 1):
        p_P, kept, dropped, chance = success(skill, hard_P), list[Group](), list[Dropped](), dict[int, float]()
        for _ in range(refill.rounds + 1):
            for place in rng.choice(POOL, PROMPTS, replace=False).tolist():
                drawn = (rng.random(ROLLOUTS) < p_P[place]).tolist()
                group = Group(key=str(place), trajectories=tuple(SCORES[right] for right in drawn))
                rollouts += ROLLOUTS
                _, passed, failed = Mixed()({}, [group])
                kept += passed
                dropped += failed
                chance |= {id(one): float(p_P[place]) for one in passed}
            if refill.rounds and refill.is_full(kept, PROMPTS):
                break
        kept, _ = refill.cut(kept, dropped, PROMPTS)
        kept += refill.copied(kept, PROMPTS, (seed, step))
        if kept:
            moves.append(float(np.concatenate([gradient(group, chance[id(group)]) for group in kept]).mean()))
            skill += RATE * moves[-1]
        if success(skill, hard_P).mean() >= GOAL:
            return float(step), float(rollouts), float(np.std(moves, ddof=1))
    return float("inf"), float("inf"), float(np.std(moves, ddof=1))


def cell(values: Sequence[float], digits: int) -> str:
    """A mean with its 95 % interval."""
    found = mean(np.array(values))
    return f"{found.value:,.{digits}f} [{found.interval.low:,.{digits}f}, {found.interval.high:,.{digits}f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    table = []
    for name, refill in ARMS.items():
        found = [trained(refill, seed) for seed in range(given.seeds)]
        columns = list(zip(*found, strict=True))
        table.append([name, *(cell(column, digits) for column, digits in zip(columns, (0, 0, 3), strict=True))])
    print(json.dumps({"columns": ["arm", "steps", "rollouts", "std of a step"], "table": table}, indent=1))


if __name__ == "__main__":
    main()
