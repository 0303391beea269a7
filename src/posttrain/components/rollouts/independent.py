"""Independent completions of one prompt, as one group.

Source: the sampling of GRPO, Shao et al. 2024, arXiv:2402.03300, section 4.1.1.
"""

from collections.abc import Mapping

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._segments import answers, prompt_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Task


@frozen
class Independent(Rollout):
    """Samples `n` completions of the prompt."""

    n: PositiveInt = 8
    """Completions per task; a method that compares them needs at least 2 (64 in the DeepSeekMath paper)."""
    sampling: Sampling = Sampling()
    """How each completion is sampled."""
    role: str = "policy"
    """The model that is sampled from and trained."""

    @property
    def group_size(self) -> int:
        """The setting `n`."""
        return self.n

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group of `n` trajectories."""
        sampler = sampler_of(self.role, samplers)
        prompt = prompt_segment(task, sampler)
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling, prompt.vectors)
        return [Group(key=task.key, trajectories=answers(task, prompt, completions, self.role))]
