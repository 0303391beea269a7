"""A pioneer answers, an observer answers after reading that answer, and both get the sum of their rewards.

Source: Ma et al. 2024 (CORY), arXiv:2410.06101, section 3.2, and the released IMDB run: the observer reads the question
and the pioneer's whole answer, and then the question again. Its answer is scored as one to the question alone. The
reward of both is the sum of the two scores.

Differs: nothing known.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from pydantic import PositiveInt, field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rewards import failure
from posttrain.components.rollouts import Rollout, Scorer
from posttrain.components.rollouts._segments import answers, prompt_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Message, Score, Segment, Task, Trajectory


@frozen
class PioneerObserver(Rollout):
    """Samples `n` pairs of answers."""

    n: PositiveInt = 1
    """Pairs per task."""
    sampling: Sampling = Sampling()
    """How both answers are sampled."""
    prompt: str = "{problem}{answer}\n{problem}"
    """Template of the observer's prompt."""
    role: str = "policy"
    """Role of the pioneer."""
    observer_role: str = "observer"
    """Role of the observer."""

    @field_validator("prompt")
    @classmethod
    def check_prompt(cls, prompt: str) -> str:
        """Refuse a prompt that does not show the pioneer's answer after its question."""
        if "{problem}{answer}" not in prompt:
            raise PydanticCustomError("prompt", "the observer's prompt must have {problem}{answer} in it")
        return prompt

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """Two groups: the pioneer's answers and the observer's in the same order, with the rewards of the pairs."""
        pioneer, observer = sampler_of(self.role, samplers), sampler_of(self.observer_role, samplers)
        prompt = prompt_segment(task, pioneer)
        first = answers(task, prompt, await pioneer.sample(prompt.token_ids, self.n, self.sampling), self.role)
        second = await asyncio.gather(*(self._observe(task, answer, observer) for answer in first))
        # The reward scores the observer's answers as answers to the question alone.
        plain = tuple(replace(t, segments=(prompt_segment(task, observer), *t.segments[1:])) for t in second)
        scored = [(await scorer(Group(key=task.key, trajectories=those))).trajectories for those in (first, plain)]
        pairs = [(_score(one), _score(other)) for one, other in zip(*scored, strict=True)]
        return [
            Group(
                key=task.key,
                trajectories=tuple(t.scored(_team(pair, of)) for t, pair in zip(those, pairs, strict=True)),
            )
            for of, those in enumerate((first, second))
        ]

    async def _observe(self, task: Task, answer: Trajectory, observer: Sampler) -> Trajectory:
        """The observer's answer to the question and the pioneer's answer."""
        text = self._merged(task, answer.completion)
        token_ids = observer.encode(text)
        shown = text if isinstance(text, str) else observer.decode(token_ids)
        [completion] = await observer.sample(token_ids, 1, self.sampling)
        prompt = Segment(actor="prompt", token_ids=token_ids, text=shown)
        [observed] = answers(task, prompt, [completion], self.observer_role, first=answer.sample)
        return observed

    def _merged(self, task: Task, answer: str) -> str | tuple[Message, ...]:
        """The observer's prompt, as text or as the last message of a chat."""
        if isinstance(task.prompt, str):
            return self._filled(task.prompt, answer)
        *before, last = task.prompt
        return (*before, Message(role=last["role"], content=self._filled(f"{last['content']}\n", answer).rstrip("\n")))

    def _filled(self, problem: str, answer: str) -> str:
        return self.prompt.replace("{answer}", "\0").replace("{problem}", problem).replace("\0", answer)


def _score(trajectory: Trajectory) -> Score:
    assert trajectory.score is not None, "answers are scored"
    return trajectory.score


def _team(pair: tuple[Score, Score], of: int) -> Score:
    """The score of one answer of a pair: the sum of both values, with its own status and answer."""
    parts = dict(zip(("pioneer", "observer"), pair, strict=True))
    failed = [f"the {name}'s answer: {score.explanation}" for name, score in parts.items() if score.status == "error"]
    if failed:
        return failure("; ".join(failed), answer=pair[of].answer, parts=parts)
    explanation = f"{pair[0].value:g} (pioneer) + {pair[1].value:g} (observer); {pair[of].explanation}"
    return replace(pair[of], value=pair[0].value + pair[1].value, explanation=explanation, parts=parts)
