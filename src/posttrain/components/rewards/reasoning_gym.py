"""The verifier that a reasoning-gym data set brings along. Stojanovski et al. 2025, arXiv:2505.24760.

Differs: the library's default verifier pays ``len(answer) / len(text)`` for a text that merely contains the answer,
which a model learns to collect by writing several, and a few verifiers take any text at all for a "no"
(``game_of_life_halting``). `strict` pays for what the verifier calls fully right and nothing else; and where the
verifier would call a text without an answer right too, for the entry's own answer only.
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
"""A text that no verifier should call right."""


@frozen
class ReasoningGym(Reward):
    """Judges by the verifier of the data set that the task's fields ``dataset`` (its name) and ``entry`` come from."""

    extract: Annotated[tuple[Extractor, ...], Field(min_length=1)] = CASCADE
    """Where to look for the answer, in order; the first place that holds something decides."""
    strict: bool = True
    """Whether a score below 1 counts as 0, and a verifier that anything pleases is not believed."""
    raising: Literal["error", "wrong"] = "error"
    """What it means that a verifier raises. Some raise about any answer that they cannot read (``prime_factorization``
    does); with ``wrong`` such an answer is wrong, and so is one that the verifier has a bug about."""

    time_limit: PositiveFloat | None = 30.0
    """Seconds of processor time for one answer, in a worker that is killed when they are up: some verifiers solve what
    they are given. On the clock ten times that. None: no limit, and no process of its own."""

    def prepare(self) -> None:
        """Load the library. Raises `UserError` where it is not installed."""
        _library()

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Ask the verifier about each answer."""
        self.prepare()
        if self.time_limit is None or inside_worker():
            return [self._judge(trajectory) for trajectory in group]
        return await self._isolated.score(group, context)

    @property
    def libraries(self) -> tuple[str, ...]:
        """Modules that workers should find imported."""
        return ("reasoning_gym", "posttrain.components.rewards.reasoning_gym")

    @cached_property
    def _isolated(self) -> Isolated:
        assert self.time_limit is not None, "without a limit there are no workers"
        limits = Limits(cpu_seconds=self.time_limit, wall_seconds=10 * self.time_limit)
        return Isolated(self, limits, preload=self.libraries)

    def __getstate__(self) -> dict[str, Any]:
        """The settings without the workers."""
        return {name: value for name, value in self.__dict__.items() if name != "_isolated"}

    def _judge(self, trajectory: Trajectory) -> Score:
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
        verified = self._ask(name, found.text, entry)
        if verified.status == "error" or not self.strict:
            return verified
        value, explanation = float(verified.value >= 1), f"{verified.explanation} (by {found.where})"
        if value and self._ask(name, NO_ANSWER, entry).value >= 1:
            value = float(_same(found.text, entry.get("answer")))
            explanation = f"{explanation}, and for any text; as texts they are {'equal' if value else 'not equal'}"
        return Score(value=value, status="ok" if value else "wrong", answer=found.text, explanation=explanation)

    def _ask(self, name: str, answer: str, entry: Mapping[str, Any]) -> Score:
        """What a data set's verifier says about an answer."""
        library = _library()
        try:
            verifier = _verifier(library, name)
            scored = float(verifier(answer, dict(entry)))
        except Exception as error:  # whatever a hundred verifiers may raise about a text that a model wrote
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
    """How a data set scores an answer; the same for every configuration of it."""
    verifier: Callable[[str, Mapping[str, Any]], float] = library.get_score_answer_fn(name)
    return verifier
