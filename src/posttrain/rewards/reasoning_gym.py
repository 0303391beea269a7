"""The verifier that a reasoning-gym data set brings along. Stojanovski et al. 2025, arXiv:2505.24760.

Differs: the library's default verifier pays ``len(answer) / len(text)`` for a text that merely contains the answer,
which a model learns to collect by writing several; `strict` pays for what the verifier calls fully right, and nothing
else.
"""

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any

from pydantic import Field

from posttrain.component import frozen
from posttrain.errors import UserError
from posttrain.rewards import Reward, RewardContext, failure
from posttrain.rewards._extraction import CASCADE, Extractor, find_answer, shown
from posttrain.types import Group, Score, Trajectory


@frozen
class ReasoningGym(Reward):
    """Judges by the verifier of the data set that the task's fields ``dataset`` (its name) and ``entry`` come from."""

    extract: Annotated[tuple[Extractor, ...], Field(min_length=1)] = CASCADE
    """Where to look for the answer, in order; the first place that holds something decides."""
    strict: bool = True
    """Whether a score below 1 counts as 0."""

    def prepare(self) -> None:
        """Load the library. Raises `UserError` where it is not installed."""
        _library()

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Ask the verifier about each answer."""
        return [self._judge(trajectory) for trajectory in group]

    def _judge(self, trajectory: Trajectory) -> Score:
        task = trajectory.task
        name, entry = task.fields.get("dataset"), task.fields.get("entry")
        if not isinstance(name, str) or not isinstance(entry, Mapping):
            return failure(f"task '{task.key}' is not from reasoning-gym: it has no fields 'dataset' and 'entry'")
        found = find_answer(trajectory, self.extract, gold=str(entry.get("answer") or ""))
        if found is None:
            return Score(value=0.0, status="wrong", explanation=f"no answer found by {', '.join(self.extract)}")
        try:
            scored = float(_verifier(name)(found.text, dict(entry)))
        except UserError:
            raise
        except Exception as error:  # whatever 100 verifiers may raise about a text that a model wrote
            explanation = f"the verifier of '{name}' failed on {shown(found.text)}: {type(error).__name__}: {error}"
            return failure(explanation, answer=found.text)
        if not math.isfinite(scored):
            return failure(f"the verifier of '{name}' gave {scored} for {shown(found.text)}", answer=found.text)
        value = scored if scored >= 1 or not self.strict else 0.0
        explanation = f"the verifier of '{name}' gives {scored:g} for {shown(found.text)} (by {found.where})"
        return Score(value=value, status="ok" if scored >= 1 else "wrong", answer=found.text, explanation=explanation)


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
def _verifier(name: str) -> Callable[[str, Mapping[str, Any]], float]:
    """How a data set scores an answer; the same for every configuration of it."""
    library = _library()
    verifier: Callable[[str, Mapping[str, Any]], float] = library.get_score_answer_fn(name)
    return verifier
