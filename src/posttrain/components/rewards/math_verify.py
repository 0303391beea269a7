r"""Whether the answer is mathematically equal to the reference answer, by the library math-verify.

How the answer is extracted: `posttrain.grading.extraction`. Equal texts are equal, and plain numbers are compared
exactly (`posttrain.grading.numbers`). All else is compared by math-verify in a worker that is killed at its time limit:
`posttrain.grading.math_comparison`. An answer that takes too long (``9^{9^{9^9}}``), crashes the library or runs out of
memory gives status ``error`` with the reason, never ``wrong``.

Differs: from the defaults of math-verify, by which 1 equals 1%, 1/3 equals 0.333333333, 5 equals "5 or 6", and two
copies of a number with 5000 digits are unequal. Here a percent sign is a hundredth (see `percent`), decimals are exact
unless there is a tolerance, an answer has as many parts as the reference, and a single letter after a number is a
variable, not a unit.
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
from posttrain.grading.extraction import CASCADE, Extractor, Lists, find_answer, gold_answers, shown
from posttrain.grading.numbers import Number, read_number, same_number, unwrapped
from posttrain.grading.workers import Limits, Outcome, Runner, inside_worker
from posttrain.types import Group, Score, Trajectory

LONGEST = 2000
"""Most characters of an answer that is parsed; a longer one must equal the reference answer letter by letter."""
DEEPEST = 20
"""Most nested brackets of an answer that is parsed; the parser's time doubles with each."""
ON_THE_CLOCK = 60.0
"""Wall-clock limit as a multiple of `time_limit`."""

_PERCENT = re.compile(r"\s*\\?%$")
_LETTER = re.compile(r"[a-z]", re.IGNORECASE)


@frozen
class MathVerify(Reward):
    """Rewards an answer that is mathematically equal to the reference answer."""

    extract: Annotated[tuple[Extractor, ...], Field(min_length=1)] = CASCADE
    """Where to find the answer; the first extractor that finds something decides."""
    tolerance: NonNegativeFloat = 0.0
    """Largest difference between two equal numbers; 0 is exact (to 40 digits for irrational ones)."""
    percent: Literal["hundredth", "ignored"] = "hundredth"
    """Meaning of a percent sign that only one of the two has; if both have one, it is ignored."""
    lists: Lists = "auto"
    """Meaning of a reference answer that is a JSON list. ``auto``: of texts (``["1/2", "0.5"]``), each is right; any
    other list (``[1, 2]``) is itself the answer. ``any``: each item is right. ``text``: a list is itself the answer."""
    time_limit: PositiveFloat = 1.0
    """Seconds of processor time for one comparison; the wall-clock limit is sixty times that."""
    memory_mib: Annotated[int, Field(ge=64, le=1 << 20)] = 512
    """Memory for one comparison."""
    right: float = 1.0
    """Reward of an equal answer."""
    wrong: float = 0.0
    """Reward of an unequal answer, or one that cannot be parsed."""
    missing: float = 0.0
    """Reward of a completion without an answer."""

    def prepare(self) -> None:
        """Check that the library is installed. Raises `UserError`."""
        for name in ("math_verify", "latex2sympy2_extended"):
            if importlib.util.find_spec(name) is None:
                raise UserError(f"the reward 'math_verify' needs the library {name}; pip install 'posttrain[math]'")

    @property
    def libraries(self) -> tuple[str, ...]:
        """Modules that workers import when they start."""
        return ("posttrain.grading.math_warm",)

    @property
    def needs_answer(self) -> bool:
        """True."""
        return True

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare each answer with the reference answer; equal pairs are compared once."""
        drafts = [self._drafts(trajectory) for trajectory in group]
        pairs = (draft for one in drafts for draft in one if not isinstance(draft, Score))
        open_pairs = list(dict.fromkeys(pairs))
        calls = [{"gold": gold, "answer": answer, "tolerance": repr(self.tolerance)} for gold, answer in open_pairs]
        compared = dict(zip(open_pairs, await self._compare(calls), strict=True))
        scores = [[d if isinstance(d, Score) else self._verdict(*d, compared[d]) for d in one] for one in drafts]
        return [next((s for kind in ("ok", "error") for s in one if s.status == kind), one[0]) for one in scores]

    async def _compare(self, calls: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        if not inside_worker():
            return await self._runner.run(calls) if calls else []
        grader = _opened()
        return [Outcome(how="ok", value=grader(call)) for call in calls]

    def _drafts(self, trajectory: Trajectory) -> list[Score | tuple[str, str]]:
        """A draft for each answer that is right."""
        task = trajectory.task
        golds = gold_answers(task.answer or "", self.lists)
        if not golds:
            return [failure(f"task '{task.key}' has no answer to compare with; give its row an 'answer' column")]
        return [self._draft(trajectory, gold) for gold in golds]

    def _draft(self, trajectory: Trajectory, gold: str) -> Score | tuple[str, str]:
        """The score, where texts or plain numbers decide; else the reference answer and the answer."""
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
        limits = Limits(
            cpu_seconds=self.time_limit, wall_seconds=ON_THE_CLOCK * self.time_limit, memory_mib=self.memory_mib
        )
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
    """The comparison in this process, where it is a worker."""
    from posttrain.grading.math_worker import open_comparison

    return open_comparison(None)


def _bare(text: str) -> str:
    """An answer without a final full stop, dollar signs and emphasis around it."""
    return unwrapped(text).strip()


def _hundredth(text: str) -> str:
    """A percentage as a fraction; other text unchanged."""
    if not _PERCENT.search(text):
        return text
    bare = _PERCENT.sub("", text)
    number = _number(bare)
    return rf"\frac{{{bare}}}{{100}}" if number is None else str(number.value / 100)


def _number(text: str) -> Number | None:
    """A plain number, with a unit of more than one letter at most; None for others, such as ``5x``."""
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
