import pytest
from pydantic import TypeAdapter, ValidationError

from posttrain.components.rewards import Reward
from posttrain.components.rewards.regex import Regex
from tests.components.rewards.judging import judge


def test_search_and_full() -> None:
    anywhere, whole = Regex(pattern=r"\d+"), Regex(pattern=r"\d+", full=True)
    assert [judge(anywhere, text).value for text in ("a 42 b", "42", "b")] == [1.0, 1.0, 0.0]
    assert [judge(whole, text).value for text in ("a 42 b", "42", "b")] == [0.0, 1.0, 0.0]


def test_values_status_and_explanation() -> None:
    regex = Regex(pattern=r"(?i)sorry", matched=-1.0, unmatched=0.5)
    matched, unmatched = judge(regex, "Sorry!"), judge(regex, "no")
    assert (matched.value, matched.status, unmatched.value, unmatched.status) == (-1.0, "ok", 0.5, "wrong")
    assert matched.explanation == "some part of the text matches '(?i)sorry'"
    assert unmatched.explanation == "no part of the text matches '(?i)sorry'"


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("a(b", "not a regular expression: missing ), unterminated subpattern at character 1, before '(b'"),
        ("[z-a]", "bad character range z-a at character 1"),
        (r"(a)\1", "this pattern is refused: it has a back-reference"),
        ("(" * 5000 + ")" * 5000, "is refused: it is nested too deeply"),
        ("a{99999999999999999999}", "is refused"),
    ],
)
def test_a_wrong_pattern_is_reported_when_the_recipe_is_read(pattern: str, message: str) -> None:
    with pytest.raises(ValidationError) as error:
        TypeAdapter(Reward).validate_python({"kind": "regex", "pattern": pattern})
    assert message in str(error.value)
