r"""Whether the answer in a completion equals the task's reference answer, as mathematics, by the library math-verify.

Which part of the completion is its answer: `posttrain.grading.extraction`. Equal texts are equal, plain numbers are
compared exactly here (`posttrain.grading.numbers`), and everything else goes to math-verify in a worker that is killed
when its time is up: `posttrain.grading.math_comparison`. An answer that takes too long (``9^{9^{9^9}}``), crashes the
library or eats memory gives status ``error`` with the reason, never ``wrong``.

Differs: from math-verify's defaults, which call equal 1 and 1%, 1/3 and 0.333333333, 5 and "5 or 6", and unequal two
copies of a number with 5000 digits. A percent sign is a hundredth (see `percent`), decimals are exact unless there is a
tolerance, an answer has as many parts as the reference, and a single letter after a number is an unknown, not a unit.
"""

import importlib.util
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache, cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.errors import UserError
from posttrain.grading.extraction import CASCADE, Extractor, find_answer, gold_answer, shown
from posttrain.grading.numbers import Number, read_number, same_number, unwrapped
from posttrain.grading.workers import Limits, Outcome, Runner, inside_worker
from posttrain.types import Group, Score, Trajectory

LONGEST = 2000
"""Characters of an answer that is looked at, unless it is the reference answer letter by letter."""
DEEPEST = 20
"""Levels of brackets of such an answer; the parser's time doubles with each."""
ON_THE_CLOCK = 12.0
"""Times `time_limit`."""

_PERCENT = re.compile(r"\s*\\?%$")
_LETTER = re.compile(r"[a-z]", re.IGNORECASE)


@frozen
class MathVerify(Reward):
    """Pays for an answer that is mathematically the reference answer."""

    extract: Annotated[tuple[Extractor, ...], Field(min_length=1)] = CASCADE
    """Where to look for the answer, in order; the first place that holds something decides."""
    tolerance: NonNegativeFloat = 0.0
    """Largest difference between two numbers that are called equal; 0 is exact (to 40 digits for irrational ones)."""
    percent: Literal["hundredth", "ignored"] = "hundredth"
    """What a percent sign means that only one of the two has; both having one, it counts as nothing."""
    time_limit: PositiveFloat = 5.0
    """Seconds of processor time for one comparison; twelve times that on the clock."""
    right: float = 1.0
    """Reward of an answer that is equal."""
    wrong: float = 0.0
    """Reward of one that is not, or that cannot be read."""
    missing: float = 0.0
    """Reward of a completion in which no answer was found."""

    def prepare(self) -> None:
        """See that the library is there. Raises `UserError`."""
        for name in ("math_verify", "latex2sympy2_extended"):
            if importlib.util.find_spec(name) is None:
                raise UserError(f"the reward 'math_verify' needs the library {name}; pip install 'posttrain[math]'")

    @property
    def libraries(self) -> tuple[str, ...]:
        """Modules that workers should find imported."""
        return ("posttrain.grading.math_warm",)

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare each answer with its task's; equal pairs once."""
        drafts = [self._draft(trajectory) for trajectory in group]
        open_pairs = list(dict.fromkeys(pair for pair in drafts if not isinstance(pair, Score)))
        calls = [{"gold": gold, "answer": answer, "tolerance": repr(self.tolerance)} for gold, answer in open_pairs]
        compared = dict(zip(open_pairs, await self._compare(calls), strict=True))
        return [draft if isinstance(draft, Score) else self._verdict(*draft, compared[draft]) for draft in drafts]

    async def _compare(self, calls: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        if not inside_worker():
            return await self._runner.run(calls) if calls else []
        grader = _opened()
        return [Outcome(how="ok", value=grader(call)) for call in calls]

    def _draft(self, trajectory: Trajectory) -> Score | tuple[str, str]:
        """The score, where text or plain numbers decide; else the reference answer and the answer."""
        task = trajectory.task
        gold = gold_answer(task.answer or "")
        if not gold:
            return failure(f"task '{task.key}' has no answer to compare with; give its row an 'answer' column")
        found = find_answer(trajectory, self.extract, gold=gold)
        if found is None:
            explanation = f"no answer found by {', '.join(self.extract)}"
            return Score(value=self.missing, status="wrong", explanation=explanation)
        answer, gold = _bare(found.text), _bare(gold)
        if "".join(answer.split()) == "".join(gold.split()):
            return self._score(True, gold, answer, "letter by letter")
        if len(answer) > LONGEST or _depth(answer) > DEEPEST:
            return self._score(False, gold, answer, f"longer than {LONGEST} characters or {DEEPEST} brackets deep")
        if bool(_PERCENT.search(gold)) != bool(_PERCENT.search(answer)) and self.percent == "hundredth":
            gold, answer = _hundredth(gold), _hundredth(answer)
        gold, answer = _PERCENT.sub("", gold), _PERCENT.sub("", answer)
        expected, given = _number(gold), _number(answer)
        if expected is not None and given is not None:
            same = same_number(given, expected, Fraction(repr(self.tolerance)))
            return self._score(same, gold, answer, "compared as numbers")
        return (gold, answer) if expected is None or not expected.unit else (str(expected.value), answer)

    def _verdict(self, gold: str, answer: str, outcome: Outcome) -> Score:
        if outcome.how != "ok":
            return failure(
                f"comparing {shown(answer)} with {shown(gold)} failed ({outcome.how}): {outcome.explanation}",
                answer=answer,
            )
        return self._score(outcome.value["equal"], gold, answer, outcome.value["why"])

    def _score(self, right: bool, gold: str, answer: str, why: str) -> Score:
        answer = answer if len(answer) <= LONGEST else f"{answer[:LONGEST]}..."
        explanation = f"{shown(answer)} {'is' if right else 'is not'} {shown(gold)}, {why}"
        return Score(
            value=self.right if right else self.wrong,
            status="ok" if right else "wrong",
            answer=answer,
            explanation=explanation,
        )

    @cached_property
    def _runner(self) -> Runner:
        limits = Limits(cpu_seconds=self.time_limit, wall_seconds=ON_THE_CLOCK * self.time_limit)
        return Runner(
            "posttrain.grading.math_worker:open_comparison",
            limits=limits,
            preload=self.libraries,
        )

    def __getstate__(self) -> dict[str, Any]:
        """The settings without the workers."""
        return {name: value for name, value in self.__dict__.items() if name != "_runner"}


@cache
def _opened() -> Any:
    """The comparison in this process, which is a worker already."""
    from posttrain.grading.math_worker import open_comparison

    return open_comparison(None)


def _bare(text: str) -> str:
    """An answer without what stands around it: a last full stop, dollars, emphasis."""
    return unwrapped(text).strip()


def _hundredth(text: str) -> str:
    """A percentage as a fraction; anything else as it is."""
    if not _PERCENT.search(text):
        return text
    bare = _PERCENT.sub("", text)
    number = _number(bare)
    return rf"\frac{{{bare}}}{{100}}" if number is None else str(number.value / 100)


def _number(text: str) -> Number | None:
    """A plain number, with a unit only where that is clearly one; ``5x`` is none."""
    number = read_number(text)
    if number is None or len(number.unit) > 1:
        return number
    return None if number.unit or _LETTER.search(text.replace(r"\frac", "").replace("frac", "")) else number


def _depth(text: str) -> int:
    depth = deepest = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    return deepest
