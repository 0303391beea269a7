"""The verifier of a reasoning-gym data set. Stojanovski et al. 2025, arXiv:2505.24760.

Differs: the library's default verifier gives ``len(answer) / len(text)`` to a text that contains the answer, which a
model learns to exploit by giving several. A few verifiers take any text for a "no" (``game_of_life_halting``). `strict`
rewards only a score of 1. Where the verifier gives 1 to a text without an answer too, it rewards only the entry's own
answer.
"""

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.errors import UserError
from posttrain.grading.extraction import CASCADE, Extractor, find_answer, shown
from posttrain.grading.isolated import Isolated
from posttrain.grading.numbers import unwrapped
from posttrain.grading.workers import Limits, inside_worker
from posttrain.types import Group, Score, Trajectory

NO_ANSWER = "I do not know."
"""A text that no verifier should accept."""


@frozen
class ReasoningGym(Reward):
    """Scores by the verifier of the task's data set, from the fields ``dataset`` (its name) and ``entry``."""

    extract: Annotated[tuple[Extractor, ...], Field(min_length=1)] = CASCADE
    """Where to find the answer; the first extractor that finds something decides."""
    strict: bool = True
    """Whether a score below 1 counts as 0, and a verifier that accepts any text is not trusted."""
    raising: Literal["error", "wrong"] = "error"
    """Status where a verifier raises. Some raise for every answer that they cannot parse (``prime_factorization``
    does). With ``wrong`` such an answer is wrong, and so is one that triggers a bug of the verifier."""

    time_limit: PositiveFloat | None = 30.0
    """Seconds of processor time per answer, in a worker that is killed at the limit: some verifiers solve the puzzle.
    The wall-clock limit is ten times that. None: no limit, and no worker process."""

    def prepare(self) -> None:
        """Load the library. Raises `UserError` where it is not installed."""
        _library()

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score each answer by the verifier."""
        self.prepare()
        if self.time_limit is None or inside_worker():
            return [self._score(trajectory) for trajectory in group]
        return await self._isolated.score(group, context)

    @property
    def libraries(self) -> tuple[str, ...]:
        """Modules that workers import when they start."""
        return ("reasoning_gym", "posttrain.components.rewards.reasoning_gym")

    @cached_property
    def _isolated(self) -> Isolated:
        assert self.time_limit is not None, "without a limit there are no workers"
        limits = Limits(cpu_seconds=self.time_limit, wall_seconds=10 * self.time_limit)
        return Isolated(self, limits, preload=self.libraries)

    def __getstate__(self) -> dict[str, Any]:
        """The settings without the workers."""
        return {name: value for name, value in self.__dict__.items() if name != "_isolated"}

    def _score(self, trajectory: Trajectory) -> Score:
        task = trajectory.task
        name, entry = task.fields.get("dataset"), task.fields.get("entry")
        if not isinstance(name, str) or not isinstance(entry, Mapping):
            return failure(f"task '{task.key}' is not from reasoning-gym: it has no fields 'dataset' and 'entry'")
        found = find_answer(trajectory, self.extract, gold=str(entry.get("answer") or ""))
        if found is None:
            return Score(value=0.0, status="wrong", explanation=f"no answer found by {', '.join(self.extract)}")
        if self.strict and _odd_digits(found.text) and not _odd_digits(str(entry.get("answer"))):
            explanation = (
                f"{shown(found.text)} is written in digits other than 0 to 9, which Python reads and people do not"
            )
            return Score(value=0.0, status="wrong", answer=found.text, explanation=explanation)
        verified = self._verify(name, found.text, entry)
        if verified.status == "error" or not self.strict:
            return verified
        value, explanation = float(verified.value >= 1), f"{verified.explanation} (by {found.where})"
        if value and self._verify(name, NO_ANSWER, entry).value >= 1:
            value = float(_same(found.text, entry.get("answer")))
            explanation = f"{explanation}, and for any text; as texts they are {'equal' if value else 'not equal'}"
        return Score(value=value, status="ok" if value else "wrong", answer=found.text, explanation=explanation)

    def _verify(self, name: str, answer: str, entry: Mapping[str, Any]) -> Score:
        """The score that a data set's verifier gives to an answer."""
        library = _library()
        try:
            verifier = _verifier(library, name)
            scored = float(verifier(answer, dict(entry)))
        except Exception as error:  # a hundred verifiers, each of which may raise anything for a text of a model
            explanation = f"the verifier of '{name}' failed on {shown(answer)}: {type(error).__name__}: {error}"
            if self.raising == "error" or name not in library.factory.DATASETS:
                return failure(explanation, answer=answer)
            return Score(value=0.0, status="wrong", answer=answer, explanation=explanation)
        explanation = f"the verifier of '{name}' gives {scored:g} for {shown(answer)}"
        if not math.isfinite(scored):
            return failure(explanation, answer=answer)
        return Score(value=scored, status="ok" if scored >= 1 else "wrong", answer=answer, explanation=explanation)


def _odd_digits(text: str) -> bool:
    return any(character.isdigit() and not character.isascii() for character in text)


def _same(answer: str, gold: Any) -> bool:
    return isinstance(gold, str) and unwrapped(answer).casefold() == unwrapped(gold).casefold()


def _library() -> Any:
    try:
        return importlib.import_module("reasoning_gym")
    except ModuleNotFoundError as error:
        if error.name != "reasoning_gym":
            raise
        raise UserError(
            "the reward 'reasoning_gym' needs the library reasoning-gym; pip install 'posttrain[reasoning-gym]'"
        ) from None


@lru_cache(maxsize=256)
def _verifier(library: Any, name: str) -> Callable[[str, Mapping[str, Any]], float]:
    """The verifier of a data set, which is the same for each of its configurations."""
    verifier: Callable[[str, Mapping[str, Any]], float] = library.get_score_answer_fn(name)
    return verifier
