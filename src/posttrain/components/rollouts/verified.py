"""A generator samples solutions, and a verifier marks their steps and results without the reference answer.

Source: Zha et al. 2025 (RL Tango), arXiv:2505.15034. Solutions are scored first. The verification of a solution is a
task of its own, whose answer is the verdict of the rule. The verdicts on steps are passed to the generator's advantage
(`Verification`: 1 or -1 per step, and the number of tokens up to its end).

A malformed verification, or one with another number of marks than steps, gives no verdicts on steps. The well-formed
verifications of a solution are averaged. A solution that could not be scored is not verified.

Differs: a step ends with the separator (the last one has the result), since the bundled model cannot be prompted for
marked steps like the paper's generator. All verifications of the solutions of a task are one group; which ones the
paper compares is not in the available text.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from pydantic import PositiveInt, field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout, Scorer, Verification
from posttrain.components.rollouts._segments import answers, prompt_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.grading.verdicts import MARKS, read_verdicts, steps_of
from posttrain.types import Group, Segment, Task, Trajectory


@frozen
class Verified(Rollout):
    """Samples `n` solutions of a task, and `checks` verifications of each."""

    n: PositiveInt = 8
    """Solutions per task."""
    checks: PositiveInt = 1
    """Verifications per solution."""
    sampling: Sampling = Sampling()
    """How both are sampled."""
    prompt: str = "{problem}{solution}\nCheck:"
    """Template of the verifier's prompt."""
    separator: str = ";"
    """Text that ends a step of a solution."""
    verifier_role: str = "verifier"
    """Role of the verifier."""
    role: str = "policy"
    """Role of the generator."""

    @field_validator("prompt")
    @classmethod
    def check_prompt(cls, prompt: str) -> str:
        """Refuse a prompt without the problem or the solution."""
        if "{problem}" not in prompt or "{solution}" not in prompt:
            raise PydanticCustomError("prompt", "the verifier's prompt must name {problem} and {solution}")
        return prompt

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """Two groups: the solutions with the verdicts on their steps, and the verifications."""
        sampler, verifier = sampler_of(self.role, samplers), sampler_of(self.verifier_role, samplers)
        prompt = prompt_segment(task, sampler)
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling)
        solved = await scorer(Group(key=task.key, trajectories=answers(task, prompt, completions, self.role)))
        questions = [self._question(solution) for solution in solved]
        checked = await asyncio.gather(*(self._verify(question, verifier) for question in questions))
        mean_verdicts = [_mean_verdicts(checks) for checks in checked]
        solutions = tuple(
            replace(
                solution,
                facts=(Verification(verdicts=tuple(verdicts), step_ends=tuple(self._step_ends(solution, sampler))),),
            )
            for solution, verdicts in zip(solved, mean_verdicts, strict=True)
        )
        numbered = [replace(check, sample=i) for i, check in enumerate(c for checks in checked for c in checks)]
        groups = [replace(solved, trajectories=solutions)]
        if numbered:
            groups.append(await scorer(Group(key=f"{task.key}/check", trajectories=tuple(numbered))))
        return groups

    def _question(self, solution: Trajectory) -> Task | None:
        """A solution as a task for the verifier; None if it could not be scored."""
        task, score = solution.task, solution.score
        assert score is not None, "solutions are scored first"
        if score.status == "error":
            return None
        problem = task.prompt if isinstance(task.prompt, str) else task.prompt[-1]["content"] + "\n"
        text = self.prompt.replace("{problem}", problem).replace("{solution}", solution.completion)
        return Task(
            key=f"{task.key}/check-{solution.sample}",
            prompt=text if isinstance(task.prompt, str) else ({"role": "user", "content": text},),
            answer=MARKS[score.status == "ok"],
            domain=task.domain,
            fields={"steps": len(steps_of(solution.completion, self.separator))},
        )

    async def _verify(self, question: Task | None, verifier: Sampler) -> tuple[Trajectory, ...]:
        """The verifications of one solution."""
        if question is None:
            return ()
        prompt = prompt_segment(question, verifier)
        completions = await verifier.sample(prompt.token_ids, self.checks, self.sampling)
        return answers(question, prompt, completions, self.verifier_role)

    def _step_ends(self, solution: Trajectory, sampler: Sampler) -> list[int]:
        """Number of tokens of a solution up to the end of each step; the last step ends with the last token."""
        segment: Segment = solution.segments[-1]
        ends, written = [], 0
        lengths = [len(sampler.decode(segment.token_ids[: i + 1])) for i in range(len(segment))]
        for step in steps_of(segment.text, self.separator)[:-1]:
            written += len(step)
            ends.append(int(np.searchsorted(lengths, written)) + 1)
        return [*(min(end, len(segment)) for end in ends), len(segment)]


def _mean_verdicts(checks: Sequence[Trajectory]) -> list[float]:
    """[K] mean of the marks of each step, 1 or -1, over well-formed verifications; empty without any."""
    read = [
        read_verdicts(check.completion, check.task.fields["steps"]) for check in checks if check.stop_reason != "length"
    ]
    marks = [[1.0 if right else -1.0 for right in verdicts.steps] for verdicts in read if verdicts is not None]
    return np.mean(marks, axis=0).tolist() if marks else []
