import pytest
from pydantic import ValidationError

from posttrain.components.rewards.format import Format
from tests.components.rewards.judging import attempt, judge, score_all

GOOD = "<think>6 times 7</think>\n<answer>42</answer>\n"


def test_the_form() -> None:
    score = judge(Format(), GOOD)
    assert (score.value, score.status) == (1.0, "ok")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("42", "has no tags"),
        ("<think>a</think>", "needs <think> </think> <answer> </answer>, has <think> </think>"),
        ("<answer>42</answer><think>a</think>", "has <answer> </answer> <think> </think>"),
        ("<think>a<answer>42</answer></think>", "has <think> <answer> </answer> </think>"),
        ("<think>a</think><answer>42</answer><answer>43</answer>", "<answer> </answer> <answer> </answer>"),
        ("<think> </think><answer>42</answer>", "<think> is empty"),
        ("<think>a</think><answer></answer>", "<answer> is empty"),
        ("hello <think>a</think><answer>42</answer>", "text outside the tags"),
        ("<think>a</think> so <answer>42</answer>", "text outside the tags"),
        ("<think>a</think><answer>42</answer> ok", "text outside the tags"),
        ("<think>a</think><answer>42", "has <think> </think> <answer>"),
        ("<think>" * 1000, "<think> ..."),
    ],
)
def test_faults(text: str, fault: str) -> None:
    score = judge(Format(), text)
    assert (score.value, score.status) == (0.0, "wrong")
    assert fault in score.explanation


def test_text_outside_may_be_allowed() -> None:
    assert judge(Format(alone=False), "so <think>a</think> then <answer>42</answer>.").status == "ok"


def test_the_last_tag_may_be_a_stop_string() -> None:
    text = "<think>a</think><answer>42"
    assert judge(Format(closed=False), text).status == "ok"
    assert judge(Format(closed=False), GOOD).status == "ok"
    assert judge(Format(closed=False), "<think>a").status == "wrong"
    assert judge(Format(closed=False), "<think>a</think><answer> ").status == "wrong"


def test_a_prompt_may_open_the_first_tag() -> None:
    rest = "6 times 7</think><answer>42</answer>"
    opened, not_opened = attempt(rest, prompt="Q: ...\n<think>\n"), attempt(rest, prompt="Write <think> first.")
    assert [score.status for score in score_all(Format(), opened, not_opened)] == ["ok", "wrong"]


def test_end_and_length() -> None:
    assert judge(Format(), GOOD, stop_reason="length").explanation == "was cut at the token limit"
    assert judge(Format(finished=False), GOOD, stop_reason="length").status == "ok"
    assert judge(Format(max_characters=len(GOOD)), GOOD).status == "ok"
    assert judge(Format(max_characters=10), GOOD).explanation == f"has {len(GOOD)} characters, 10 are allowed"


def test_no_tags_and_other_values() -> None:
    form = Format(tags=(), max_characters=3, right=0.1, wrong=-0.1)
    assert [judge(form, text).value for text in ("abc", "abcd")] == [0.1, -0.1]


def test_tag_names_are_names() -> None:
    with pytest.raises(ValidationError, match="tags"):
        Format(tags=("a b",))
