import pytest

from posttrain.grading.extraction import Extractor, Found, extract, find_answer, gold_answer, shown
from posttrain.types import Message, Task
from tests.components.rewards.judging import attempt


def text_by(where: Extractor, text: str, **how: object) -> str | None:
    found = extract(text, (where,), **how)  # type: ignore[arg-type]
    return found.text if found else None


@pytest.mark.parametrize(
    ("where", "text", "answer"),
    [
        ("answer_tag", "<answer>1</answer> no, <answer> 42 </answer> bye", "42"),
        ("answer_tag", "<ANSWER>42</Answer>", "42"),
        ("answer_tag", "<think>hm</think><answer>42", "42"),
        ("answer_tag", "<answer>1</answer><answer></answer><answer>  ", "1"),
        ("answer_tag", "<answer><answer>42</answer>", "42"),
        ("answer_tag", "<answer>42</answer>43</answer>", "42"),
        ("answer_tag", "42</answer>", None),
        ("boxed", r"\boxed{1} then \boxed{42}.", "42"),
        ("boxed", r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        ("boxed", r"\boxed{x = \boxed{42}}", "42"),
        ("boxed", r"{{ \boxed{\{1, 2\}}", r"\{1, 2\}"),
        ("boxed", r"\fbox {42}", "42"),
        ("boxed", r"\boxed{1} and \boxed{42", "1"),
        ("boxed", r"}}}\boxed{42}", "42"),
        ("boxed", "boxed{42}", None),
        ("hashes", "6 * 7 = 42\n#### 42\n", "42"),
        ("hashes", "#### 1\nno\n#### 42 apples\nbye", "42 apples"),
        ("hashes", "#### 42\n####\n", "42"),
        ("hashes", "### 42", None),
        ("phrase", "So the answer is 42. I am sure.", "42"),
        ("phrase", "The answer is 3.5", "3.5"),
        ("phrase", "**Final Answer:** 42", "42"),
        ("phrase", "answer: 1\nAnswer = 42\nthanks", "42"),
        ("phrase", "The answer is:\n42", "42"),
        ("phrase", "The answer is 42. The answer is", "42"),
        ("phrase", "The answers are 4 and 2!", "4 and 2"),
        ("phrase", "an answer without anything", None),
        ("last_line", "one\n\n 42 \n\n", "42"),
        ("last_line", "42", "42"),
        ("last_line", " \n ", None),
        ("last_number", "from 1,234 to -5.5e3, or 3/4 of it", "3/4"),
        ("last_number", "it costs $1,234.50.", "1,234.50"),
        ("last_number", "minus -7 degrees", "-7"),
        ("last_number", "v1.2b3", None),
        ("last_number", "４２", None),
        ("whole", "  4\n2 ", "4\n2"),
        ("whole", " ", None),
    ],
)
def test_each_extractor(where: Extractor, text: str, answer: str | None) -> None:
    assert text_by(where, text) == answer


def test_the_place_of_the_answer_is_returned() -> None:
    text = r"a \boxed{ 42 } b"
    found = extract(text)
    assert found == Found("42", "boxed", text.index("{") + 1, text.index("}"))
    assert text[found.start : found.end].strip() == found.text


def test_the_first_extractor_that_finds_something_decides() -> None:
    text = "the answer is 1\n#### 2"
    assert extract(text, ("boxed", "phrase", "hashes")) == Found("1", "phrase", 14, 15)
    assert extract(text, ("boxed", "hashes", "phrase")) == Found("2", "hashes", 20, 22)
    assert extract(text, ("boxed",)) is None


def test_an_answer_may_have_as_many_lines_as_the_reference() -> None:
    grid = "#### 1 2\n3 4\nbye"
    assert [text_by("hashes", grid, lines=n) for n in (1, 2, 5)] == ["1 2", "1 2\n3 4", "1 2\n3 4\nbye"]
    assert text_by("hashes", "#### 1 2\n#### 3 4\n5", lines=2) == "3 4\n5"
    assert text_by("phrase", "The answer is:\n1. 2.\n3. 4.\nbye", lines=2) == "1. 2.\n3. 4."
    assert text_by("last_line", "grid:\n1 2\n3 4\n", lines=2) == "1 2\n3 4"
    assert text_by("last_line", "3 4", lines=3) == "3 4"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("#### 4", None),  # perhaps 42
        ("#### 4.", None),  # perhaps 4.2
        ("#### 4\n", "4"),
        ("#### 4\nand so", "4"),
        ("the answer is 4", None),
        ("the answer is 4. And", "4"),
        ("<answer>4", None),
        ("<answer>4</answer>", "4"),
        (r"\boxed{4}", "4"),
    ],
)
def test_an_answer_that_runs_to_the_cut_is_none(text: str, answer: str | None) -> None:
    found = find_answer(attempt(text, stop_reason="length"), ("answer_tag", "boxed", "hashes", "phrase"))
    assert (found.text if found else None) == answer


def test_a_repeated_prompt_holds_no_answer() -> None:
    choice = Task(key="choice", prompt="Which is larger?\n3\n5\n", answer="5")
    assert find_answer(attempt("Which is larger?\n3\n5", choice), ("last_line", "last_number", "whole")) is None
    found = find_answer(attempt("Which is larger?\n3\n5\n\n3", choice), ("last_line",))
    assert found is not None and (found.text, found.start) == ("3", 22), "positions are those of the completion"


def test_a_repeated_chat_message_holds_no_answer_but_an_example_may_be_repeated() -> None:
    messages = (
        Message(role="user", content="What is 3 + 2? Reply with #### and it."),
        Message(role="assistant", content="The sum is\n#### 5"),
        Message(role="user", content="What is 4 + 1? Reply with #### and it."),
    )
    task = Task(key="chat", prompt=messages, answer="5")
    assert find_answer(attempt("What is 4 + 1? Reply with #### and it.", task), ("hashes",)) is None
    found = find_answer(attempt("The sum is\n#### 5", task), ("hashes",))
    assert found is not None and found.text == "5"


def test_a_prompt_may_be_repeated_where_it_is_short_or_part_of_the_answer() -> None:
    short = Task(key="short", prompt="42", answer="42")
    assert find_answer(attempt("42", short), ("whole",), gold="42") is not None
    copying = Task(key="copying", prompt="to be or not to be", answer="to be or not to be, he said")
    assert find_answer(attempt(copying.answer or "", copying), ("whole",), gold=copying.answer or "") is not None


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("She has 6 * 7 = 42.\n#### 42", "42"),
        (r"Thus $x = \boxed{\frac{1}{2}}$.", r"\frac{1}{2}"),
        (" 4\n2 ", "4\n2"),
        ("the answer is 42", "the answer is 42"),
        (" ", ""),
    ],
)
def test_the_reference_answer_proper(answer: str, gold: str) -> None:
    assert gold_answer(answer) == gold


def test_shown_is_short_and_in_one_line() -> None:
    assert shown("a\n\0b") == r"'a\n\x00b'"
    assert len(shown("x" * 1000)) == 62
