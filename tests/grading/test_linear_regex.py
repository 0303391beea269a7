import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.grading import linear_regex as _linear_regex
from posttrain.grading.linear_regex import LinearPattern, Refused

ATOMS = ["a", "b", "_", "é", r"\w", r"\W", r"\d", r"\s", "[ab]", "[^a]", "[a-y]", ".", r"\n", r"\b", r"\B", "^", "$"]
ATOMS += [r"\A", r"\Z", "(?i:A)", "(?i:[^A])", "(?m:^)", "(?m:$)", "(?s:.)", r"(?a:\w)", r"(?a:\b)", "(?i:É)", ""]
REPEATS = ["*", "+", "?", "*?", "+?", "{2}", "{1,2}", "{0,3}?", "{2,}"]

patterns = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("(?:{0[0]}|{0[1]})".format),
        st.tuples(inner, st.sampled_from(REPEATS)).map("({0[0]}){0[1]}".format),
    ),
    max_leaves=8,
)
texts = st.text(alphabet="aAbéÉ1 _\n", max_size=7)


@settings(deadline=None)
@given(patterns, st.lists(texts, min_size=4, max_size=8))
def test_agrees_with_re(pattern: str, some: list[str]) -> None:
    reference = re.compile(pattern)
    whole, anywhere = LinearPattern(pattern, full=True), LinearPattern(pattern, full=False)
    for text in ["", *some]:
        if text or r"\B" not in pattern:  # on an empty text, what \B means changed between versions of Python
            assert whole.matches(text) == bool(reference.fullmatch(text))
            assert anywhere.matches(text) == bool(reference.search(text))


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"(?x) a \s b # comment", "a b"),
        (r"(?is)<think>.*</think>\s*<answer>\d+</answer>", "<THINK>\n</THINK>\n<answer>12</answer>"),
        (r"(?P<year>\d{4})-(\d\d)", "on 2024-05"),
        (r"colou?r(?:s|ed)?$", "coloured\n"),
        (r"[^\W\d_]+", "straße"),
        (r"\x41\u00e9", "Aé"),
    ],
)
def test_usual_patterns(pattern: str, text: str) -> None:
    for changed in (text, text.upper(), text[1:], text[:-1], text + "x"):
        assert LinearPattern(pattern, full=True).matches(changed) == bool(re.fullmatch(pattern, changed))
        assert LinearPattern(pattern, full=False).matches(changed) == bool(re.search(pattern, changed))


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a|aa)+$b", "a*a*a*a*b", "(a?){30}a{30}b"])
def test_one_step_a_character_where_re_takes_forever(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    closure = LinearPattern._closure

    def counted(*arguments: object) -> object:
        nonlocal steps
        steps += 1
        return closure(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(LinearPattern, "_closure", counted)
    assert not LinearPattern(pattern, full=False).matches("a" * 20000)
    assert steps < 100, "sets of places that were met before are looked up"


def test_forgetting_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "abba" * 50 + "a" + "b" * 5
    expected = [bool(re.search(p, text)) for p in ("(a|b)*a(a|b){5}$", "(a|b)*b(a|b){6}c")]
    monkeypatch.setattr(_linear_regex, "REMEMBERED", 20)
    assert expected == [True, False]
    assert [LinearPattern(p, full=False).matches(text) for p in ("(a|b)*a(a|b){5}$", "(a|b)*b(a|b){6}c")] == expected


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(a)\1", "a back-reference"),
        (r"a(?=b)", "a look-ahead or look-behind"),
        (r"(?<!a)b", "a negative look-ahead or look-behind"),
        (r"(a)?(?(1)b|c)", "a condition on a group"),
        (r"(?>a|ab)c", "an atomic group"),
        (r"a*+a", "a possessive repeat"),
        (r"((a{50}){50}){50}", "more than 4000 places"),
    ],
)
def test_refuses_what_is_not_linear(pattern: str, why: str) -> None:
    with pytest.raises(Refused, match=re.escape(why)):
        LinearPattern(pattern, full=False)
