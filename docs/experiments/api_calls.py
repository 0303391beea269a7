"""LOOP on the shop with a table over states in place of a model: ratios of tokens and of whole episodes, over epochs.

The table starts as after imitation of random calls with the shortest plan in a fifth of the cases. A turn is one token.
8 tasks of 6 rollouts a step; the advantage, the filter, the objectives and the reducer are those of the package; Adam
with a rate of 0.05; each step is learned from in several epochs of two minibatches. Measured is the share of 200
sampled episodes of new tasks in which every check passes, after 10, 20 and 40 steps; ``episodes`` has turns, calls and
regret of the last ones as well.

    python docs/experiments/api_calls.py
"""

import argparse
import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from episodes import episode_row

from posttrain.components.advantages import Advantage
from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.advantages.pool_mean import PoolMean
from posttrain.components.environments import Episode
from posttrain.components.environments.shop import Shop
from posttrain.components.filters.near_baseline import NearBaseline
from posttrain.components.objectives import Objective
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.objectives.sequence_clip import SequenceClip
from posttrain.components.reducers.sequences import Sequences
from posttrain.stages.rl.credit import token_rewards
from posttrain.statistics.intervals import mean
from posttrain.types import Batch, Group, Score, Segment, Task, Tokens, Trajectory

TASKS, ROLLOUTS, STEPS, FRESH = 8, 6, 40, 200
LOW, HIGH = 1 - 1 / 1.1, 0.1


@dataclass(frozen=True, kw_only=True)
class Arm:
    """What is compared."""

    objective: Objective = field(default_factory=lambda: PPOClip(clip_low=LOW, clip_high=HIGH))
    advantage: Advantage = field(default_factory=lambda: PoolMean(itself=False))
    epochs: int = 4
    smallest: float = 0.01


ARMS = {
    "token ratios, 1 epoch": Arm(epochs=1),
    "token ratios, 4 epochs (LOOP)": Arm(),
    "episode ratios, 4 epochs": Arm(objective=SequenceClip(clip_low=LOW, clip_high=HIGH, ratio="product")),
    "mean and std in place of leave-one-out": Arm(advantage=GroupMean(), smallest=0.0),
}


class Table:
    """Logits by state; a state is known once it is met."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.places: dict[str, int] = {}
        self.logits = torch.zeros(512, 8, dtype=torch.float64, requires_grad=True)

    def place(self, state: str, plan: int) -> int:
        """The row of a state. A new one is as after imitation: in a fifth of the cases the call of the plan."""
        if state not in self.places:
            self.places[state] = len(self.places)
            chance_K = torch.full((8,), 0.1, dtype=torch.float64)
            chance_K[plan] += 0.2
            self.logits.data[self.places[state]] = chance_K.log()
        return self.places[state]

    async def play(self, name: str, horizon: int = 10) -> tuple[Trajectory, list[int]]:
        """One episode, scored, and the rows of its states."""
        task = Task(key=name, prompt="")
        instance: Any = Shop(horizon=horizon).instance(task, self.rng.random)
        seen, rows = instance.begin(), []
        segments = [Segment(actor="prompt", token_ids=np.zeros(1, np.int64))]
        while True:
            rows.append(self.place(seen.state_key, seen.legal.index(await instance.solution())))
            logp = torch.log_softmax(self.logits.detach()[rows[-1]], 0).numpy()
            action = int(self.rng.choice(8, p=np.exp(logp) / np.exp(logp).sum()))
            ids = np.array([action], np.int64)
            own = Segment(actor="policy", token_ids=ids, trained=True, logp=logp[ids].astype(np.float32))
            segments.append(own)
            outcome = await instance.step(seen.legal[action])
            seen = outcome.observation
            if outcome.done:
                break
        verdict = instance.verdict()
        score = Score(value=verdict.value, status="ok" if verdict.solved else "wrong")
        facts = (Episode(measures=instance.measures()),)
        return Trajectory(
            task=task, segments=tuple(segments), stop_reason="environment", score=score, facts=facts
        ), rows


def learn(arm: Arm, table: Table, optimizer: torch.optim.Optimizer, names: list[str]) -> None:
    """One step: sample, compare, filter, and update."""
    played = {name: [asyncio.run(table.play(name)) for _ in range(ROLLOUTS)] for name in names}
    rows = {id(t): own for several in played.values() for t, own in several}
    groups = [Group(key=name, trajectories=tuple(t for t, _ in several)) for name, several in played.items()]
    _, groups, _ = NearBaseline(smallest=arm.smallest)({}, groups)
    if not groups:
        return
    batch = Batch(groups=tuple(groups), token_rewards=tuple(token_rewards(t, ()) for g in groups for t in g))
    _, credit = arm.advantage({}, batch)
    both = list(zip(batch.trajectories, credit.advantages, strict=True))
    for _ in range(arm.epochs):
        order = table.rng.permutation(len(both))
        for part in np.array_split(order, 2):
            if not len(part):
                continue
            loss = loss_of(arm.objective, table, [(*both[i], rows[id(both[i][0])]) for i in part])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def loss_of(objective: Objective, table: Table, part: list[tuple[Trajectory, np.ndarray, list[int]]]) -> torch.Tensor:
    """The loss of a minibatch: means over tokens, over a constant number of rollouts."""
    length_N = np.array([len(rows) for *_, rows in part])
    actions = [int(s.token_ids[0]) for t, *_ in part for s in t.segments if s.trained]
    old_T = torch.tensor(np.concatenate([t.behavior_logp for t, *_ in part]).astype(np.float64))
    all_TK = torch.log_softmax(table.logits[[row for *_, rows in part for row in rows]], 1)
    logp_T = all_TK.gather(1, torch.tensor(actions)[:, None])[:, 0]
    one_N = torch.zeros(len(part), dtype=torch.float64)
    sequence_T = torch.tensor(np.repeat(np.arange(len(part)), length_N))
    tokens = Tokens(
        logp_T=logp_T,
        behavior_logp_T=old_T,
        old_logp_T=old_T,
        advantage_T=torch.tensor(np.concatenate([a for _, a, _ in part]).astype(np.float64)),
        sequence_T=sequence_T,
        group_N=torch.arange(len(part)),
        turn_T=torch.zeros_like(sequence_T),
        length_N=torch.tensor(length_N),
        reward_N=one_N,
        solved_N=one_N,
        group_solved_N=one_N,
    )
    weight_N = Sequences(count=TASKS * ROLLOUTS // 2).weights(length_N, np.arange(len(part)))
    return (objective(tokens).loss_T * torch.tensor(weight_N.astype(np.float64))[sequence_T]).sum()


def trained(arm: Arm, seed: int) -> dict[str, float]:
    """Success on new tasks after 10, 20 and all steps, and turns beyond the shortest plan at the end."""
    table = Table(np.random.Generator(np.random.Philox(key=seed)))
    optimizer = torch.optim.Adam([table.logits], lr=0.05)
    found = {}
    for step in range(1, STEPS + 1):
        learn(arm, table, optimizer, [f"{seed}/{step}/{i}" for i in range(TASKS)])
        if step in (10, 20, STEPS):
            fresh = [asyncio.run(table.play(f"new {seed}/{i}"))[0] for i in range(FRESH)]
            found[f"success, step {step}"] = float(np.mean([t.solved for t in fresh]))
    found["turns"] = float(np.mean([t.num_trained for t in fresh]))
    measures = [episode.measures or {} for t in fresh if (episode := t.fact(Episode)) is not None]
    return found | {name: float(np.mean([own[name] for own in measures])) for name in ("calls", "regret")}


def cell(values: list[float]) -> str:
    """A mean with its 95 % interval."""
    found = mean(np.array(values))
    return f"{found.value:.2f} [{found.interval.low:.2f}, {found.interval.high:.2f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    table, columns, episodes = [], list[str](), []
    for name, arm in ARMS.items():
        found = [trained(arm, seed) for seed in range(given.seeds)]
        columns = [name for name in found[0] if name not in ("calls", "regret")]
        table.append([name, *(cell([one[key] for one in found]) for key in columns)])
        episodes.append(episode_row(name, [{**one, "success": one[f"success, step {STEPS}"]} for one in found]))
    print(json.dumps({"columns": ["arm", *columns], "table": table, "episodes": episodes}, indent=1))


if __name__ == "__main__":
    main()
