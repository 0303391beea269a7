"""Questions with choices."""

from pathlib import Path
from typing import Any

import pytest

from posttrain.components.tasks.files import Files
from posttrain.errors import UserError
from tests.components.tasks.written import jsonl, load, load_one

COLORS = ["red", "blue", "green"]
SHOWN = "Which?\n\nA) red\nB) blue\nC) green\n\nAnswer with the label of one choice."


@pytest.mark.parametrize("target", ["B", "b", "blue", 1, ["B"]])
def test_choices_are_shown_and_the_answer_is_a_label(tmp_path: Path, target: Any) -> None:
    task = load_one(tmp_path, {"input": "Which?", "choices": COLORS, "target": target})
    assert (task.prompt, task.answer, task.fields["choices"]) == (SHOWN, "B", COLORS)


def test_labels_of_the_data(tmp_path: Path) -> None:
    row = {"question": "Which?", "choices": {"label": ["1", "2"], "text": ["up", "down"]}, "answerKey": "2"}
    task = load_one(tmp_path, row)
    assert (task.prompt, task.answer) == ("Which?\n\n1) up\n2) down\n\nAnswer with the label of one choice.", "2")


def test_a_text_is_no_index(tmp_path: Path) -> None:
    assert load_one(tmp_path, {"question": "2 - 1?", "choices": ["0", "1", "2"], "answer": 1}).answer == "B"
    assert load_one(tmp_path, {"question": "2 - 1?", "choices": ["1", "2", "3"], "answer": 1}).answer == "A"


def test_chats_have_them_in_the_users_message(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Which?"}]
    task = load_one(tmp_path, {"messages": messages, "choices": COLORS, "target": "A"})
    assert [message["content"] for message in task.prompt] == ["Be brief.", SHOWN]  # type: ignore[index]


def test_a_prompt_that_shows_them_stays(tmp_path: Path) -> None:
    prompt = "Which?\n(A) red (B) blue (C) green"
    assert load_one(tmp_path, {"prompt": prompt, "choices": COLORS, "answer": "C"}).prompt == prompt


def test_they_can_be_left_out(tmp_path: Path) -> None:
    task = load_one(tmp_path, {"input": "Which?", "choices": COLORS, "target": "blue"}, columns={"choices": None})
    assert (task.prompt, task.answer) == ("Which?", "blue")


def test_a_column_of_another_kind_is_a_field(tmp_path: Path) -> None:
    task = load_one(tmp_path, {"prompt": "Which?", "choices": [{"message": "x"}], "answer": "x"})
    assert (task.prompt, task.answer) == ("Which?", "x")


@pytest.mark.parametrize(
    ("target", "message"),
    [("purple", "'target' is 'purple', which is none of the choices A, B, C"), (["A", "B"], "holds 2 right choices")],
)
def test_an_answer_that_is_no_choice(tmp_path: Path, target: Any, message: str) -> None:
    with pytest.raises(UserError, match="line 2: ") as caught:
        load(
            tmp_path,
            {"input": "Which?", "choices": COLORS, "target": "A"},
            {"input": "Which?", "choices": COLORS, "target": target},
        )
    assert message in str(caught.value)


def test_the_description_names_them(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "x.jsonl", [{"input": "Which?", "choices": COLORS, "target": "A"}])
    assert "choices (shown below the prompt; the answer is a label)" in Files(path=str(path)).describe()
