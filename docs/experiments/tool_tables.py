"""Tool calls by a table: does partial credit lead to whole calls earlier, and what does the reward of length lengthen?

    python docs/experiments/tool_tables.py --seeds 5

Sheet of row 170 (arXiv:2504.13958). A request for one of four tools with three parameters of four values each. A table
draws the tool, each value and the words of the thought (0, 8, 32, 128 or 512) independently, all alike at first, so
that one call in 256 is right. Groups of 4, 16 a step, 200 steps of GRPO at a rate of 2 with the values of `tool_calls`:
a point for the names, parameter names and values (``fine``), for each whole call besides the names (``intermediate``),
or all or nothing (``coarse``), and ``fine`` with the reward of length. Reported are the first step in which half, and
nine in ten, of the calls are right (200 where none is), the groups without spread in the first 20 steps, right calls
and words of the thought in the last 10.
"""

import argparse
import asyncio
import json
from functools import cache

import numpy as np

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.tool_calls import ToolCalls
from posttrain.statistics.intervals import mean
from posttrain.types import Group, Segment, Task, Trajectory

SIZES, WORDS = (4, 4, 4, 4, 5), (0, 8, 32, 128, 512)
GROUPS, GROUP, STEPS, RATE = 16, 4, 200, 2.0


def call(choice: tuple[int, ...]) -> str:
    """A call: a tool, and its parameters."""
    return json.dumps({"name": f"tool_{choice[0]}", "parameters": dict(zip("abc", choice[1:4], strict=True))})


TASK = Task(key="request", prompt="Call tool_0 with a = 0, b = 0 and c = 0.", answer=call((0, 0, 0, 0)))


@cache
def value(reward: ToolCalls, choice: tuple[int, ...]) -> tuple[float, bool]:
    """The reward of a completion, and whether its calls are right."""
    thought = " ".join(["so"] * WORDS[choice[4]])
    text = f"<think>{thought}</think>\n<tool_call>\n{call(choice)}\n</tool_call>"
    segment = Segment(actor="policy", token_ids=np.zeros(1, np.int64), trained=True, text=text)
    rollout = Trajectory(task=TASK, segments=(segment,), stop_reason="stop", sample=0)
    [score] = asyncio.run(reward.score(Group(key="g", trajectories=(rollout,)), RewardContext()))  # type: ignore[arg-type]
    return score.value, choice[:4] == (0, 0, 0, 0)


def run(reward: ToolCalls, seed: int) -> tuple[float, ...]:
    """First steps with half and nine in ten right, groups without spread, right calls and words at the end."""
    rng, logits = np.random.default_rng([seed, 170]), [np.zeros(size) for size in SIZES]
    right, still, words = [], [], []
    for _ in range(STEPS):
        p = [np.exp(own - own.max()) / np.exp(own - own.max()).sum() for own in logits]
        drawn = np.stack([rng.choice(len(own), (GROUPS, GROUP), p=own) for own in p], -1)
        scored = [[value(reward, tuple(map(int, one))) for one in group] for group in drawn]
        reward_GN = np.array([[one[0] for one in group] for group in scored])
        spread_G1 = reward_GN.std(1, ddof=1, keepdims=True)
        advantage_GN = (reward_GN - reward_GN.mean(1, keepdims=True)) / (spread_G1 + 1e-6)
        for place, own in enumerate(p):
            chosen_GNV = np.eye(len(own))[drawn[:, :, place]]
            logits[place] = logits[place] + RATE * (advantage_GN[..., None] * (chosen_GNV - own)).mean((0, 1))
        right.append(np.mean([one[1] for group in scored for one in group]))
        still.append(np.mean(spread_G1 < 1e-9))
        words.append(np.mean([WORDS[i] for i in drawn[:, :, 4].ravel()]))
    first = [next((step for step, own in enumerate(right) if own >= share), STEPS) for share in (0.5, 0.9)]
    return (*map(float, first), 100 * np.mean(still[:20]), 100 * np.mean(right[-10:]), float(np.mean(words[-10:])))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds, table = range(parser.parse_args().seeds), []
    arms = {name: ToolCalls(match=name) for name in ("fine", "intermediate", "coarse")}  # type: ignore[arg-type]
    for name, reward in {**arms, "fine, with length": ToolCalls(length=True)}.items():
        found = [mean(values) for values in np.array([run(reward, seed) for seed in seeds]).T]
        table.append([name, *(f"{own.value:.1f} [{own.interval.low:.1f}, {own.interval.high:.1f}]" for own in found)])
    columns = ["reward", "half right, step", "nine in ten, step", "groups without spread, %", "right, %", "words"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
