"""Hints for hard tasks, noise for easy ones."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from posttrain.components.rollouts import Prefix
from posttrain.components.rollouts.adjusted import Adjusted, noised
from posttrain.datasets.images import pixels_of, write_png
from posttrain.engines import Sampling
from posttrain.types import Completion, Group, Image, Task
from tests.builders import ScriptedSampler, score, task

SUM = task("sum", prompt="2+2=", answer="4")
ROLLOUT = Adjusted(n=3, request="[{answer}] {question}", traces=2)


class Writer(ScriptedSampler):
    """Writes these traces where the prompt shows the answer, and remembers the other prompts."""

    def __init__(self, *traces: str) -> None:
        super().__init__("policy")
        self.traces, self.prompts = traces, list[str]()

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        prompt = bytes(int(i) for i in token_ids if i > 1).decode()
        if "[4]" not in prompt:
            self.prompts.append(prompt)
            return await super().sample(token_ids, n, sampling, vectors)
        ids = [np.array([*text.encode()], np.int64) for text in self.traces[:n]]
        return [Completion(token_ids=x, logp=np.zeros(len(x), np.float32), stop_reason="stop", version=3, text=t)
                for x, t in zip(ids, self.traces, strict=False)]  # fmt: skip


async def scorer(group: Group) -> Group:
    """1 where the text ends with the answer."""
    return replace(group, trajectories=tuple(t.scored(score(float(t.completion.endswith("4")))) for t in group))


def collected(delta: float | None, *traces: str, **settings: Any) -> tuple[Group, Writer]:
    policy = Writer(*traces)
    fields = {} if delta is None else {"delta": delta}
    of = replace(SUM, fields=fields)
    [group] = asyncio.run(replace(ROLLOUT, **settings).collect_scored(of, {"policy": policy}, scorer))
    return group, policy


@pytest.mark.parametrize(
    ("delta", "hint", "tokens"), [(0.25, "ab", 2), (0.5, "abcd", 4), (0.9, "abcd", 4), (0.1, "", 0), (None, "", 0)]
)
def test_a_part_of_the_best_trace(delta: float | None, hint: str, tokens: int) -> None:
    """The trace that ends right has 8 tokens before the marker; at most half of them are shown."""
    group, policy = collected(delta, "xxxxxxxx####5", "abcdefgh####4")
    assert policy.prompts == [f"2+2={hint}"] and len(group) == 3
    for attempt in group:
        assert attempt.fact(Prefix).prefix_tokens == tokens  # type: ignore[union-attr]
        assert attempt.task.prompt == "2+2=" and attempt.segments[0].text.endswith(hint)


def test_an_easy_text_is_left_as_it_is() -> None:
    _, policy = collected(-0.8, "unused")
    assert policy.prompts == ["2+2="]


def test_noise_on_pixels_grows_with_the_distance() -> None:
    """Mid-grey, so that little is clipped: the std is what is asked for, and 0 changes nothing."""
    image = Image(data=write_png(np.full((40, 40, 3), 128, np.uint8)))
    for deviation in (0.0, 8.0, 16.0):
        pixels = pixels_of(noised(image, deviation, ScriptedSampler("policy")))
        assert float(pixels.astype(float).std()) == pytest.approx(deviation, rel=0.05, abs=1e-9)


def test_an_easy_picture_is_seen_with_noise() -> None:
    seen: list[Task] = []

    class Watching(Writer):
        def prompt(self, task: Task) -> Any:
            seen.append(task)
            return super().prompt(task)

    image = Image(data=write_png(np.full((4, 4, 3), 128, np.uint8)), name="grey")
    of = replace(SUM, images=(image,), fields={"delta": -0.5})
    [group] = asyncio.run(ROLLOUT.collect_scored(of, {"policy": Watching()}, scorer))
    assert seen[0].images[0].data != image.data and seen[0].images[0].name == "grey"
    assert group.trajectories[0].task.images == (image,)
