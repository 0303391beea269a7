"""What a sampled token costs in conversations of many turns, beside one in a single turn.

    python -m benchmarks.turns [--model pebble] [--turns 13] [--rollouts 64] [--rounds 7] [--output FILE]

Rollouts of arithmetic tasks run together, in an environment that always has another question, so that none ends early.
Each turn's context is the whole text before it. Three sides take turns: a single turn; many turns; many turns whose
prefixes do not stay computed. The time is that of the processor, which other programs change little, of the whole
rollout: the environment, the templates and Python included. The ratio of a round is of its own times. Medians count.
Both sides of many turns must sample the same tokens with the same log-probabilities.
"""

import argparse
import asyncio
import json
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome
from posttrain.components.rollouts.turns import Turns
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.engines import Sampling, wait_for
from posttrain.engines._continuous import ContinuousServer
from posttrain.engines.native import Native
from posttrain.models import Model
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.policies.loading import load_language_model
from posttrain.types import Task, Trajectory

GROUP: Final = 8
"""Rollouts of a task."""
SAMPLING: Final = Sampling(max_tokens=24)


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


def played(
    server: ContinuousServer, tasks: Sequence[Task], turns: int, number: int
) -> tuple[float, list[Trajectory], int]:
    """Seconds of the processor, the trajectories, and the bytes of keys and values that had stayed at the end."""
    rollout = Turns(environment=Again(), n=GROUP, max_turns=turns, sampling=SAMPLING)

    async def run() -> tuple[list[Trajectory], int]:
        samplers = [{"policy": server.bind(number, task.key)} for task in tasks]
        found = await asyncio.gather(*(rollout.collect(t, s) for t, s in zip(tasks, samplers, strict=True)))
        return [t for groups in found for group in groups for t in group.trajectories], server.prefix_bytes_held

    began = time.process_time()
    trajectories, held = wait_for(run())
    return time.process_time() - began, trajectories, held


def sampled(trajectories: Sequence[Trajectory]) -> list[tuple[bytes, bytes]]:
    """Ids and log-probabilities of all turns of the model."""
    segments = [s for t in trajectories for s in t.segments]
    return [(s.token_ids.tobytes(), s.logp.tobytes()) for s in segments if s.logp is not None]


def tokens_of(trajectories: Sequence[Trajectory]) -> int:
    """Sampled tokens."""
    return sum(len(s.token_ids) for t in trajectories for s in t.segments if s.logp is not None)


def measured(policy: LanguageModelPolicy, rollouts: int, turns: int, rounds: int) -> dict[str, Any]:
    """Medians over the rounds, after one that warms up."""
    tasks = Arithmetic(size=rollouts // GROUP).load()
    kept, without = (served(policy, size) for size in (Native().prefix_bytes, 0))
    times: dict[str, list[float]] = {"single": [], "kept": [], "without": []}
    before = kept.counters
    for number in range(rounds + 1):
        sides = {"single": (kept, 1), "kept": (kept, turns), "without": (without, turns)}
        names = list(sides) if number % 2 else list(sides)[::-1]
        found, held = {}, {}
        for name in names:
            seconds, found[name], held[name] = played(sides[name][0], tasks, sides[name][1], number)
            times[name].append(1e3 * seconds / tokens_of(found[name]))
        assert sampled(found["kept"]) == sampled(found["without"]), "the same answers, to the bit"
        if not number:
            before = kept.counters
    done = kept.counters - before
    rows = list(zip(*(times[name][1:] for name in ("single", "kept", "without")), strict=True))
    return {
        "milliseconds_a_token": {name: statistics.median(column[1:]) for name, column in times.items()},
        "kept_against_single": ratios([many / one for one, many, _ in rows]),
        "without_against_single": ratios([many / one for one, _, many in rows]),
        "tokens_of_prompts_reused": done.reused_tokens / (done.reused_tokens + done.prompt_tokens),
        "bytes_held": held["kept"],
        "tokens": sum(len(t.token_ids) for t in found["kept"]),
    }


def served(policy: LanguageModelPolicy, prefix_bytes: int) -> ContinuousServer:
    """A server of its own."""
    server = Native(prefix_bytes=prefix_bytes).serve(policy, 0)
    assert isinstance(server, ContinuousServer), "it writes text"
    return server


def ratios(found: Sequence[float]) -> dict[str, float]:
    """Of the rounds."""
    return {"median": statistics.median(found), "least": min(found), "most": max(found)}


def main() -> None:
    """Print the table, and write it to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="pebble")
    parser.add_argument("--turns", type=int, default=13)
    parser.add_argument("--rollouts", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    policy = load_language_model("policy", Model(source=given.model), {}, torch.device("cpu"))
    loads = [os.getloadavg()[0]]
    found = measured(policy, given.rollouts, given.turns, given.rounds)
    loads.append(os.getloadavg()[0])
    found |= {name: getattr(given, name) for name in ("model", "turns", "rollouts", "rounds")}
    found["machine"] = {"load_before": loads[0], "load_after": loads[1], "threads": torch.get_num_threads()}
    print(json.dumps(found, indent=1))
    if given.output is not None:
        given.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
