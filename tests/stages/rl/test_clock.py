"""Streaming by the clock: no piece waits for another, and the journal gives the weights."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from posttrain.component.user_code import allowing
from posttrain.components.curricula import Pick
from posttrain.components.timetables.streaming import Streaming
from posttrain.engines import Sampling
from posttrain.policies.folder import new_folder
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.runs.replaying import different_files, replay
from posttrain.stages.rl.flight import Flight
from posttrain.stages.rl.pieces import PiecedSampler, Progress
from posttrain.types import Completion, Group
from tests.builders import ScriptedSampler, task
from tests.stages.rl.test_stream import streamed


class Slow(ScriptedSampler):
    """Takes some seconds for each piece; writes ten tokens in all."""

    seconds = 0.0

    def bind(self, *key: int | str) -> "Slow":
        bound = Slow(*self.key, *key)
        bound.seconds = self.seconds
        return bound

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        await asyncio.sleep(self.seconds)
        ids = np.full(sampling.max_tokens, 97, np.int64)
        return [Completion(token_ids=ids, logp=-ids.astype(np.float32), stop_reason="length", version=0, text="a")]


def test_a_group_ends_while_a_piece_of_another_is_under_way() -> None:
    """Five pieces of one group beside the first of the other, which is waited for in the end, and no longer."""
    flight, numbers = Flight(), list[int]()
    for number, seconds in enumerate((0.5, 0.0)):
        sampler, progress = Slow("key", number), Progress(number=number)
        sampler.seconds = seconds
        pieced = PiecedSampler(sampler, "policy", progress, flight.gate, 2)

        async def work(pieced: PiecedSampler = pieced) -> list[Group]:
            await pieced.sample(np.array([1, 98]), 1, Sampling(max_tokens=10))
            return []

        flight.begin(progress, Pick(task=task()), 0, work())
    written, ended = flight.flow(lambda: False)
    assert [flown.progress.number for flown in ended] == [1]
    numbers += [asked.progress.number for asked in written]
    assert numbers == [1] * 5
    written, ended = flight.land()
    assert ([asked.progress.number for asked in written], ended) == ([0], [])
    assert [asked.progress.number for asked in flight.gate.waiting] == [0]
    flight.close()


@pytest.mark.slow
def test_the_journal_of_a_run_by_the_clock_gives_its_weights(tmp_path: Path) -> None:
    tiny = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=256)
    recipe = streamed(Streaming(eta=2, piece=2, order="clock", caches="kept"), tiny, tmp_path)
    folder, _ = start(recipe, tmp_path, LiveView(lines=True))
    entries = [json.loads(line) for line in (folder / "stream.jsonl").read_text().splitlines()]
    assert len(entries) == 5 and all(entry["batch"] for entry in entries)
    with allowing(trust=True):
        new, _ = replay(folder, tmp_path / "again", LiveView(lines=True))
    assert different_files(folder / "model", new / "model") == []
