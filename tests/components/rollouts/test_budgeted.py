import asyncio
from dataclasses import replace

from posttrain.components.rollouts.budgeted import Budgeted
from posttrain.engines import Sampling
from tests.builders import ScriptedSampler, task


def test_budgets_are_by_domain_and_the_temperature_falls() -> None:
    rollout = Budgeted(n=20, budgets={"short": 2}, hottest=2.0, sampling=Sampling(max_tokens=9, temperature=1.0))
    assert [rollout.at(p).temperature for p in (0.0, 0.5, 1.0)] == [2.0, 1.5, 1.0]
    cosine = replace(rollout, shape="cosine")
    assert [round(cosine.at(p).temperature, 3) for p in (0.0, 0.25, 1.0)] == [2.0, 1.854, 1.0]
    for domain, most in (("short", 2), ("other", 9)):
        [own] = asyncio.run(rollout.collect(replace(task(), domain=domain), {"policy": ScriptedSampler()}))
        assert max(t.num_trained for t in own) <= most
