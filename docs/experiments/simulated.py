"""Schedules in the simulator and in runs: seconds of a step where sampling takes a stated time.

    python docs/experiments/simulated.py --write

The runs are GRPO with the schedules of the package, their journals and their threads. What is simulated in them is the
time of a model: a completion waits `--second` for the mean length, its tokens are drawn without a model, and an update
waits as long as the mean. Lengths are log-normal with sigma 1, cut at eight means, and there is a place for each of
them. Sampling goes on in a thread beside the learner, as with samplers in processes of their own. The simulator
(`posttrain.cluster.planning.streams`) has the lengths that the run had: of the groups of each step for a lag, and of
all groups in the order of their start for streaming. Seconds are those of all steps but the first three.
"""

import argparse
import asyncio
import json
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from posttrain.cluster.local import Here
from posttrain.cluster.planning.streams import Machines, lagged, streaming
from posttrain.components.timetables.in_turn import InTurn
from posttrain.components.timetables.lagged import Lagged
from posttrain.components.timetables.streaming import Streaming
from posttrain.engines import Counters
from posttrain.engines._continuous import ContinuousServer
from posttrain.policies.folder import new_folder
from posttrain.recipes.files import find_recipe
from posttrain.recipes.tree import Recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.stages.rl.roles import RoleTraining
from posttrain.types import Completion

MEAN, MOST, FIRST = 16, 128, 3
"""Tokens of a mean and of the longest completion; steps that are not counted."""
PROMPTS, N = 8, 2
MARK = 128
"""Ids from here on are those of completions: the first one states the length."""
SCHEDULES: dict[str, Any] = {
    "alternating": InTurn(),
    "lag 1, batch after batch": Lagged(steps=1, overlapped=False),
    "lag 1, overlapped": Lagged(steps=1),
    "lag 2, overlapped": Lagged(steps=2),
    "streaming, quota 4": Streaming(eta=4, piece=4, order="clock"),
}
REWARD = """
def even(completion, task):
    given = completion.encode()
    return sum(byte % 2 == 0 for byte in given) / max(len(given), 1)
"""
COLUMNS = ["schedule", "simulated, s a step", "run, s a step", "off, %"]
LENGTHS = np.clip(np.sort(np.random.default_rng(0).lognormal(-0.5, 1.0, 128)) * MEAN, 1, MOST).astype(int)
"""By the first id."""


@dataclass
class Clock:
    """What a run's model takes, and what it had to do."""

    second: float
    """Seconds of a mean completion."""
    works: list[list[float]] = field(default_factory=list)
    """Of the longest completion of each group, in the order of their start."""
    begun: list[float] = field(default_factory=list)
    learned: list[float] = field(default_factory=list)
    """When each step had been learned from."""


def patched(clock: Clock) -> None:
    """Let models take a stated time, and sampling go on beside the learner."""

    async def complete(
        server: ContinuousServer, token_ids: Any, keys: list[int], sampling: Any, *_: Any
    ) -> list[Completion]:
        done = len(token_ids) - int(np.flatnonzero(np.append(-1, token_ids) < MARK)[-1])
        firsts = [int(token_ids[len(token_ids) - done])] * len(keys) if done else [MARK + key % MARK for key in keys]
        wanted = [int(LENGTHS[number - MARK]) for number in firsts]
        if not done:
            clock.works.append([max(wanted) / MEAN])
        counts = [min(length - done, int(sampling.max_tokens)) for length in wanted]

        async def one(key: int, number: int, length: int, count: int) -> Completion:
            await asyncio.sleep(count / MEAN * clock.second)
            ids = MARK + np.random.default_rng((key, done)).integers(0, MARK, count)
            ids[0] = ids[0] if done else number
            logp = np.full(count, -np.log(256.0), np.float32)
            reason: Any = "stop" if done + count == length else "length"
            return Completion(token_ids=ids, logp=logp, stop_reason=reason, version=server.policy.version, text="a")

        found = await asyncio.gather(*map(one, keys, firsts, wanted, counts))
        server._count(Counters(sampled_tokens=sum(counts)))
        return list(found)

    def beside(_: Here, policies: Any, work: Callable[[], Any]) -> Callable[[], Any]:
        return pool.submit(copy_context().run, work).result

    before = RoleTraining.update

    def update(training: RoleTraining, *given: Any, **named: Any) -> Any:
        began = time.perf_counter()
        found = before(training, *given, **named)
        time.sleep(max(0.0, clock.second - (time.perf_counter() - began)))
        clock.learned.append(time.perf_counter())
        return found

    pool = ThreadPoolExecutor()
    patch.object(ContinuousServer, "complete", complete).start()
    patch.object(Here, "beside", beside).start()
    patch.object(RoleTraining, "update", update).start()


def recipe_of(schedule: Any, steps: int, folder: Path) -> Recipe:
    """GRPO of a tiny model."""
    model = folder / "tiny"
    if not model.exists():
        new_folder(model, layers=1, width=16, heads=2, kv_heads=1, context=512)
    (folder / "even.py").write_text(REWARD)  # its processes start sooner than with this module's imports
    changes = ["threads=1", f"model={model}", f"reward={folder}/even.py:even", f"prompts={PROMPTS}", f"rollout.n={N}"]
    changes += [f"steps={steps}", "evaluation.by=none", "filters={}", f"rollout.sampling.max_tokens={MOST}"]
    return replace(find_recipe("grpo", changes), schedule=schedule)


def simulated(schedule: Any, works: list[float], steps: int) -> float:
    """Seconds of a step in units of a mean length."""
    machines = Machines(places=10 * len(works), train=1.0)
    if isinstance(schedule, Streaming):
        ends = streaming(works, machines, batch=PROMPTS, steps=steps, eta=schedule.eta).trained
    else:
        by_step = [works[s * PROMPTS : (s + 1) * PROMPTS] for s in range(steps)]
        overlapped = isinstance(schedule, Lagged) and schedule.overlapped
        ends = lagged(by_step, machines, schedule.ahead, overlapped=overlapped)
    return (ends[-1] - ends[FIRST - 1]) / (steps - FIRST)


def row(name: str, steps: int, second: float, folder: Path) -> list[str]:
    """A schedule."""
    clock.second, clock.works, clock.learned = second, [], []
    start(recipe_of(SCHEDULES[name], steps, folder), folder / name, LiveView(lines=True))
    run = (clock.learned[-1] - clock.learned[FIRST - 1]) / (steps - FIRST)
    own = simulated(SCHEDULES[name], [work for [work] in clock.works], steps) * second
    print(json.dumps([name, own, run, threading.active_count()]), flush=True)
    return [name, f"{own:.2f}", f"{run:.2f}", f"{100 * (own / run - 1):+.0f}"]


clock = Clock(second=1.0)


def main() -> None:
    """Print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--second", type=float, default=0.5, help="Seconds of a mean completion, and of an update.")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--write", action="store_true", help="Write docs/measured/cluster/simulated.json.")
    given = parser.parse_args()
    patched(clock)
    with tempfile.TemporaryDirectory() as folder:
        table = [row(name, given.steps, given.second, Path(folder)) for name in SCHEDULES]
    found = {
        "title": "Schedules in the simulator and in runs",
        "command": "python docs/experiments/simulated.py --write",
        "tables": [
            {
                "caption": f"{given.steps} steps of {PROMPTS} groups; a mean completion and an update wait for "
                f"{given.second:g} s, no model is asked.",
                "columns": COLUMNS,
                "rows": table,
            }
        ],
    }
    print(json.dumps(found, indent=1))
    if given.write:
        to = Path(__file__).parents[1] / "measured" / "cluster" / "simulated.json"
        to.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
