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


def test_a_list_of_rewards_is_their_sum() -> None:
    places = ["match", "mine.py:even", "other.py:even", {"kind": "match", "numeric": "always"}, Format(tags=())]
    read = TypeAdapter(Reward).validate_python(places)
    assert isinstance(read, Sum) and not read.weights
    assert list(read.parts) == ["match", "even", "even_2", "match_2", "format"]
    assert read.parts["even_2"] == Function(path="other.py:even")
    with pytest.raises(ValidationError, match="write a kind of reward"):
        TypeAdapter(Reward).validate_python([])


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
def test_wrong_names_are_reported(settings: dict[str, object], message: str) -> None:
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


SKIPS = """
def words(completions, domain, **columns):
    return [float(c == "42") if d == "words" else None for c, d in zip(completions, domain)]

def sums(completions, domain, **columns):
    return [0.5 if d == "sums" else None for d in domain]
"""


def of_two_kinds(tmp_path: Path, **settings: object) -> Sum:
    file = tmp_path / "two.py"
    file.write_text(SKIPS)
    parts = {name: Function(path=f"{file}:{name}", time_limit=None) for name in ("words", "sums")}
    return TypeAdapter(Sum).validate_python(Sum(parts=parts, **settings))


def of_kind(domain: str) -> Task:
    return Task(key=domain, prompt="What?", fields={"domain": domain})


def test_a_part_that_does_not_apply_is_left_out(tmp_path: Path) -> None:
    reward = of_two_kinds(tmp_path, weights={"sums": 2.0})
    words, sums = (judge(reward, "42", of_kind(domain)) for domain in ("words", "sums"))
    assert (words.value, words.status, words.explanation) == (1.0, "ok", "1 * 1 (words)")
    assert (sums.value, sums.status, sums.explanation) == (1.0, "wrong", "2 * 0.5 (sums)")
    assert not sums.parts["words"].applies and isnan(sums.parts["words"].value)


def test_where_no_part_applies_there_is_no_score(tmp_path: Path) -> None:
    reward = of_two_kinds(tmp_path)
    score = judge(reward, "42", of_kind("other"))
    assert score.status == "error" and not score.applies and "no part of the sum applies" in score.explanation
    nested = Sum(parts={"inner": reward, "always": Regex(pattern="42")})
    assert judge(nested, "42", of_kind("other")).value == 1.0


def test_a_part_that_is_only_recorded_is_no_reward(tmp_path: Path) -> None:
    reward = of_two_kinds(tmp_path, weights={"sums": 0.0})
    assert judge(reward, "42", of_kind("sums")).status == "error"


def test_a_failure_is_still_one_beside_a_part_that_does_not_apply(tmp_path: Path) -> None:
    reward = Sum(parts={"match": Match(), "words": of_two_kinds(tmp_path).parts["words"]})
    score = judge(reward, "42", of_kind("sums"))
    assert score.status == "error" and score.applies and "no answer to compare with" in score.explanation
