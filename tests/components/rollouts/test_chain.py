"""Agents that write one after the other into one transcript."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from posttrain.components.rollouts.chain import Chain
from posttrain.engines import Sampling
from posttrain.types import Completion, Group, Task
from tests.builders import score
from tests.components.rollouts.test_verified import Writer

TASK = Task(key="t", prompt="q:", answer="4")


class Agent(Writer):
    """Writes given texts, whatever it is bound to."""

    def bind(self, *key: int | str) -> "Agent":
        return self

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        return await super().sample(token_ids, n, sampling)


def collect(rollout: Chain, writers: Mapping[str, Agent]) -> tuple[Group, list[str]]:
    seen: list[str] = []

    async def scorer(group: Group) -> Group:
        seen.extend(t.segments[0].text + t.completion for t in group)
        scored = (t.scored(score(float(t.completion == "4"))) for t in group)
        return replace(group, trajectories=tuple(scored))

    [group] = asyncio.run(rollout.collect_scored(TASK, writers, scorer))
    return group, seen


def test_the_actor_reads_the_transcript_and_is_scored_alone() -> None:
    reasoner, policy = Agent(["think", "2+2"]), Agent(["3", "4"])
    group, seen = collect(Chain(n=2), {"reasoner": reasoner, "policy": policy})
    assert seen == ["q:3", "q:4"] and [t.solved for t in group] == [False, True]
    assert policy.read[0].startswith("q:think") and policy.read[0].endswith("q:")
    for t in group:
        assert [s.actor for s in t.segments] == ["prompt", "reasoner", "environment", "policy"]
        assert t.learners == {"reasoner", "policy"} and [s.turn for s in t.segments] == [0, 0, 1, 1]


def test_a_wrong_answer_is_followed_by_another_step() -> None:
    reasoner, policy = Agent(["a", "b"]), Agent(["3", "4"])
    group, seen = collect(Chain(n=1, max_steps=3, profile="[{role}]"), {"reasoner": reasoner, "policy": policy})
    [t] = group
    assert seen == ["q:3", "q:4"], "the first right answer ends the rollout"
    assert [s.text for s in t.segments if s.actor == "environment"] == [
        "[policy]",
        "\nThis is wrong.[reasoner]",
        "[policy]",
    ]
    assert t.solved and t.num_trained == sum(len(text) + 1 for text in ("a", "3", "b", "4"))


def test_agents_between_write_in_their_order() -> None:
    writers = {role: Agent(["x"]) for role in ("reasoner", "critic", "policy")}
    group, _ = collect(Chain(n=1, between=("critic",)), writers)
    assert [s.actor for s in group.trajectories[0].segments if s.trained] == ["reasoner", "critic", "policy"]
    assert Chain(between=("critic",)).roles == {"critic", "reasoner"}


def test_a_full_context_ends_a_rollout_with_its_last_text() -> None:
    class Short(Agent):
        context = 6

    reasoner, policy = Short(["abc"]), Short(["4"])
    group, seen = collect(Chain(n=1), {"reasoner": reasoner, "policy": policy})
    [t] = group
    assert t.stop_reason == "length" and [s.actor for s in t.segments] == ["prompt", "reasoner"] and seen == ["q:abc"]
    assert np.isfinite(t.behavior_logp).all()
