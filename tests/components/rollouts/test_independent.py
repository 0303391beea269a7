import asyncio

import numpy as np
import pytest

from posttrain.components.rollouts.independent import Independent
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.types import Task
from tests.builders import ScriptedSampler, task


def test_one_group_of_prompt_and_answer() -> None:
    policy, of = ScriptedSampler(version=7), task("sum")
    [group] = asyncio.run(Independent(n=4).collect(of, {"policy": policy}))
    assert group.key == "sum"
    assert [attempt.sample for attempt in group] == [0, 1, 2, 3]
    for attempt, completion in zip(group, policy.completions, strict=True):
        prompt, answer = attempt.segments
        assert (prompt.actor, prompt.trained, prompt.text) == ("prompt", False, of.prompt)
        assert np.array_equal(prompt.token_ids, policy.encode(of.prompt))
        assert (answer.actor, answer.trained, answer.version, answer.text) == ("policy", True, 7, completion.text)
        assert answer.token_ids is completion.token_ids and answer.logp is completion.logp
        assert attempt.stop_reason == completion.stop_reason


def test_messages_go_through_the_models_template() -> None:
    policy = ScriptedSampler()
    of = Task(key="chat", prompt=({"role": "user", "content": "Hi"},))
    [group] = asyncio.run(Independent(n=1).collect(of, {"policy": policy}))
    assert group.trajectories[0].segments[0].text == "user: hi\n"


def test_sampling_reaches_the_sampler() -> None:
    rollout = Independent(n=30, sampling=Sampling(max_tokens=2, temperature=0.7))
    [group] = asyncio.run(rollout.collect(task(), {"policy": ScriptedSampler()}))
    assert max(attempt.num_trained for attempt in group) == 2
    assert rollout.temperature == 0.7
    assert Independent(sampling=Sampling(temperature=0)).temperature == 1.0


def test_another_role_can_write() -> None:
    [group] = asyncio.run(Independent(n=1, role="guide").collect(task(), {"guide": ScriptedSampler()}))
    assert group.trajectories[0].segments[1].actor == "guide"


def test_a_role_that_nobody_plays() -> None:
    with pytest.raises(UserError, match=r"role 'polcy'.*did you mean 'policy'"):
        asyncio.run(Independent(role="polcy").collect(task(), {"policy": ScriptedSampler()}))
