"""Nested guards: where does the distance to the next one help, and does a frontier of questions cover more?

    python docs/experiments/fuzz_guards.py --seeds 5

Sheet of row 124 (arXiv:2509.20384). Programs have five nested guards, as those of the tasks `guards`; values are those
of the reward `branch_distance`. The first table: 30 programs and 2,000 executions for each. Hill climbing changes one
number of the best input (a new one, or a step of at most 3) and keeps what is not worse; the policy is a table of a
softmax for each number, with groups of 8 and a gradient step of 2. Reported is how many of 30 lines are reached, for
numbers up to 30 and up to 999; all guards are equalities here. The second has hill climbing by the largest number, with
steps as above and with new numbers alone, which no distance can lead.

The third: 6 programs, a line behind each of their guards (30), and 5,000 executions. A table as above for each program
learns from a question's rewards, 8 inputs a step; questions come from the curriculum `coverage`, with its frontier and
without, closed or not, or are the last lines alone. What any input reaches counts as covered. The other row mutates
inputs that covered something new.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from random import Random

import numpy as np

from posttrain.components.curricula.coverage import Coverage
from posttrain.grading.branches import Run, credit
from posttrain.statistics.intervals import mean
from posttrain.types import Group, Score, Segment, Task, Trajectory

DEPTH, PROGRAMS, EXECUTIONS, GROUP, RATE = 5, 30, 2000, 8, 2.0
Guard = tuple[str, bool, int]


def program(rng: Random, largest: int, operators: Sequence[str] = ("==", ">=", "<=")) -> list[Guard]:
    """Five guards: operator, whether it is relative to the number before, constant."""
    found: list[Guard] = []
    before = 0
    for place in range(DEPTH):
        value, operator = rng.randint(0, largest), rng.choice(operators)
        spare = 0 if operator == "==" else rng.randint(0, 5)
        bound = value - spare if operator == ">=" else value + spare
        relative = place > 0 and rng.random() < 0.4
        found.append((operator, relative, bound - before if relative else bound))
        before = value
    return found


def run(guards: list[Guard], inputs: list[int]) -> Run:
    """What an input does."""
    nearest: list[float | None] = [None] * len(guards)
    for place, (operator, relative, constant) in enumerate(guards):
        gap = inputs[place] - constant - (inputs[place - 1] if relative else 0)
        nearest[place] = max(0, {"==": abs(gap), ">=": -gap, "<=": gap}[operator])
        if nearest[place]:
            return Run("returned", False, tuple(nearest))
    return Run("returned", True, tuple(nearest))


def mutated(rng: Random, inputs: list[int], largest: int, near_share: float = 0.5) -> list[int]:
    """One number changed."""
    found, place = list(inputs), rng.randrange(len(inputs))
    near = found[place] + rng.choice((-3, -2, -1, 1, 2, 3))
    found[place] = min(largest, max(0, near)) if rng.random() < near_share else rng.randint(0, largest)
    return found


def climbed(guards: list[Guard], how: str, largest: int, rng: Random, near_share: float = 0.5) -> bool:
    """Whether hill climbing reaches the line."""
    best = [rng.randint(0, largest) for _ in guards]
    value = credit(run(guards, best), how)
    for _ in range(EXECUTIONS - 1):
        if value == 1.0:
            return True
        other = mutated(rng, best, largest, near_share)
        own = credit(run(guards, other), how)
        if own >= value:
            best, value = other, own
    return value == 1.0


class Policy:
    """A softmax for each number of an input."""

    def __init__(self, largest: int, seed: int) -> None:
        self.logits = np.zeros((DEPTH, largest + 1))
        self.rng = np.random.default_rng([seed, 124])

    def inputs(self) -> np.ndarray:
        """[GROUP, DEPTH] inputs."""
        self.p = np.exp(self.logits - self.logits.max(1, keepdims=True))
        self.p /= self.p.sum(1, keepdims=True)
        drawn: np.ndarray = (self.rng.random((GROUP, DEPTH, 1)) > self.p.cumsum(1)).sum(2)
        return drawn.clip(0, self.logits.shape[1] - 1)

    def learn(self, inputs: np.ndarray, rewards: np.ndarray) -> None:
        """A step of GRPO."""
        if np.ptp(rewards) < 1e-12:
            return
        advantage = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-6)
        for own, scale in zip(inputs, advantage / GROUP, strict=True):
            self.logits -= RATE * scale * self.p
            self.logits[np.arange(DEPTH), own] += RATE * scale


def learnt(guards: list[Guard], how: str, largest: int, seed: int) -> bool:
    """Whether the policy reaches the line."""
    policy = Policy(largest, seed)
    for _ in range(EXECUTIONS // GROUP):
        inputs = policy.inputs()
        runs = [run(guards, own.tolist()) for own in inputs]
        if any(one.reached for one in runs):
            return True
        policy.learn(inputs, np.array([credit(one, how) for one in runs]))
    return False


def solved(way: str, how: str, largest: int, seed: int, near_share: float = 0.5) -> int:
    """Lines that are reached, of 30."""
    rng, total = Random(f"programs:{seed}"), 0
    for number in range(PROGRAMS):
        guards = program(rng, largest, ("==",))
        own = seed * PROGRAMS + number
        if way == "climbing":
            total += climbed(guards, how, largest, Random(own), near_share)
        else:
            total += learnt(guards, how, largest, own)
    return total


def covered(curriculum: Coverage | str, seed: int, largest: int = 30, programs: int = 6, executions: int = 5000) -> int:
    """Lines that were reached, of 30."""
    rng = Random(f"loop:{seed}")
    all_guards = [program(rng, largest) for _ in range(programs)]
    pool = [
        Task(key=f"{p}:{d}", prompt=f"{p}:{d}", fields={"source": p, "line": d, "parent": d - 1 if d else None})
        for p in range(programs)
        for d in range(DEPTH)
    ]
    reached: set[str] = set()

    def note(number: int, one: Run) -> int:
        before = len(reached)
        reached.update(f"{number}:{d}" for d in range(one.passed))
        return len(reached) - before

    if curriculum == "mutation":
        corpus = [(p, [rng.randint(0, largest) for _ in range(DEPTH)]) for p in range(programs)]
        for _ in range(executions):
            number, inputs = rng.choice(corpus)
            other = mutated(rng, inputs, largest)
            if note(number, run(all_guards[number], other)):
                corpus.append((number, other))
        return len(reached)
    policies = [Policy(largest, seed * programs + p) for p in range(programs)]
    state = curriculum.start() if isinstance(curriculum, Coverage) else {}
    for step in range(executions // GROUP):
        if isinstance(curriculum, Coverage):
            state, [pick] = curriculum.select(state, pool, 1, seed=seed, step=step)
            task = pick.task
        else:
            task = pool[rng.randrange(programs) * DEPTH + DEPTH - 1]
        number, depth = int(task.fields["source"]), int(task.fields["line"]) + 1
        inputs = policies[number].inputs()
        runs = [run(all_guards[number][:depth], own.tolist()) for own in inputs]
        for one in runs:
            note(number, one)
        policies[number].learn(inputs, np.array([credit(one) for one in runs]))
        if isinstance(curriculum, Coverage):
            state = curriculum.observe(state, [group(task, runs)])
    return len(reached)


def group(task: Task, runs: list[Run]) -> Group:
    """Runs as scored rollouts."""
    segment = Segment(actor="policy", token_ids=np.zeros(1, np.int64), trained=True)
    scores = [Score(value=credit(one), status="ok" if one.reached else "wrong") for one in runs]
    made = [
        Trajectory(task=task, segments=(segment,), stop_reason="stop", sample=i, score=score)
        for i, score in enumerate(scores)
    ]
    return Group(key=task.key, trajectories=tuple(made))


def shown(one: Callable[[int], int], seeds: range) -> str:
    """A mean over seeds with its 95 % interval."""
    own = mean([float(one(seed)) for seed in seeds])
    return f"{own.value:.1f} [{own.interval.low:.1f}, {own.interval.high:.1f}]"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    table = []
    for how in ("target", "passed", "distance"):
        cells = [(way, largest) for largest in (30, 999) for way in ("climbing", "policy")]
        table.append([how, *(shown(lambda s, w=way, n=n, h=how: solved(w, h, n, s), seeds) for way, n in cells)])
    columns = ["reward", "climbing, up to 30", "policy, up to 30", "climbing, up to 999", "policy, up to 999"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))
    sizes, table = (9, 30, 40, 50, 60, 99, 255, 999), []
    for how, share in (("target", 0.5), ("passed", 0.5), ("distance", 0.5), ("passed", 0.0), ("distance", 0.0)):
        own = [shown(lambda s, h=how, n=n, p=share: solved("climbing", h, n, s, p), seeds) for n in sizes]
        table.append([f"{how}{', new numbers alone' * (not share)}", *own])
    print(json.dumps({"columns": ["reward", *(f"up to {n}" for n in sizes)], "table": table}, indent=1))
    ways: dict[str, Coverage | str] = {
        "frontier": Coverage(tries=40),
        "frontier, never closed": Coverage(tries=40, close=False),
        "any line": Coverage(tries=40, order="random"),
        "any line, never closed": Coverage(tries=40, order="random", close=False),
        "last lines": "last",
        "mutation": "mutation",
    }
    rows = [[name, shown(lambda s, c=way: covered(c, s), seeds)] for name, way in ways.items()]
    print(json.dumps({"columns": ["questions", "lines of 30"], "table": rows}, indent=1))


if __name__ == "__main__":
    main()
