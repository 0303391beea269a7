"""What a sampled token costs in conversations of many turns, beside one in a single turn.

    python -m benchmarks.turns [--model pebble] [--turns 13] [--attempts 64] [--rounds 7] [--output FILE]

Attempts at tasks of the bundled suite are made together, in a world that always answers the same, so that none ends
early. Each turn's context is all that was said before. Three sides take turns: a single turn, many turns, and many
turns whose prefixes are not kept. The time is that of the processor, so that other programs change it little, of the
whole rollout: the world, the templates and Python included. The ratio of a round is of its own times; the median
counts. All sides of many turns must sample the same tokens with the same log-probabilities.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome
from posttrain.components.rollouts.turns import Turns
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.engines import Sampling, wait_for
from posttrain.engines._continuous import ContinuousServer
from posttrain.engines.native import Native
from posttrain.models import Model
from posttrain.policies.loading import load_language_model
from posttrain.types import Task, Trajectory

GROUP = 8
"""Attempts at a task."""


@frozen
class Again(Environment):
    """Answers every turn with the same text."""

    text: str = "\nQ: 12+7\nA:"

    def instance(self, task: Task, draw: Draw) -> Instance:
        """A conversation without end."""
        return _Again(self.text)


class _Again(Instance):
    def __init__(self, text: str) -> None:
        self._text = text

    def begin(self) -> Observation:
        return Observation(text="")

    async def step(self, text: str) -> Outcome:
        return Outcome(observation=Observation(text=self._text), reward=0.0, done=False)


SAMPLING = Sampling(max_tokens=24)


def played(server: ContinuousServer, tasks: Sequence[Task], turns: int, number: int) -> tuple[float, list[Trajectory]]:
    """Seconds of the processor, and the trajectories."""
    rollout = Turns(environment=Again(), n=GROUP, max_turns=turns, sampling=SAMPLING)

    async def run() -> list[Trajectory]:
        samplers = [{"policy": server.bind(number, task.key)} for task in tasks]
        found = await asyncio.gather(*(rollout.collect(t, s) for t, s in zip(tasks, samplers, strict=True)))
        return [trajectory for groups in found for group in groups for trajectory in group.trajectories]

    began = time.process_time()
    trajectories = wait_for(run())
    return time.process_time() - began, trajectories


def sampled(trajectories: Sequence[Trajectory]) -> list[tuple[bytes, bytes]]:
    """Ids and log-probabilities of all turns of the model."""
    return [
        (segment.token_ids.tobytes(), segment.logp.tobytes())
        for trajectory in trajectories
        for segment in trajectory.segments
        if segment.logp is not None
    ]


def tokens_of(trajectories: Sequence[Trajectory]) -> int:
    """Sampled tokens."""
    return sum(len(s.token_ids) for t in trajectories for s in t.segments if s.logp is not None)


def main() -> None:
    """Print the table, and write it to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="pebble")
    parser.add_argument("--turns", type=int, default=13)
    parser.add_argument("--attempts", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    policy = load_language_model("policy", Model(source=given.model), {}, torch.device("cpu"))
    tasks = Arithmetic(size=given.attempts // GROUP).load()
    server = Native().serve(policy, 0)
    for number in range(given.rounds + 1):
        one, t1 = played(server, tasks, 1, number)
        many, t13 = played(server, tasks, given.turns, number)
        n1, n13 = tokens_of(t1), tokens_of(t13)
        print(f"{n1} {n13} {len(t13[0].segments)} {1e3 * one / n1:.3f} {1e3 * many / n13:.3f} {many / n13 / (one / n1):.2f}", server.counters.prompt_tokens)


if __name__ == "__main__":
    main()
