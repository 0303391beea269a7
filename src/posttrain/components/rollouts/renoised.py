"""End points of a flow for one condition, each with renoised copies that the policy is trained on.

Source: AWM, Xue et al. 2025, arXiv:2509.25050, section 4, and its released code. The end points may come from any
sampler (by default one without noise in the steps). Trained are T noise levels per end point, stratified over the time
steps of the sampler, without the first one, which is noise only, and the last tenth. The draws are in the trajectory,
so that old, reference and trained weights evaluate the same ones.

Differs: the release draws one set of times per batch and noise per sample; here each sample has both of its own.
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
    """Samples `n` end points for the task's condition, and `times` renoised copies of each."""

    n: PositiveInt = 24
    """End points per task (24 images per prompt in the paper)."""
    times: PositiveInt = 6
    """Renoised copies per end point (T, 6 in the released runs)."""
    last: Share = 0.9
    """Share of the time steps that are drawn from, from the start."""
    sampling: Sampling = Sampling(temperature=0.0)
    """How end points are sampled; temperature 0 has no noise in the steps."""
    role: str = "policy"
    """Role of the flow that end points are sampled from, such as a slow average; the policy learns from the draws."""

    @property
    def roles(self) -> frozenset[str]:
        """The flow that is sampled from."""
        return frozenset({self.role})

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group of `n` end points."""
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
        """Renoised copies of an end point."""
        if completion.vectors is None:
            raise UserError(
                f"the renoised rollout is for flows, and role '{self.role}' writes text; take 'independent'"
            )
        end_id = int(completion.token_ids[-1])
        steps = chains.steps_of(end_id)
        # Place 0 is noise only, and does not depend on the end point.
        places = range(1, max(int(steps * self.last), 2)) if steps > 1 else range(1)
        rng = np.random.Generator(np.random.Philox(key=[int(sampler.uniform() * 2**53), 0]))
        return chains.draws(end_id, chains.stratified(places, self.times, rng), completion.vectors.shape[1], rng)
