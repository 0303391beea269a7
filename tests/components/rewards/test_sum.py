from collections.abc import Sequence
from math import isnan
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rewards.format import Format
from posttrain.components.rewards.function import Function
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.sum import Sum
from posttrain.errors import UserError
from posttrain.types import Group, Score, Task
from tests.components.rewards.judging import attempt, judge, score_all

BOTH = Sum(parts={"match": Match(), "short": Format(tags=(), max_characters=3)}, weights={"short": 0.25})


def test_value_is_the_weighted_sum() -> None:
    assert [judge(BOTH, text).value for text in ("42", "  42", "41", "  41")] == [1.25, 1.0, 0.25, 0.0]


def test_every_part_is_recorded() -> None:
    score = judge(BOTH, "41")
    assert {name: (part.value, part.status) for name, part in score.parts.items()} == {
        "match": (0.0, "wrong"),
        "short": (1.0, "ok"),
    }
    assert score.explanation == "1 * 0 (match) + 0.25 * 1 (short)"


def test_one_part_decides_what_is_right() -> None:
    assert [judge(BOTH, text).status for text in ("42", "  42", "41")] == ["ok", "ok", "wrong"]
    assert judge(BOTH, "42").answer == "42"
    by_length = Sum(parts=BOTH.parts, correct="short")
    assert [judge(by_length, text).status for text in ("42", "  42", "41")] == ["ok", "wrong", "ok"]


def test_a_weight_of_zero_only_records() -> None:
    score = judge(Sum(parts={"match": Match(), "seen": Regex(pattern="x")}, weights={"seen": 0.0}), "x\n42")
    assert score.value == 1.0 and score.parts["seen"].value == 1.0


def test_a_failed_part_fails_the_whole() -> None:
    score = judge(BOTH, "42", Task(key="t", prompt="What?"))
    assert score.status == "error" and isnan(score.value)
    assert score.explanation.startswith("part 'match' failed: task 't' has no answer")
    assert score.parts["short"].status == "ok", "what the others said is kept"


def test_a_sum_that_is_not_finite_is_an_error() -> None:
    huge = Sum(parts={"a": Regex(pattern="", matched=1e308), "b": Regex(pattern="", matched=1e308)})
    assert judge(huge, "").status == "error"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weights": {"mtch": 1.0}}, "the sum has no part 'mtch'; did you mean 'match'?"),
        ({"correct": "shrt"}, "the sum has no part 'shrt'; did you mean 'short'?"),
        ({"parts": {}}, "at least 1"),
        ({"weights": {"match": float("nan")}}, "finite"),
    ],
)
def test_wrong_names_are_told(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError) as error:
        TypeAdapter(Reward).validate_python({"kind": "sum", "parts": BOTH.parts, **settings})
    assert message in str(error.value)


@frozen
class Counting(Reward):
    """Remembers how often it was asked."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        context.state["asked"] = context.state.get("asked", 0) + 1
        return [Score(value=float(context.state["asked"]), status="ok") for _ in group]


def test_each_part_has_its_own_memory() -> None:
    context = RewardContext()
    both = Sum(parts={"first": Counting(), "second": Counting()})
    assert [score_all(both, attempt("a"), context=context)[0].value for _ in range(2)] == [2.0, 4.0]
    assert context.state == {"first": {"asked": 2}, "second": {"asked": 2}}


def test_prepares_and_fingerprints_its_parts(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def score(completion): return 1.0\n")
    good = Sum(parts={"match": Match(), "mine": Function(path=f"{file}:score")})
    good.prepare()
    assert list(good.fingerprint) == [str(file)]
    with pytest.raises(UserError, match="no function 'scor'"):
        Sum(parts={"mine": Function(path=f"{file}:scor")}).prepare()
