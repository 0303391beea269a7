"""Several completions of one prompt, each sampled without regard to the others; they make one group.

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
    """`n` completions of the task's prompt."""

    n: PositiveInt = 8
    """Completions per task; a method that compares them needs at least 2 (64 in the DeepSeekMath paper)."""
    sampling: Sampling = Sampling()
    """How each is drawn."""
    role: str = "policy"
    """The model that writes, and whose tokens are trained."""

    @property
    def temperature(self) -> float:
        """Of the distribution that the tokens are drawn from; greedy ones have their log-probability at 1."""
        return self.sampling.temperature or 1.0

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group of `n` trajectories: the prompt, and what the model wrote."""
        sampler = sampler_of(self.role, samplers)
        prompt = prompt_segment(task, sampler)
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling, prompt.vectors)
        return [Group(key=task.key, trajectories=answers(task, prompt, completions, self.role))]
