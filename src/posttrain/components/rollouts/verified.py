"""A generator solves, and a verifier reads each solution, without the reference answer, and marks its steps and result.

Source: Zha et al. 2025 (RL Tango), arXiv:2505.15034. Solutions are judged first; the verification of one is a task of
its own, whose answer is what the rule said of the solution, and the verdicts on the steps go with the solution to the
generator's advantage (`Verification`: 1 or -1 for each step, and how many tokens each ends after).

A verification with another number of marks than there are steps, or of another form, gives no verdicts on the steps.
With several verifications of a solution, those that are well-formed are averaged. A solution that could not be judged
is not verified.

Differs: a step is what ends with the separator (the last one holds the result), since the paper's generator is asked
for marked steps and the bundled model cannot be. All verifications of the solutions to a task are one group, to be
compared with each other; which ones the paper compares was not seen.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from pydantic import PositiveInt, field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rollouts import Judge, Rollout, Verification
from posttrain.components.rollouts._segments import answers, prompt_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.grading.verdicts import MARKS, read_verdicts, steps_of
from posttrain.types import Group, Segment, Task, Trajectory


@frozen
class Verified(Rollout):
    """`n` solutions of a task, and `checks` verifications of each."""

    n: PositiveInt = 8
    """Solutions."""
    checks: PositiveInt = 1
    """Verifications of each solution."""
    sampling: Sampling = Sampling()
    """How both are drawn."""
    prompt: str = "{problem}{solution}\nCheck:"
    """What the verifier reads."""
    separator: str = ";"
    """What a step of a solution ends with."""
    verifier_role: str = "verifier"
    """The model that verifies."""
    role: str = "policy"
    """The model that solves."""

    @field_validator("prompt")
    @classmethod
    def check_prompt(cls, prompt: str) -> str:
        """Refuse a prompt without the two things to be read."""
        if "{problem}" not in prompt or "{solution}" not in prompt:
            raise PydanticCustomError("prompt", "the verifier's prompt must name {problem} and {solution}")
        return prompt

    @property
    def temperature(self) -> float:
        """Of the distribution that the tokens are drawn from; greedy ones have their log-probability at 1."""
        return self.sampling.temperature or 1.0

    async def collect_judged(self, task: Task, samplers: Mapping[str, Sampler], judge: Judge) -> list[Group]:
        """Two groups: the solutions with what was said of their steps, and the verifications."""
        sampler, verifier = sampler_of(self.role, samplers), sampler_of(self.verifier_role, samplers)
        prompt = prompt_segment(task, sampler)
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling)
        solved = await judge(Group(key=task.key, trajectories=answers(task, prompt, completions, self.role)))
        asked = [self._question(solution) for solution in solved]
        checked = await asyncio.gather(*(self._verify(question, verifier) for question in asked))
        said = [_mean_verdicts(checks) for checks in checked]
        solutions = tuple(
            replace(
                solution,
                facts=(Verification(verdicts=tuple(verdicts), step_ends=tuple(self._step_ends(solution, sampler))),),
            )
            for solution, verdicts in zip(solved, said, strict=True)
        )
        numbered = [replace(check, sample=i) for i, check in enumerate(c for checks in checked for c in checks)]
        groups = [replace(solved, trajectories=solutions)]
        if numbered:
            groups.append(await judge(Group(key=f"{task.key}/check", trajectories=tuple(numbered))))
        return groups

    def _question(self, solution: Trajectory) -> Task | None:
        """A solution as a task for the verifier; None where the rule could not judge it."""
        task, score = solution.task, solution.score
        assert score is not None, "solutions are judged first"
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
        """After how many of its tokens each step of a solution ends; the last one ends with the last token."""
        segment: Segment = solution.segments[-1]
        ends, written = [], 0
        lengths = [len(sampler.decode(segment.token_ids[: i + 1])) for i in range(len(segment))]
        for step in steps_of(segment.text, self.separator)[:-1]:
            written += len(step)
            ends.append(int(np.searchsorted(lengths, written)) + 1)
        return [*(min(end, len(segment)) for end in ends), len(segment)]


def _mean_verdicts(checks: Sequence[Trajectory]) -> list[float]:
    """For each step, the mean of the marks that well-formed verifications give it, 1 or -1; empty without any."""
    read = [
        read_verdicts(check.completion, check.task.fields["steps"]) for check in checks if check.stop_reason != "length"
    ]
    marks = [[1.0 if right else -1.0 for right in verdicts.steps] for verdicts in read if verdicts is not None]
    return np.mean(marks, axis=0).tolist() if marks else []
