"""A given start of the answer: it is read, and neither sampled nor learned."""

import asyncio

import numpy as np

from posttrain.components.rollouts.forced import Forced
from posttrain.engines import Sampling
from posttrain.types import Completion, Task
from tests.builders import ScriptedSampler


class Writer(ScriptedSampler):
    """Keeps the prompts."""

    def __init__(self, *key: int | str) -> None:
        super().__init__(*key)
        self.prompts: list[str] = []

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        self.prompts.append(bytes(int(i) for i in token_ids if i > 1).decode())
        return await super().sample(token_ids, n, sampling, vectors)


def test_tokens_of_the_prefix_have_no_loss() -> None:
    policy = Writer("policy")
    rollout = Forced(prefix="<t></t>", n=3)
    [group] = asyncio.run(rollout.collect(Task(key="k", prompt="2+2="), {"policy": policy}))
    assert policy.prompts == ["2+2=<t></t>"] and len(group) == 3
    for trajectory in group:
        prompt, given, own = trajectory.segments
        assert (prompt.text, given.text) == ("2+2=", "<t></t>") and not given.trained and given.logp is None
        assert own.trained and trajectory.num_trained == len(own) == len(trajectory.behavior_logp)
        assert trajectory.trained_positions[0] == len(prompt) + len(given)
    assert rollout.held_out(1, Sampling()) is None
