"""Reinforce-Ada: sampling in rounds until a prompt has enough correct and incorrect completions.

Source: Xiong et al. 2025 (Reinforce-Ada), arXiv:2510.04996, and its released code: 4 rounds of 8; a reward above 0.7 is
correct. Sampling of a prompt ends after a round with at least `right` correct and `wrong` incorrect rollouts in the
pool, which includes the whole last round. The rule "balanced" for groups of n is floor(n/2) and n - floor(n/2),
"positive-focused" is 1 and 0. The whole pool is returned, in the order of sampling. A filter selects from it
(`balanced`); the record and the curriculum get all of it.

The reward scores one round at a time. A rollout that could not be scored is neither correct nor incorrect.

Differs: nothing known.
"""

from collections.abc import Mapping, Sequence

from pydantic import NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout, Scorer
from posttrain.components.rollouts._segments import answers, prompt_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Task, Trajectory


@frozen
class Adaptive(Rollout):
    """Samples completions in rounds, as many as needed, up to a limit."""

    per_round: PositiveInt = 8
    """Completions per round."""
    max_rounds: PositiveInt = 4
    """Most rounds, and so at most `per_round` times this many completions."""
    right: NonNegativeInt = 2
    """Correct rollouts that are needed to end the sampling."""
    wrong: NonNegativeInt = 2
    """Incorrect rollouts that are needed to end the sampling."""
    threshold: float = 0.7
    """A score above this is correct, in units of reward."""
    sampling: Sampling = Sampling()
    """How each completion is sampled."""
    role: str = "policy"
    """The model that is sampled from and trained."""

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """One group: the scored rollouts of all rounds."""
        sampler = sampler_of(self.role, samplers)
        prompt = prompt_segment(task, sampler)
        pool: list[Trajectory] = []
        for _ in range(self.max_rounds):
            completions = await sampler.sample(prompt.token_ids, self.per_round, self.sampling, prompt.vectors)
            fresh = answers(task, prompt, completions, self.role, first=len(pool))
            pool += await scorer(Group(key=task.key, trajectories=fresh))
            if self._enough(pool):
                break
        return [Group(key=task.key, trajectories=tuple(pool))]

    def _enough(self, pool: Sequence[Trajectory]) -> bool:
        """Whether the pool has enough correct and incorrect rollouts."""
        scored = [t.score.value for t in pool if t.score is not None and t.score.status != "error"]
        right = sum(value > self.threshold for value in scored)
        return right >= self.right and len(scored) - right >= self.wrong
