"""Groups from the prefixes of a trace: what is given, what is trained, and who answers at once."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from posttrain.components.rollouts import Continued
from posttrain.components.rollouts.prefix_groups import PrefixGroups
from posttrain.engines import Sampling
from posttrain.types import Completion, Group, Task, Trajectory
from tests.builders import ScriptedSampler

SUM = Task(key="sum", prompt="2+2+3=", answer="7")
TRACE = " 2+2=4; 4+0=4; 4+3=7\n#### 7"
SHORT = Sampling(max_tokens=64)


class Thinker(ScriptedSampler):
    """Continues the trace from wherever the prompt has it, and answers 9 after the forced text."""

    def bind(self, *key: int | str) -> "Thinker":
        found = Thinker(*self.key, *key, log=self.completions)
        found.place = self.place
        return found

    place = 0.0

    def uniform(self) -> float:
        return self.place

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        text = bytes(int(i) for i in token_ids if i > 1).decode().removeprefix("2+2+3=")
        rest = " 9" if text.endswith("####") else TRACE[len(text) :]
        ids = np.array(list(rest.encode()), np.int64)[: int(sampling.max_tokens)]
        logp = np.full(len(ids), -1.0, np.float32)
        made = Completion(token_ids=ids, logp=logp, stop_reason="stop", text=self.decode(ids), version=3)
        self.completions += [made] * n
        return [made] * n


def collected(place: float = 0.0, **settings: Any) -> list[Group]:
    policy = Thinker("policy")
    policy.place = place
    rollout = PrefixGroups(split="steps", end="\n####", sampling=SHORT, **settings)
    return asyncio.run(rollout.collect(SUM, {"policy": policy}))


def trained(rollout: Trajectory) -> list[str]:
    return [segment.text for segment in rollout.segments if segment.trained]


def at_once(group: Group) -> list[bool]:
    facts = [t.fact(Continued) for t in group]
    return [fact is not None and fact.at_once for fact in facts]


def test_half_go_on_for_an_episode_and_half_answer() -> None:
    """From the prefix of one step: the next step is trained, its forced answer is not; of the others the answer is."""
    [group] = collected(0.3, n=4)
    assert at_once(group) == [False, False, True, True]
    assert [t.completion for t in group] == [" 2+2=4; 4+0=4;\n#### 9"] * 2 + [" 2+2=4;\n#### 9"] * 2
    assert [trained(t) for t in group] == [[" 4+0=4;"]] * 2 + [[" 9"]] * 2
    assert [[t.trained_positions[0], t.num_trained] for t in group] == [[14, 7]] * 2 + [[19, 2]] * 2
    fact = group.trajectories[0].fact(Continued)
    assert fact is not None and fact.prefix_tokens == len(" 2+2=4;")


@pytest.mark.parametrize(("place", "prefix"), [(0.0, ""), (0.26, " 2+2=4;"), (0.99, " 2+2=4; 4+0=4; 4+3=7")])
def test_every_boundary_can_be_drawn_the_start_included(place: float, prefix: str) -> None:
    [group] = collected(place, n=2)
    assert group.trajectories[1].completion == prefix + "\n#### 9"


def test_after_the_last_episode_the_rest_is_whole() -> None:
    """The answer of the trace itself is the last episode, and no answer is forced after it."""
    [group] = collected(0.99, n=2)
    assert group.trajectories[0].completion == TRACE and trained(group.trajectories[0]) == ["\n#### 7"]


def test_to_the_end() -> None:
    [group] = collected(0.3, n=3, ahead="end")
    assert at_once(group) == [False, True, True]
    assert group.trajectories[0].completion == TRACE and trained(group.trajectories[0]) == [" 4+0=4; 4+3=7\n#### 7"]


def test_a_group_at_every_boundary() -> None:
    """Four of them: before the first step, and after each of three; at most two with `most`."""

    def prefixes(groups: Sequence[Group]) -> list[int]:
        facts = [group.trajectories[0].fact(Continued) for group in groups]
        return [fact.prefix_tokens for fact in facts if fact is not None]

    assert prefixes(collected(n=2, boundaries="all")) == [0, 7, 14, 20]
    assert prefixes(collected(n=2, boundaries="all", most=2)) == [0, 7]
