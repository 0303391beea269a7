import pytest
from pydantic_core import PydanticCustomError

from posttrain.datasets.templates import check_places, fill, marked, places, question_of
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


def test_a_question_is_one_text() -> None:
    messages = ({"role": "system", "content": "Be."}, {"role": "user", "content": "2+2"})
    assert question_of(Task(key="a", prompt="2+2=")) == "2+2="
    assert question_of(Task(key="a", prompt=messages)) == "Be.\n2+2"  # type: ignore[arg-type]
