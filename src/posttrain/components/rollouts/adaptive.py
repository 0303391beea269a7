"""Reinforce-Ada's sampling: rounds of completions of one prompt, until enough right and wrong ones are among them.

Source: Xiong et al. 2025 (Reinforce-Ada), arXiv:2510.04996, and its released code: 4 rounds of 8, a reward above 0.7 is
right. A prompt leaves as soon as a round's end finds at least `right` right and `wrong` wrong attempts; the whole round
enters the pool first. The rule "balanced" for groups of n is floor(n/2) and n - floor(n/2), "positive-focused" is 1 and
0. The pool comes back whole, in the order in which it was sampled: choosing from it is a filter's work (`balanced`),
and the record and the curriculum see all of it.

A reward judges one round at a time. An attempt whose judgement failed is neither right nor wrong.

Differs: nothing known.
"""

from collections.abc import Mapping, Sequence

from pydantic import NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Judge, Rollout
from posttrain.components.rollouts._segments import answers, prompt_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Task, Trajectory


@frozen
class Adaptive(Rollout):
    """Completions in rounds, as many as it takes, up to a cap."""

    per_round: PositiveInt = 8
    """Completions that a round adds."""
    max_rounds: PositiveInt = 4
    """Rounds after which sampling ends anyway; at most `per_round` times this many completions."""
    right: NonNegativeInt = 2
    """Right attempts that end the sampling, if there are enough wrong ones too."""
    wrong: NonNegativeInt = 2
    """Wrong attempts that end the sampling, if there are enough right ones too."""
    threshold: float = 0.7
    """A score above this is right, in units of reward."""
    sampling: Sampling = Sampling()
    """How each is drawn."""
    role: str = "policy"
    """The model that writes, and whose tokens are trained."""

    @property
    def temperature(self) -> float:
        """Of the distribution that the tokens are drawn from; greedy ones have their log-probability at 1."""
        return self.sampling.temperature or 1.0

    async def collect_judged(self, task: Task, samplers: Mapping[str, Sampler], judge: Judge) -> list[Group]:
        """One group: every attempt of every round, judged."""
        sampler = sampler_of(self.role, samplers)
        prompt = prompt_segment(task, sampler)
        pool: list[Trajectory] = []
        for _ in range(self.max_rounds):
            completions = await sampler.sample(prompt.token_ids, self.per_round, self.sampling, prompt.vectors)
            fresh = answers(task, prompt, completions, self.role, first=len(pool))
            pool += await judge(Group(key=task.key, trajectories=fresh))
            if self._enough(pool):
                break
        return [Group(key=task.key, trajectories=tuple(pool))]

    def _enough(self, pool: Sequence[Trajectory]) -> bool:
        """Whether the pool holds what sampling was for."""
        judged = [t.score.value for t in pool if t.score is not None and t.score.status != "error"]
        right = sum(value > self.threshold for value in judged)
        return right >= self.right and len(judged) - right >= self.wrong
