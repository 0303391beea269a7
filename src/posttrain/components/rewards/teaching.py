"""Whether an explanation makes the solution likely to a student, in words that the student finds likely.

Source: Cetin et al. 2025 (Reinforcement Learning Teachers), arXiv:2506.08388, and its release (SakanaAI/RLT at 86a3f5c,
teacher_rewards.py and the run file). With the tokens t of an explanation that the policy wrote from question and
solution, the tokens s of the solution, a frozen student S who reads the question alone, and all logits divided by 0.7,

    l_i = log S(s_i | question, t, closing, s_<i)
    d_j = log pi(t_j | question, solution, t_<j) - log S(t_j | question, t_<j)
    reward = 1 mean l + 0.01 min l - (3 mean d + 0.03 max d), and -1 without the closing text

d is signed: words that the student finds likelier than the teacher are rewarded, so there is no largest reward.
`estimator` ``positive`` has the estimate exp(-d) - 1 + d of the divergence, which is never below 0. The maximum of d is
of the token that betrays most what only the teacher has read. An empty explanation has 1 for the mean and the maximum
of d, and an empty solution -1 for those of l, as in the release. The closing text follows also where it is missing.

A task has the fields ``question`` and ``solution`` (`tasks/taught`). The student shares the policy's vocabulary, and
reads the sampled tokens up to the closing text. It is correct, for the record, where mean l is at least `correct_at`.

Differs: the end of the explanation is found by the text of the sampled tokens, not by a run of tokens.
"""

import asyncio
import math
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveFloat

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.engines import Sampler
from posttrain.grading.pieces import tokens_until
from posttrain.signals import Signal, logp_of
from posttrain.types import Group, IntArray, Message, Score, Trajectory

Weights = tuple[float, float]


@frozen
class Teaching(Reward):
    """Rewards explanations by a frozen student."""

    solution: Weights = (1.0, 0.01)
    """Weights of the mean and the minimum of l ((5, 0.05) in the bare file of the release)."""
    divergence: Weights = (3.0, 0.03)
    """Weights of the mean and the maximum of d ((5, 0.05) in the bare file of the release)."""
    missing: float = -1.0
    """Added where the closing text is missing."""
    closing: Annotated[str, Field(min_length=1)] = "</think>"
    """The text that ends an explanation."""
    between: str = "\n"
    """The text between it and the solution."""
    temperature: PositiveFloat = 0.7
    """Divides the student's logits; the teacher's are divided by the temperature of its sampling."""
    estimator: Literal["signed", "positive"] = "signed"
    """The estimate of the divergence at a token."""
    role: str = "student"
    """The model that reads explanations."""
    correct_at: float = -0.7
    """Least mean l that counts as correct, in nats."""

    @property
    def roles(self) -> frozenset[str]:
        """The student."""
        return frozenset({self.role})

    @property
    def needs(self) -> frozenset[Signal]:
        """Log-probabilities of the student."""
        return frozenset({logp_of(self.role)})

    @property
    def reads_own_logp(self) -> bool:
        """The teacher's."""
        return True

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score every explanation by itself."""
        sampler = context.sampler(self.role, self.kind)
        return await asyncio.gather(*(self._score(trajectory, sampler) for trajectory in group))

    async def _score(self, trajectory: Trajectory, student: Sampler) -> Score:
        task = trajectory.task
        question, solution = task.fields.get("question"), task.fields.get("solution")
        if question is None or not isinstance(solution, str):
            return failure(f"task '{task.key}' has no fields 'question' and 'solution'; wrap its tasks: tasks/taught")
        place = trajectory.completion.find(self.closing)
        own = trajectory.trained_positions
        written = trajectory.token_ids[own]
        count = tokens_until(written, place, student.decode) if place >= 0 else _without_end(written, student)
        start = student.encode(_question(question))
        read = np.concatenate([start, written[:count]]).astype(np.int64)
        closed = np.concatenate([read, _text(self.closing + self.between, read, student)]).astype(np.int64)
        solved = _text(solution, closed, student)
        if len(closed) + len(solved) > student.context:
            return failure(
                f"question, explanation and solution have {len(closed) + len(solved)} tokens, and the context of the "
                f"role '{self.role}' has {student.context}"
            )
        logp = await student.logp(np.concatenate([closed, solved]).astype(np.int64), temperature=self.temperature)
        l_S = np.asarray(logp[len(closed) - 1 :], np.float64)
        d_T = trajectory.behavior_logp[:count].astype(np.float64) - logp[len(start) - 1 : len(start) - 1 + count]
        return self._joined(l_S, d_T, found=place >= 0)

    def _joined(self, l_S: np.ndarray, d_T: np.ndarray, *, found: bool) -> Score:
        """The reward of the student's numbers."""
        if self.estimator == "positive":
            d_T = np.exp(np.minimum(-d_T, 20.0)) - 1.0 + d_T
        mean_l, min_l = (float(l_S.mean()), float(l_S.min())) if len(l_S) else (-1.0, -1.0)
        mean_d, max_d = (float(d_T.mean()), float(d_T.max())) if len(d_T) else (1.0, 1.0)
        solved = self.solution[0] * mean_l + self.solution[1] * min_l
        betrayed = self.divergence[0] * mean_d + self.divergence[1] * max_d
        value = solved - betrayed + (0.0 if found else self.missing)
        if not math.isfinite(value):
            return failure(f"the role '{self.role}' gives a log-probability that is not finite")
        ending = "" if found else f"; {self.closing!r} is missing"
        return Score(
            value=value,
            status="ok" if found and mean_l >= self.correct_at else "wrong",
            explanation=f"the solution has {mean_l:.3g} nats a token, the explanation diverges by {mean_d:.3g}{ending}",
            parts={
                "solution": Score(value=solved, status="ok"),
                "divergence": Score(value=betrayed, status="ok"),
            },
        )


def _text(text: str, before: IntArray, student: Sampler) -> IntArray:
    """Tokens of a text that continues others."""
    return student.encode_reply("", before, Message(role="user", content=text)) if text else before[:0]


def _question(question: object) -> str | tuple[Message, ...]:
    """What the student is asked, as a text or messages."""
    if isinstance(question, str):
        return question
    messages = question if isinstance(question, Sequence) else ()
    return tuple(Message(role=message["role"], content=message["content"]) for message in messages)


def _without_end(written: IntArray, student: Sampler) -> int:
    """The number of tokens before an end token, which has no text."""
    return len(written) - 1 if len(written) and not student.decode(written[-1:]) else len(written)
