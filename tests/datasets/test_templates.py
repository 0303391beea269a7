from pathlib import Path

import pytest
from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from posttrain.components.rewards.judge import Judge
from posttrain.datasets.templates import (
    check_closed,
    check_places,
    fill,
    fill_closed,
    marked,
    places,
    prompt_digest,
    question_of,
    shortened,
)
from posttrain.types import Task


def test_only_known_places_are_filled_and_what_is_filled_in_is_left_alone() -> None:
    text = 'Q {question} {"json": {answer}} {x:>10} {unknown}'
    filled = fill(text, {"question": "{answer}", "answer": "7"})
    assert filled == 'Q {answer} {"json": 7} {x:>10} {unknown}'
    assert places(text) == {"question", "answer", "unknown"}


def test_a_slip_of_the_pen_is_refused_and_other_braces_are_not() -> None:
    with pytest.raises(PydanticCustomError, match="did you mean 'question'"):
        check_places("{quesion}", ["question", "answer"])
    assert check_places("{zzz} {question}", ["question", "answer"]) == "{zzz} {question}"


@pytest.mark.parametrize("text", ["", "a", "<<<END 0>>>", marked("a"), "\ud800"])
def test_marks_do_not_occur_in_what_they_enclose(text: str) -> None:
    begin, *inside, end = marked(text).split("\n")
    mark = begin.removeprefix("<<<BEGIN ").removesuffix(">>>")
    assert len(mark) == 16 and mark not in text and end == f"<<<END {mark}>>>"
    assert "\n".join(inside) == text


@pytest.mark.parametrize("text", ["41\nB: 42\n", "\n\nB: B: 42", "41", "", "\nB:\nB: "])
def test_a_candidate_has_none_of_the_texts_that_end_candidates(text: str) -> None:
    template = "{question}\nA: {first}\nB: {second}\n"
    shown = fill_closed(template, {"question": "6*7\nA: "}, {"first": text, "second": text})
    assert shown.startswith("6*7\nA: \nA: ") and shown.endswith("\n")
    _, first, second, last = shown.removeprefix("6*7\nA: ").split("\n")
    assert first.startswith("A: ") and second == "B" + first[1:] and not last, "two lines, each with its candidate"


def test_nothing_but_a_blank_stands_for_an_end() -> None:
    assert fill_closed("{a} {b}|", {}, {"a": "1 2|3", "b": "4"}) == "1_2 3 4|"
    assert check_closed("{a}|{b}\n", ["a", "b"]) == "{a}|{b}\n"
    with pytest.raises(PydanticCustomError, match="text must follow"):
        check_closed("{a}{b}\n", ["a", "b"])


def test_a_question_is_one_text() -> None:
    messages = ({"role": "system", "content": "Be."}, {"role": "user", "content": "2+2"})
    assert question_of(Task(key="a", prompt="2+2=")) == "2+2="
    assert question_of(Task(key="a", prompt=messages)) == "Be.\n2+2"  # type: ignore[arg-type]


def test_a_path_stands_for_the_text_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "prompt.md"
    path.write_text("Rate {completion} from 0 to 10.")
    assert Judge(template=str(path)) == Judge(template="Rate {completion} from 0 to 10.")
    path.write_text(" ")
    with pytest.raises(ValidationError, match=r"prompt\.md' is empty; write the prompt into it"):
        Judge(template=str(path))
    with pytest.raises(ValidationError, match=r"nowhere\.md' cannot be read"):
        Judge(template=str(tmp_path / "nowhere.md"))


def test_a_digest_is_of_the_prompt() -> None:
    assert prompt_digest("a") == prompt_digest("a") != prompt_digest("b") and len(prompt_digest("a")) == 8
    assert prompt_digest("a", "b") != prompt_digest("ab")


def test_the_end_of_a_long_text_is_cut() -> None:
    assert shortened("abc", 2) == ("ab", True) and shortened("ab", 2) == ("ab", False)
