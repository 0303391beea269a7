"""Budget forcing: how often an end is replaced, what is trained on, and what the hard budget does."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.rollouts.independent import Independent
from posttrain.components.rollouts.waiting import Forcing, Waiting
from posttrain.engines import Sampling
from posttrain.types import Completion, StopReason, Trajectory
from tests.builders import ScriptedSampler, task

END = 0


class Thinker(ScriptedSampler):
    """Writes these texts one after another; "$" is its end token, and a text is cut at the limit of tokens."""

    def __init__(self, *texts: str) -> None:
        super().__init__("policy")
        self.texts = list(texts)
        self.asked: list[str] = []

    def bind(self, *key: int | str) -> "Thinker":
        return self

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        self.asked.append(self.decode(token_ids))
        text = self.texts.pop(0)
        shown, reason = text.rstrip("$"), "stop"
        ids = [*shown.encode(), *([END] if text.endswith("$") else [])]
        if len(ids) > sampling.max_tokens:
            ids, reason = ids[: int(sampling.max_tokens)], "length"
            shown = bytes(ids).decode()
        for stop in sampling.stop:
            shown = shown.removesuffix(stop)
        stop_reason: StopReason = "stop" if reason == "stop" else "length"
        logp = -np.arange(1, len(ids) + 1, dtype=np.float32)
        return [Completion(token_ids=np.array(ids), logp=logp, stop_reason=stop_reason, version=0, text=shown)]


def rolled(texts: Sequence[str], **settings: object) -> tuple[Trajectory, Thinker]:
    rollout = replace(Waiting(n=1, wait=" wait ", sampling=Sampling(max_tokens=40)), **settings)  # type: ignore[arg-type]
    thinker = Thinker(*texts)
    [group] = asyncio.run(rollout.collect(task("q"), {"policy": thinker}))
    return group.trajectories[0], thinker


def parts(trajectory: Trajectory) -> list[tuple[str, str, bool]]:
    return [(s.actor, s.text, s.trained) for s in trajectory.segments[1:]]


def test_an_end_is_replaced_so_often() -> None:
    found, thinker = rolled(["one</think>", "two</think>", "three</think>", "a$"], waits=2)
    assert parts(found) == [
        ("policy", "one", True),
        ("environment", " wait ", False),
        ("policy", "two", True),
        ("environment", " wait ", False),
        ("policy", "three</think>", True),
        ("policy", "a", True),
    ]
    assert thinker.asked[2].endswith("one wait two wait ") and found.completion.endswith("three</think>a")
    assert found.fact(Forcing) == Forcing(waits=2, closed=False) and found.stop_reason == "stop"
    assert found.num_trained == len("one") + len("two") + len("three</think>") + len("a$")


def test_the_end_of_the_completion_is_replaced_too() -> None:
    found, _ = rolled(["one$", "two$"], waits=1)
    assert parts(found)[:2] == [("policy", "one", True), ("environment", " wait ", False)]
    assert found.stop_reason == "stop" and found.fact(Forcing) == Forcing(waits=1, closed=False)


def test_the_hard_budget_comes_first() -> None:
    """12 tokens of thoughts: one</think> takes 11 of them, so that one is left for the second thought."""
    found, _ = rolled(["one</think>", "two</think>", "a$"], waits=5, sampling=Sampling(max_tokens=12))
    assert parts(found) == [
        ("policy", "one", True),
        ("environment", " wait ", False),
        ("policy", "t", True),
        ("environment", "</think>", False),
        ("policy", "a", True),
    ]
    assert found.fact(Forcing) == Forcing(waits=1, closed=True)


def test_a_thought_of_nothing_is_no_segment() -> None:
    found, _ = rolled(["</think>", "two</think>", "a$"], waits=1)
    assert parts(found)[0] == ("environment", " wait ", False)


@pytest.mark.parametrize("n", [1, 3])
def test_without_waits_it_is_plain_decoding(n: int) -> None:
    plain, forced = ScriptedSampler("policy"), ScriptedSampler("policy")
    sampling = Sampling(max_tokens=20)
    rollout = Waiting(n=n, waits=0, sampling=replace(sampling, max_tokens=15), answer_tokens=5)
    [one] = asyncio.run(Independent(n=n, sampling=sampling).collect(task("q"), {"policy": plain}))
    [other] = asyncio.run(rollout.collect(task("q"), {"policy": forced}))
    assert [t.token_ids.tolist() for t in one] == [t.token_ids.tolist() for t in other]


def test_held_out_items_are_forced_as_well() -> None:
    held = Waiting(n=8, waits=3, sampling=Sampling(max_tokens=9)).held_out(1, Sampling(temperature=0.0, max_tokens=100))
    assert (held.n, held.waits, held.sampling) == (1, 3, Sampling(temperature=0.0, max_tokens=9))
