"""Several end points of a flow for one condition, each with draws of fresh noise that the policy learns from.

Source: AWM, Xue et al. 2025, arXiv:2509.25050, section 4, and its released code: how a sample was made does not matter
(by default without noise in the steps), and what is trained are T times for each, stratified over the places of the
sampler; the first place, which is noise only, and the last tenth are left out. The draws are in the trajectory, so that
the old, the reference and the trained weights judge the same ones.

Differs: the release draws one set of times a batch and fresh noise for each sample; here both are each sample's own.
"""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._segments import prompt_segment, sampled_segment, sampler_of
from posttrain.datasets import chains
from posttrain.engines import Sampler, Sampling
from posttrain.errors import UserError
from posttrain.types import Completion, Group, Segment, Task, Trajectory

Share = Annotated[float, Field(gt=0.0, le=1.0)]


@frozen
class Renoised(Rollout):
    """`n` end points of the task's condition, and `times` draws on each."""

    n: PositiveInt = 24
    """End points per task (24 images a prompt in the paper)."""
    times: PositiveInt = 6
    """Draws on each (T, 6 in the released runs)."""
    last: Share = 0.9
    """Places up to this share of the steps are drawn from."""
    sampling: Sampling = Sampling(temperature=0.0)
    """How end points are made; temperature 0 has no noise in the steps."""
    role: str = "policy"
    """The flow."""

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group."""
        sampler = sampler_of(self.role, samplers)
        prompt = prompt_segment(task, sampler)
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling, vectors=prompt.vectors)
        trajectories = [
            Trajectory(
                task=task,
                segments=(prompt, sampled_segment(c, self.role, trained=False), self._draws(c, sampler)),
                stop_reason=c.stop_reason,
                sample=i,
            )
            for i, c in enumerate(completions)
        ]
        return [Group(key=task.key, trajectories=tuple(trajectories))]

    def _draws(self, completion: Completion, sampler: Sampler) -> Segment:
        """Fresh noise on an end point."""
        if completion.vectors is None:
            raise UserError(
                f"the renoised rollout is for flows, and role '{self.role}' writes text; take 'independent'"
            )
        end_id = int(completion.token_ids[-1])
        steps = chains.steps_of(end_id)
        # At place 0 there is noise only: what a sample was like makes no difference to it.
        places = range(1, max(int(steps * self.last), 2)) if steps > 1 else range(1)
        rng = np.random.Generator(np.random.Philox(key=[int(sampler.uniform() * 2**53), 0]))
        return chains.draws(end_id, chains.stratified(places, self.times, rng), completion.vectors.shape[1], rng)
