"""One dialogue of retries: each turn keeps the best of several answers, and every turn is a rollout of its own.

After a wrong answer comes the feedback that it is wrong, with the question, and the next answer follows. The first turn
samples one answer, each later one `n`; the first of those with the highest reward is kept and enters the history. The
dialogue ends with the first correct answer, or after the last turn. Every turn is a trajectory: all before it is its
prompt, which is not trained. Which turns are learned from is a filter's matter (`improved`, `outcome`).

A stage begins with dialogues of two turns and ends with `turns` of them, in equal parts. Later turns may be answered by
another model, a teacher, whose answers are demonstrations.

Held-out tasks are answered without an oracle: the feedback always states that the answer is wrong, also where it is
right. What counts is the last answer, or the most frequent one.

Source: RISE, Qu et al. 2024, arXiv:2407.18219, and its release (cmu-mind/RISE at 4a2806e, workflow_gen.py and
workflow_eval.py). An answer with a word that is longer than 300 characters or that is there more than 150 times is
sampled again, 3 times at most.

Differs: a solved example before the question is a part of the task's prompt, if at all. The history is kept whole; the
release has an option for its last turns. A rollout whose scoring failed is not kept where another one could be scored.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout, Scorer
from posttrain.components.rollouts._segments import prompt_segment, sampled_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.grading.extraction import CASCADE, find_answer
from posttrain.types import Completion, Fact, Group, Message, Segment, Task, Trajectory

LONGEST_WORD: Final = 300
MOST_REPEATS: Final = 150
AGAIN: Final = 3
"""How often a degenerate answer is sampled again."""


@dataclass(frozen=True, kw_only=True)
class Tries(Fact):
    """The answers of a dialogue without an oracle."""

    tries: tuple[str, ...]
    """[turns] extracted answers; empty where there is none."""


@frozen
class Retried(Rollout):
    """Samples one dialogue per task."""

    n: PositiveInt = 16
    """N: answers of each turn after the first, of which the best is kept."""
    turns: Annotated[int, Field(ge=1, le=100)] = 5
    """Most turns of a dialogue, at the end of the stage."""
    feedback: str = "Incorrect. Please try again.\n{question}"
    """What follows a wrong answer; ``{question}`` stands for the text of the task's prompt."""
    improver_role: str = "policy"
    """The model that answers after the first turn: the one that learns, or a teacher."""
    result: Literal["last", "vote"] = "last"
    """Which answer counts on held-out tasks: that of the last turn, or the most frequent one, the first of equals."""
    sampling: Sampling = Sampling()
    """How answers are sampled."""
    role: str = "policy"
    """The model that is trained."""

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    @property
    def roles(self) -> frozenset[str]:
        """The teacher, if there is one."""
        return frozenset({self.improver_role} - {self.role})

    @property
    def follows_progress(self) -> bool:
        """The number of turns rises over the stage, where there are more than two."""
        return self.turns > 2

    def at(self, progress: float) -> "Retried":
        """Two turns at first, and all of them in the last part of the stage."""
        return replace(self, turns=min(self.turns, 2 + int(progress * (self.turns - 1))))

    def held_out(self, n: int, sampling: Sampling) -> "Retried":
        """`n` dialogues of all turns, with one answer per turn."""
        return replace(self, n=n, sampling=sampling)

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """`n` dialogues without an oracle, each as the rollout of the turn that counts."""
        sampler = sampler_of(self.role, samplers)
        found = [await self._without_oracle(task, sampler.bind("dialogue", i), i) for i in range(self.n)]
        return [Group(key=task.key, trajectories=tuple(found))]

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """One group: the kept answer of each turn, in order."""
        sampler = sampler_of(self.role, samplers)
        history = _History.of(task, sampler)
        kept: list[Trajectory] = []
        for turn in range(self.turns):
            tried = await self._answers(history, turn, samplers)
            scored = await scorer(Group(key=task.key, trajectories=tuple(tried)))
            best = max(scored, key=_value)  # the first of equals
            kept.append(replace(best, sample=turn))
            if best.solved or not history.add(best, self._reply(task, history), sampler):
                break
        return [Group(key=task.key, trajectories=tuple(kept))]

    async def _answers(self, history: "_History", turn: int, samplers: Mapping[str, Sampler]) -> list[Trajectory]:
        """The answers of a turn, as rollouts."""
        sampler = sampler_of(self.role, samplers)
        count = self.n if turn else 1
        if not turn or self.improver_role == self.role:
            prompt = history.prompt(turn)
            made = await _sampled(sampler.bind("turn", turn), prompt, count, self.sampling)
            return [history.rollout(sampled_segment(c, self.role, turn=turn), c.stop_reason, i) for i, c in made]
        teacher = sampler_of(self.improver_role, samplers).bind("turn", turn)
        room, found = sampler.context - len(history.prompt(turn)), []
        for i, text in enumerate(await teacher.write(history.messages, count, self.sampling)):
            ids = sampler.encode_completion(history.task.prompt, text)
            segment = Segment(actor="demonstration", token_ids=ids[:room], trained=True, turn=turn, text=text)
            found.append(history.rollout(segment, "length" if len(ids) > room else "stop", i))
        return found

    async def _without_oracle(self, task: Task, sampler: Sampler, number: int) -> Trajectory:
        """All turns with one answer each, and the turn that counts."""
        history, turns = _History.of(task, sampler), list[Trajectory]()
        for turn in range(self.turns):
            [(_, completion)] = await _sampled(sampler.bind("turn", turn), history.prompt(turn), 1, self.sampling)
            turns.append(history.rollout(sampled_segment(completion, self.role, turn=turn), completion.stop_reason, 0))
            if not history.add(turns[-1], self._reply(task, history), sampler):
                break
        answers = [found.text if (found := find_answer(t, CASCADE)) is not None else "" for t in turns]
        counted = turns[vote(answers) if self.result == "vote" else -1]
        return replace(counted, sample=number, facts=(*counted.facts, Tries(tries=tuple(answers))))

    def _reply(self, task: Task, history: "_History") -> str:
        """The feedback on a wrong answer."""
        question = task.prompt if isinstance(task.prompt, str) else task.prompt[-1]["content"]
        return self.feedback.replace("{question}", question)


@dataclass(kw_only=True)
class _History:
    """A dialogue so far, as ids for the model that learns and as text for others."""

    task: Task
    start: Segment
    ids: np.ndarray
    text: str
    messages: str | tuple[Message, ...]

    @staticmethod
    def of(task: Task, sampler: Sampler) -> "_History":
        """The question."""
        start = prompt_segment(task, sampler)
        return _History(task=task, start=start, ids=start.token_ids, text=start.text, messages=task.prompt)

    def prompt(self, turn: int) -> Segment:
        """All so far, as the prompt of a turn."""
        vectors = self.start.vectors
        if vectors is not None:
            later = np.zeros((len(self.ids) - len(vectors), vectors.shape[1]), np.float32)
            vectors = np.concatenate([vectors, later])
        return Segment(actor="prompt", token_ids=self.ids, turn=turn, text=self.text, vectors=vectors)

    def rollout(self, answer: Segment, stop_reason: str, sample: int) -> Trajectory:
        """An answer after all so far."""
        segments = (self.prompt(answer.turn), answer)
        return Trajectory(task=self.task, segments=segments, stop_reason=stop_reason, sample=sample)  # type: ignore[arg-type]

    def add(self, answered: Trajectory, reply: str, sampler: Sampler) -> bool:
        """Add an answer and the feedback on it; False where the context has no room for a further answer."""
        own = answered.segments[-1]
        message = Message(role="user", content=reply)
        seen = sampler.encode_reply(self.task.prompt, own.token_ids, message)
        self.ids = np.concatenate([self.ids, own.token_ids, seen])
        self.text += own.text + reply
        if isinstance(self.messages, str):
            self.messages += own.text + reply
        else:
            self.messages = (*self.messages, Message(role="assistant", content=own.text), message)
        return len(self.ids) < sampler.context


async def _sampled(sampler: Sampler, prompt: Segment, n: int, sampling: Sampling) -> list[tuple[int, Completion]]:
    """`n` numbered answers, the degenerate ones sampled again."""
    made = list(await sampler.sample(prompt.token_ids, n, sampling, prompt.vectors))
    for _ in range(AGAIN):
        broken = [i for i, completion in enumerate(made) if is_degenerate(completion.text)]
        if not broken:
            break
        fresh = await sampler.sample(prompt.token_ids, len(broken), sampling, prompt.vectors)
        for i, completion in zip(broken, fresh, strict=True):
            made[i] = completion
    return list(enumerate(made))


def is_degenerate(text: str) -> bool:
    """Whether a text has a word of more than 300 characters, or one that is there more than 150 times."""
    words = Counter(text.split())
    return any(len(word) > LONGEST_WORD or count > MOST_REPEATS for word, count in words.items())


def vote(answers: Sequence[str]) -> int:
    """The first turn with the most frequent answer; turns without one do not vote, unless none has an answer."""
    counts = Counter(answer for answer in answers if answer)
    return answers.index(max(counts, key=lambda answer: counts[answer])) if counts else len(answers) - 1


def _value(trajectory: Trajectory) -> float:
    """The score, below all others where scoring failed."""
    score = trajectory.score
    return score.value if score is not None and score.status != "error" else -math.inf
