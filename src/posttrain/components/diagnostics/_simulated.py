"""A learner with known difficulties: how good a curriculum's choices are, without a model.

Task j of skill k is solved with p = sigmoid(theta_k - d_j). A step with B groups of n rollouts, of which a group has
the share s correct, moves the learner by

    theta_k += rate * mean over groups of (transfer from the group's skill to k) * sqrt(s (1 - s))

which is the exact gradient of GRPO in theta: with A = (r - s) / std, the mean of A d log p / d theta is
sqrt(s (1 - s)). The expectation over s is a finite sum, so that the best B tasks are known. Tasks may also be solved
with a fixed probability, whatever was learned: a coin flip, or never.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from posttrain.components.curricula import Curriculum, Target
from posttrain.engines import Sampler, wait_for
from posttrain.types import FloatArray, Group, IntArray, Score, Segment, Task, Trajectory

Reals = NDArray[np.float64]
Places = NDArray[np.int64]

NOISE = 1.0
"""Standard deviation of what a value model sees of a difficulty, in units of theta."""
BANDS = 8
"""Categories of equally many tasks by difficulty, where there is one skill."""
_FIRST = 2
"""The first token of a task's prompt that no rollout has."""
SPREAD_STEPS = 40
"""Steps over which the share of groups with unequal rewards is taken."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Tasks with known difficulties."""

    tasks: Sequence[Task]
    skill_P: Places
    difficulty_P: Reals
    fixed_P: Reals
    """Probability of success of tasks that nothing changes; NaN for the others."""
    transfer_KK: Reals
    """[from, to] share of a skill's gain that another one has."""


def one_skill(size: int, rng: np.random.Generator) -> Pool:
    """One skill, difficulties from N(1.5, 3); the domains are eight bands of difficulty."""
    difficulty_P = rng.normal(1.5, 3.0, size)
    band_P = np.argsort(np.argsort(difficulty_P)) * BANDS // size
    labels = [f"band {band}" for band in band_P]
    return _pool(labels, np.zeros(size, np.int64), difficulty_P, np.full(size, np.nan), np.eye(1))


def domains(size: int, rng: np.random.Generator) -> Pool:
    """Six domains: four skills with difficulties near -3, 0.5, 2 and 4, a coin flip and an impossible one."""
    names = ("easy", "middle", "hard", "harder", "coin flip", "impossible")
    skill_P = np.arange(size) * len(names) // size
    centers = np.array([-3.0, 0.5, 2.0, 4.0, 0.0, 0.0])
    difficulty_P = centers[skill_P] + rng.normal(0.0, 0.7, size)
    fixed_P = np.array([np.nan] * 4 + [0.5, 0.0])[skill_P]
    transfer_KK = np.full((6, 6), 0.25)
    np.fill_diagonal(transfer_KK, 1.0)
    transfer_KK[4:] = 0.0  # what does not depend on the learner has no gradient in it
    return _pool([names[k] for k in skill_P], skill_P, difficulty_P, fixed_P, transfer_KK)


def two_skills(size: int, rng: np.random.Generator, transfer: float = 0.3) -> Pool:
    """Two skills with the same difficulties, from N(1.5, 2); a part of what one gains goes to the other, or is lost."""
    skill_P = np.arange(size) % 2
    transfer_KK = np.array([[1.0, transfer], [transfer, 1.0]])
    labels = [("first", "second")[k] for k in skill_P]
    return _pool(labels, skill_P, rng.normal(1.5, 2.0, size), np.full(size, np.nan), transfer_KK)


POOLS: Mapping[str, Callable[[int, np.random.Generator], Pool]] = {
    "one_skill": one_skill,
    "domains": domains,
    "two_skills": two_skills,
    "interfering": partial(two_skills, transfer=-0.4),
}


def _pool(labels: Sequence[str], skill_P: Places, difficulty_P: Reals, fixed_P: Reals, transfer_KK: Reals) -> Pool:
    tasks = [Task(key=f"task {i}", prompt=f"task {i}", domain=label) for i, label in enumerate(labels)]
    return Pool(tasks=tasks, skill_P=skill_P, difficulty_P=difficulty_P, fixed_P=fixed_P, transfer_KK=transfer_KK)


@dataclass(kw_only=True)
class Learner:
    """A learner in a pool, and what it has been given."""

    pool: Pool
    n: int
    rate: float
    divide: Literal["all", "spread"]
    rng: np.random.Generator
    rollouts: int = 0
    """Rollouts so far, also those of probes."""
    theta_K: Reals = field(init=False)

    def __post_init__(self) -> None:
        """Starts with theta = 0."""
        self.theta_K = np.zeros(len(self.pool.transfer_KK))
        self._place = {task.key: i for i, task in enumerate(self.pool.tasks)}
        self._known = [[_rollout(task, solved) for solved in (False, True)] for task in self.pool.tasks]

    @property
    def rate_P(self) -> Reals:
        """Probability of success of every task."""
        learned_P = 1.0 / (1.0 + np.exp(self.pool.difficulty_P - self.theta_K[self.pool.skill_P]))
        return np.where(np.isnan(self.pool.fixed_P), learned_P, self.pool.fixed_P)

    @property
    def accuracy(self) -> float:
        """Mean probability of success of the tasks that can be learned."""
        return float(self.rate_P[np.isnan(self.pool.fixed_P)].mean())

    @property
    def gain_P(self) -> Reals:
        """Expected size of a group's gradient, which counts where it is of something that can be learned.

        Where skills differ, it is weighed by what it adds to the mean success rate, beside what the best one adds.
        """
        p_P = self.rate_P
        own_P = expected_size(p_P, self.n)
        slope_P = np.where(np.isnan(self.pool.fixed_P), p_P * (1.0 - p_P), 0.0)
        slope_K = np.bincount(self.pool.skill_P, weights=slope_P, minlength=len(self.theta_K))
        gain_K = self.pool.transfer_KK @ slope_K
        return np.asarray(own_P * gain_K[self.pool.skill_P] / max(gain_K.max(), 1e-300))

    def places(self, tasks: Sequence[Task]) -> Places:
        """Places of tasks in the pool."""
        return np.array([self._place[task.key] for task in tasks], np.int64)

    def sample(self, places: Places, n: int) -> tuple[list[Group], Reals]:
        """Scored groups of rollouts, and the share of each that is correct."""
        self.rollouts += n * len(places)
        solved_B = self.rng.binomial(n, self.rate_P[places])
        groups = [
            Group(
                key=self.pool.tasks[i].key,
                trajectories=(self._known[i][1],) * k + (self._known[i][0],) * (n - k),
            )
            for i, k in zip(places.tolist(), solved_B.tolist(), strict=True)
        ]
        return groups, solved_B / n

    def learn(self, places: Places, share_B: Reals) -> None:
        """One step of gradient ascent on groups with these shares."""
        size_B = np.sqrt(share_B * (1.0 - share_B))
        skill_B = self.pool.skill_P[places]
        count = len(places) if self.divide == "all" else int((size_B > 0.0).sum())
        if count:
            self.theta_K = self.theta_K + self.rate * (size_B[:, None] * self.pool.transfer_KK[skill_B]).sum(0) / count


def expected_size(p_P: Reals, n: int) -> Reals:
    """[P] expected sqrt(s (1 - s)) of n rollouts with a success rate of p each."""
    k_N = np.arange(n + 1)
    size_N = np.sqrt(k_N / n * (1.0 - k_N / n))
    ways_N = np.array([math.comb(n, int(k)) for k in k_N], np.float64)
    return np.asarray((ways_N * p_P[:, None] ** k_N * (1.0 - p_P[:, None]) ** (n - k_N)) @ size_N)


@dataclass(kw_only=True)
class ValueModel:
    """What a value model would predict: a logistic function of a noisy view of the difficulty, which learns."""

    seen_P: Reals
    """What it sees of each task."""
    slope: float = 0.0
    offset: float = 0.0

    def logits(self, places: Places) -> Reals:
        """Predictions before the sigmoid."""
        return np.asarray(self.offset + self.slope * self.seen_P[places])

    def learn(self, places: Places, target_B: Reals, steps: int = 8, rate: float = 0.5) -> None:
        """Steps of gradient descent on the likelihood of the targets."""
        x_B = self.seen_P[places]
        for _ in range(steps):
            error_B = target_B - 1.0 / (1.0 + np.exp(-self.logits(places)))
            self.offset += rate * float(error_B.mean())
            self.slope += rate * float((error_B * x_B).mean()) / (1.0 + float((x_B**2).mean()))


@dataclass(kw_only=True)
class SimulatedProbe:
    """What a curriculum may use, of a learner in place of a run."""

    learner: Learner
    values: ValueModel
    squashes: bool

    held_out: frozenset[str] = frozenset()
    """No tasks are held out."""

    @property
    def samplers(self) -> Mapping[str, Sampler]:
        """A policy that has prompts, and writes nothing."""
        return {"policy": cast(Sampler, _Prompts(self.learner))}

    async def collect(self, tasks: Sequence[Task], n: int | None) -> list[Group]:
        """Rollouts of the learner as it is."""
        return self.learner.sample(self.learner.places(tasks), n or self.learner.n)[0]

    async def mlp_inputs(self, role: str, token_ids: Sequence[IntArray]) -> list[FloatArray]:
        """Two unit vectors a sequence. The angle of a prompt's rises with what is seen of the task's difficulty, by its
        rank; those of rollouts are at a right angle.
        """
        rank_P = np.argsort(np.argsort(self.values.seen_P)) / len(self.values.seen_P)
        cosine_B = [math.cos(math.pi * rank_P[ids[0] - _FIRST]) if ids[0] >= _FIRST else 0.0 for ids in token_ids]
        return [np.array([[1.0, 0.0], [c, math.sqrt(1.0 - c * c)]], np.float32) for c in cosine_B]

    async def predict(self, role: str, tasks: Sequence[Task]) -> list[float]:
        """The simulated value model's scores."""
        logit_B = self.values.logits(self.learner.places(tasks))
        found: list[float] = (logit_B if self.squashes else 1.0 / (1.0 + np.exp(-logit_B))).tolist()
        return found


@dataclass(frozen=True)
class _Prompts:
    """A model's prompts: the task's own token, twice."""

    learner: Learner

    def prompt(self, task: Task) -> Segment:
        """Two tokens."""
        [place] = self.learner.places([task]).tolist()
        return Segment(actor="prompt", token_ids=np.array([_FIRST + place, _FIRST + place]), text=task.key)


@dataclass(frozen=True, kw_only=True)
class Played:
    """The outcome of one seed."""

    spread: float
    """Share of the groups with unequal rewards, over the first steps."""
    regret: float
    """Mean over steps of the best tasks' expected gain minus that of the chosen ones."""
    rollouts_to: float
    """Rollouts, with those of probes, until the goal is reached; NaN where it was not."""
    accuracy: float
    """After the last step."""
    probes: float
    """Share of all rollouts that were probes."""
    shares: Mapping[str, float]
    """Share of the chosen tasks by domain."""


def play(
    curriculum: Curriculum | Literal["oracle", "oversampled"],
    learner: Learner,
    *,
    prompts: int,
    steps: int,
    goal: float,
    seed: int,
    shuffled: bool = False,
) -> Played:
    """Train a learner on what a curriculum chooses.

    In place of one, ``oracle`` takes the tasks with the largest expected gain, and ``oversampled`` rolls out eight
    times as many and learns from those with a share nearest one half. `shuffled` gives the value model other tasks'
    difficulties.
    """
    pool, rng = learner.pool, np.random.default_rng([seed, 3])
    seen_P = pool.difficulty_P + rng.normal(0.0, NOISE, len(pool.tasks))
    values = ValueModel(seen_P=rng.permutation(seen_P) if shuffled else seen_P)
    chooser = curriculum if isinstance(curriculum, Curriculum) else None
    probe = SimulatedProbe(learner=learner, values=values, squashes=chooser.squashes if chooser else False)
    state: Any = chooser.start() if chooser else {}
    groups: list[Group] = []
    spread, regret, reached, taken = [], [], math.nan, np.zeros(len(pool.tasks))
    for step in range(steps):
        if math.isnan(reached) and learner.accuracy >= goal:
            reached = float(learner.rollouts)
        gain_P = learner.gain_P
        if chooser is not None:
            state = wait_for(chooser.look(state, pool.tasks, probe, prompts, seed=seed, step=step))
            state, picks = chooser.select(state, pool.tasks, prompts, seed=seed, step=step)
            places = learner.places([pick.task for pick in picks])
            groups, share_B = learner.sample(places, learner.n)
        elif curriculum == "oracle":
            places = np.argsort(-gain_P, kind="stable")[:prompts]
            groups, share_B = learner.sample(places, learner.n)
        else:
            places, share_B = _oversample(learner, prompts, rng)
        learner.learn(places, share_B)
        if chooser is not None:
            state = chooser.observe(state, groups)
            teach(values, learner, chooser.targets(state, groups))
        taken += np.bincount(places, minlength=len(taken))
        spread.append(np.mean((share_B > 0.0) & (share_B < 1.0)))
        regret.append(np.sort(gain_P)[-prompts:].mean() - gain_P[places].mean())
    return Played(
        spread=float(np.mean(spread[:SPREAD_STEPS])),
        regret=float(np.mean(regret)),
        rollouts_to=reached,
        accuracy=learner.accuracy,
        probes=1.0 - prompts * learner.n * steps / learner.rollouts,
        shares=_shares(pool, taken),
    )


def teach(values: ValueModel, learner: Learner, targets: Sequence[Target]) -> None:
    """Train the value model on what the curriculum gives it."""
    if targets:
        places = learner.places([target.task for target in targets])
        values.learn(places, np.array([target.value for target in targets]))


def _oversample(learner: Learner, prompts: int, rng: np.random.Generator) -> tuple[Places, Reals]:
    """Eight times as many groups, and of those the ones with a share nearest one half: places and shares."""
    size = len(learner.pool.tasks)
    places = rng.choice(size, size=min(8 * prompts, size), replace=False)
    _, share_C = learner.sample(places, learner.n)
    nearest = np.argsort(np.abs(share_C - 0.5), kind="stable")[:prompts]
    return places[nearest], share_C[nearest]


def _shares(pool: Pool, taken_P: Reals) -> dict[str, float]:
    total: dict[str, float] = {}
    for task, count in zip(pool.tasks, taken_P.tolist(), strict=True):
        total[task.domain] = total.get(task.domain, 0.0) + count
    return {domain: count / max(sum(total.values()), 1.0) for domain, count in sorted(total.items())}


def _rollout(task: Task, solved: bool) -> Trajectory:
    """A rollout with one token, the same for all, so that no two differ in diversity."""
    token = Segment(actor="policy", token_ids=np.array([1]), trained=True, logp=np.zeros(1, np.float32), text="x")
    prompt = Segment(actor="prompt", token_ids=np.array([0]), text=task.key)
    score = Score(value=float(solved), status="ok" if solved else "wrong")
    return Trajectory(task=task, segments=(prompt, token), stop_reason="stop", score=score)
