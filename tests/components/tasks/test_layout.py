"""What columns are taken for: one row of each kind of data set, as it is written by others."""

import json
from pathlib import Path
from typing import Any

import pytest

from posttrain.components.tasks.files import Files
from posttrain.datasets.keys import problem
from posttrain.errors import UserError
from posttrain.types import Preference, Rated
from tests.components.tasks.written import delimited, jsonl, load, load_one

USER = {"role": "user", "content": "What is 2+2?"}
RIGHT = {"role": "assistant", "content": "4"}
WRONG = {"role": "assistant", "content": "5"}
SYSTEM = {"role": "system", "content": "You add."}


def error(folder: Path, *rows: Any, **settings: Any) -> str:
    with pytest.raises(UserError) as caught:
        load(folder, *rows, **settings)
    return str(caught.value)


# Prompt and answer


@pytest.mark.parametrize(
    "name", ["prompt", "question", "problem", "query", "instruction", "input", "Problem", "QUESTION"]
)
@pytest.mark.parametrize("answer", ["answer", "solution", "ground_truth", "target", "gold", "Answer"])
def test_names_of_prompt_and_answer(tmp_path: Path, name: str, answer: str) -> None:
    task = load_one(tmp_path, {answer: "4", name: "2+2?", "extra": [1, {"a": None}]})
    assert (task.prompt, task.answer, task.demonstrations) == ("2+2?", "4", ())
    assert task.fields == {answer: "4", "extra": [1, {"a": None}]}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4, "4"),
        (-3, "-3"),
        (4.0, "4"),
        (0.1, "0.1"),
        (1e300, "1e+300"),
        (True, "true"),
        (False, "false"),
        ({"b": 1, "a": "ü"}, '{"b": 1, "a": "ü"}'),
        ([1, "x", None], '[1, "x", null]'),
        (" kept as it is\n", " kept as it is\n"),
        (10**30, "1" + "0" * 30),
        (None, None),
    ],
)
def test_answers_become_text_and_stay_as_they_were_in_the_fields(tmp_path: Path, value: Any, text: str | None) -> None:
    task = load_one(tmp_path, {"prompt": "p", "answer": value})
    assert task.answer == text
    assert task.fields == {"answer": value}


def test_the_first_known_name_is_taken_and_the_others_are_fields(tmp_path: Path) -> None:
    task = load_one(tmp_path, {"question": "q", "prompt": "p", "target": "t", "answer": "a"})
    assert (task.prompt, task.answer) == ("p", "a")
    assert task.fields == {"question": "q", "target": "t", "answer": "a"}


def test_a_column_that_is_empty_everywhere_is_not_there(tmp_path: Path) -> None:
    first, second = load(tmp_path, {"prompt": None, "question": "q"}, {"prompt": None, "question": "r"})
    assert (first.prompt, second.prompt) == ("q", "r")


def test_some_rows_may_have_no_answer_and_it_is_reported(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "answer": "1"}, {"prompt": "q"}, {"prompt": "r", "answer": None}]
    assert [task.answer for task in load(tmp_path, *rows)] == ["1", None, None]
    assert "answer         answer (1 of 3)" in Files(path=str(tmp_path / "rows.jsonl")).describe()


def test_gsm8k(tmp_path: Path) -> None:
    working = "She has 1+1=<<1+1=2>>2 eggs.\n#### 2"
    task = load_one(tmp_path, {"question": "Eggs?", "answer": working})
    assert task.answer == working
    assert task.demonstrations == (working,), "the answer shows its working, so it can be imitated"
    assert load_one(tmp_path, {"question": "Eggs?", "answer": "#### 2"}).demonstrations == ()


def test_math_with_a_worked_solution_beside_the_answer(tmp_path: Path) -> None:
    task = load_one(tmp_path, {"problem": "p", "solution": "so it is 4", "answer": "4", "unique_id": "test/1"})
    assert (task.answer, task.demonstrations, task.key) == ("4", ("so it is 4",), "test/1")
    assert load_one(tmp_path, {"problem": "p", "solution": "4"}).answer == "4"


def test_verl(tmp_path: Path) -> None:
    row = {
        "data_source": "openai/gsm8k",
        "prompt": [USER],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "4"},
        "extra_info": {"split": "train", "index": 0, "answer": "work"},
    }
    task = load_one(tmp_path, row)
    assert (task.prompt, task.answer, task.domain) == ((USER,), "4", "openai/gsm8k")
    assert task.fields == {name: row[name] for name in row if name != "prompt"}


def test_openai_reinforcement_fine_tuning(tmp_path: Path) -> None:
    task = load_one(tmp_path, {"messages": [SYSTEM, USER], "reference_answer": "4", "tags": ["a"]})
    assert (task.prompt, task.answer, task.demonstrations) == ((SYSTEM, USER), "4", ())
    assert task.fields == {"reference_answer": "4", "tags": ["a"]}


def test_inspect(tmp_path: Path) -> None:
    row = {"input": "Capital?", "target": ["Paris", "paris"], "id": 3, "choices": ["a"], "metadata": {"x": 1}}
    task = load_one(tmp_path, row)
    assert (task.key, task.prompt, task.answer) == ("3", "Capital?", '["Paris", "paris"]')
    assert task.fields["choices"] == ["a"] and task.fields["metadata"] == {"x": 1}


def test_reasoning_gym(tmp_path: Path) -> None:
    row = {"question": "q", "answer": "4", "metadata": {"source_dataset": "leg_counting", "source_index": 0}}
    assert load_one(tmp_path, row).domain == "leg_counting"


@pytest.mark.parametrize("name", ["domain", "category", "subject", "data_source", "source_dataset"])
def test_domains(tmp_path: Path, name: str) -> None:
    tasks = load(tmp_path, {"prompt": "p", name: "algebra"}, {"prompt": "q", name: 7}, {"prompt": "r"})
    assert [task.domain for task in tasks] == ["algebra", "7", ""]


# Messages


def test_a_last_message_by_the_assistant_is_a_demonstration(tmp_path: Path) -> None:
    task = load_one(tmp_path, {"messages": [SYSTEM, USER, WRONG, USER, RIGHT]})
    assert task.prompt == (SYSTEM, USER, WRONG, USER)
    assert task.demonstrations == ("4",)


def test_json_text_of_messages_counts_as_messages(tmp_path: Path) -> None:
    assert load_one(tmp_path, {"messages": json.dumps([USER, RIGHT])}).demonstrations == ("4",)
    assert load_one(tmp_path, {"prompt": json.dumps([SYSTEM, USER])}).prompt == (SYSTEM, USER)
    for text in ("[1, 2] and so on", "[1, 2]", "[]", '[{"role": "user"}]', "[" * 5000):
        assert load_one(tmp_path, {"prompt": text}).prompt == text


def test_messages_in_other_spellings(tmp_path: Path) -> None:
    sharegpt = [{"from": "human", "value": "What is 2+2?"}, {"from": "gpt", "value": "4"}]
    assert load_one(tmp_path, {"conversations": sharegpt}).prompt == (USER,)
    parts = [{"type": "text", "text": "What is "}, {"type": "text", "text": "2+2?"}]
    assert load_one(tmp_path, {"messages": [{"role": "user", "content": parts}]}).prompt == (USER,)


def test_what_else_a_message_holds_is_kept_for_the_template(tmp_path: Path) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}], "name": None}
    tool = {"role": "tool", "content": "4", "tool_call_id": "1"}
    prompt = load_one(tmp_path, {"messages": [USER, call, tool]}).prompt
    assert prompt == (USER, {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}, tool)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([RIGHT], "holds an answer only; what it answers is missing"),
        ([], "'messages' is '[]', which is neither text nor a list of messages"),
        ([{"role": "user"}], "which is neither text nor a list of messages"),
        ("Hi", "'messages' is 'Hi', which is neither text nor a list of messages"),
        ([{"role": 3, "content": "a"}], "message 1 has the role 3"),
        ([USER, {"role": "user", "content": None}], "message 2 (user) has content that is not text: None"),
        (
            [{"role": "user", "content": [{"type": "audio", "audio": "u"}]}],
            "message 1 has a part that is neither text nor an image",
        ),
        (r'[{"role": "user", "content": "\ud800"}]', "message 1 holds half of a character"),
    ],
)
def test_bad_messages(tmp_path: Path, messages: Any, message: str) -> None:
    text = error(tmp_path, {"messages": [USER]}, {"messages": messages})
    assert "rows.jsonl line 2" in text and message in text


# Demonstrations and plain text


@pytest.mark.parametrize("name", ["demonstration", "demonstrations", "completion", "response", "output"])
def test_names_of_demonstrations(tmp_path: Path, name: str) -> None:
    task = load_one(tmp_path, {"prompt": "p", name: " 4", "answer": "4"})
    assert (task.demonstrations, task.answer) == ((" 4",), "4")
    assert load_one(tmp_path, {"prompt": [USER], name: [RIGHT]}).demonstrations == ("4",)


def test_several_demonstrations_or_none(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "demonstrations": value} for value in (["a", "b"], "c", [], None, "", ["d", "", None])]
    assert [task.demonstrations for task in load(tmp_path, *rows)] == [("a", "b"), ("c",), (), (), (), ("d",)]


def test_a_completion_of_several_messages_is_refused(tmp_path: Path) -> None:
    assert "holds 2 messages; one by the assistant is needed" in error(
        tmp_path, {"prompt": "p", "completion": [USER, RIGHT]}
    )


def test_instruction_with_input(tmp_path: Path) -> None:
    row = {"instruction": "Add.", "input": "2+2", "output": "4"}
    first, second = load(tmp_path, row, {**row, "input": ""})
    assert (first.prompt, second.prompt) == ("Add.\n\n2+2", "Add.")
    assert first.demonstrations == ("4",) and first.fields == {"output": "4"}
    assert "prompt         instruction + input" in Files(path=str(tmp_path / "rows.jsonl")).describe()


def test_plain_text_is_imitated_and_has_no_prompt(tmp_path: Path) -> None:
    task = load_one(tmp_path, {"text": "Once upon a time", "source": "book"})
    assert (task.prompt, task.demonstrations, task.fields) == ("", ("Once upon a time",), {"source": "book"})
    assert load_one(tmp_path, {"text": "Once", "answer": "upon"}).prompt == "Once", "with an answer it is a prompt"


def test_words_that_would_run_together_are_pointed_out(tmp_path: Path) -> None:
    def described(prompt: str, completion: str) -> str:
        jsonl(tmp_path / "a.jsonl", [{"prompt": prompt, "completion": completion}])
        return Files(path=str(tmp_path / "a.jsonl")).describe()

    assert "directly" in described("2+2 is", "four")
    assert "directly" not in described("2+2 is", " four")
    assert "directly" not in described("2+2=", "4")


# Preferences and ratings


def test_preferences(tmp_path: Path) -> None:
    task = load_one(tmp_path, {"prompt": "p", "chosen": " good", "rejected": " bad", "score": 3})
    assert task.prompt == "p"
    assert task.preferences == (Preference(chosen=" good", rejected=" bad"),)
    assert task.rated == () and task.fields["score"] == 3


@pytest.mark.parametrize(
    ("chosen", "rejected", "prompt", "good", "bad"),
    [
        ("Q: 2+2 A: 4", "Q: 2+2 A: 5", "Q: 2+2 A:", " 4", " 5"),
        ("It is four", "It is fourteen", "It is", " four", " fourteen"),
        ("\n\nHuman: Hi\n\nAssistant: Good day", "\n\nHuman: Hi\n\nAssistant: Go away",
         "\n\nHuman: Hi\n\nAssistant:", " Good day", " Go away"),
        ("\n\nHuman: Hi\n\nAssistant: Yes? I\n\nHuman: So\n\nAssistant: A", "\n\nHuman: Hi\n\nAssistant: Yes? I",
         "\n\nHuman: Hi\n\nAssistant:", " Yes? I\n\nHuman: So\n\nAssistant: A", " Yes? I"),
    ],
)  # fmt: skip
def test_text_that_both_begin_with_is_the_prompt(
    tmp_path: Path, chosen: str, rejected: str, prompt: str, good: str, bad: str
) -> None:
    task = load_one(tmp_path, {"chosen": chosen, "rejected": rejected})
    assert (task.prompt, task.preferences) == (prompt, (Preference(chosen=good, rejected=bad),))


@pytest.mark.parametrize(
    ("row", "prompt"),
    [
        ({"chosen": [USER, RIGHT], "rejected": [USER, WRONG]}, (USER,)),
        ({"chosen": [SYSTEM, USER, RIGHT], "rejected": [SYSTEM, USER, WRONG]}, (SYSTEM, USER)),
        ({"prompt": "What is 2+2?", "chosen": [USER, RIGHT], "rejected": [USER, WRONG]}, (USER,)),
        ({"prompt": "What is 2+2?", "chosen": [RIGHT], "rejected": [WRONG]}, (USER,)),
        ({"prompt": [SYSTEM, USER], "chosen": [RIGHT], "rejected": [WRONG]}, (SYSTEM, USER)),
        ({"prompt": [SYSTEM, USER], "chosen": [USER, RIGHT], "rejected": [USER, WRONG]}, (SYSTEM, USER)),
        ({"chosen": [USER, RIGHT], "rejected": [USER, RIGHT]}, (USER,)),
    ],
)
def test_messages_that_both_begin_with_are_the_prompt(tmp_path: Path, row: dict[str, Any], prompt: Any) -> None:
    task = load_one(tmp_path, row)
    assert task.prompt == prompt
    assert task.preferences == (Preference(chosen="4", rejected=row["rejected"][-1]["content"]),)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"chosen": "Yes", "rejected": "No"}, "begin with no common words"),
        ({"chosen": [RIGHT], "rejected": [WRONG]}, "hold an answer only"),
        ({"chosen": [USER, RIGHT, USER, RIGHT], "rejected": [USER, WRONG]}, "does not end in one message"),
        ({"chosen": [USER, USER], "rejected": [USER, WRONG]}, "'chosen' does not end in one message"),
        ({"prompt": "p", "chosen": "Yes", "rejected": 3}, "'rejected' is '3', which is not text"),
        ({"prompt": "p", "chosen": "Yes"}, "no 'rejected', which other rows have"),
    ],
)
def test_bad_preferences(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    good = {"prompt": "p", "chosen": "a b", "rejected": "a c"}
    rows = [good if "prompt" in row else {"chosen": "a b", "rejected": "a c"}, row]
    text = error(tmp_path, *rows)
    assert "rows.jsonl line 2" in text and message in text


@pytest.mark.parametrize(
    ("row", "rating"),
    [
        ({"completion": "4", "label": True}, 1.0),
        ({"completion": "4", "label": False}, 0.0),
        ({"completion": "4", "label": 0}, 0.0),
        ({"response": "4", "rating": 3}, 3.0),
        ({"output": "4", "reward": -0.5}, -0.5),
        ({"completion": "4", "score": 0.25}, 0.25),
        ({"completion": [RIGHT], "label": True}, 1.0),
    ],
)
def test_rated_completions_are_no_demonstrations(tmp_path: Path, row: dict[str, Any], rating: float) -> None:
    task = load_one(tmp_path, {"prompt": "p", **row})
    assert task.rated == (Rated(completion="4", rating=rating),)
    assert task.demonstrations == ()


def test_ratings_in_csv_are_read_from_text(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "completion": "a", "label": text} for text in ("True", "false", "1", "0")]
    tasks = Files(path=str(delimited(tmp_path / "a.csv", rows))).load()
    assert [task.rated[0].rating for task in tasks] == [1.0, 0.0, 1.0, 0.0]


def test_a_label_that_is_a_class_is_a_field(tmp_path: Path) -> None:
    task = load_one(tmp_path, {"prompt": "p", "completion": "c", "label": "positive"})
    assert (task.rated, task.demonstrations) == ((), ("c",))
    assert load_one(tmp_path, {"prompt": "p", "label": True}).rated == ()


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"label": True}, {"label": 3}, "'label' is '3'; it must be true or false"),
        ({"rating": 1}, {"rating": "high"}, "'rating' is 'high'; it must be a number"),
        ({"rating": 1}, {"rating": None}, "no 'rating', which other rows have"),
    ],
)
def test_bad_ratings(tmp_path: Path, first: dict[str, Any], second: dict[str, Any], message: str) -> None:
    rows = [{"prompt": "p", "completion": "a", **row} for row in (first, second)]
    text = error(tmp_path, *rows)
    assert "rows.jsonl line 2" in text and message in text


# Declaring what columns are


def test_columns_can_be_declared(tmp_path: Path) -> None:
    row = {"mine": "2+2?", "gold_number": 4, "work": "it is 4", "prompt": "not this", "group": "sums", "name": "a"}
    said = {"prompt": "mine", "answer": "gold_number", "demonstrations": "work", "domain": "group", "key": "name"}
    task = load_one(tmp_path, row, columns=said)
    assert (task.prompt, task.answer, task.demonstrations) == ("2+2?", "4", ("it is 4",))
    assert (task.domain, task.key) == ("sums", "a")
    assert task.fields["prompt"] == "not this" and "mine" not in task.fields


def test_columns_can_be_inside_others(tmp_path: Path) -> None:
    task = load_one(tmp_path, {"prompt": "p", "info": {"gold": {"x": 4}}}, columns={"answer": "info.gold.x"})
    assert task.answer == "4"
    assert load_one(tmp_path, {"prompt": "p", "info.gold": 5}, columns={"answer": "info.gold"}).answer == "5"


def test_a_role_can_be_left_empty(tmp_path: Path) -> None:
    row = {"prompt": "p", "output": "o", "answer": "a", "id": "k"}
    task = load_one(tmp_path, row, columns={"demonstrations": None, "answer": None, "key": None})
    assert (task.demonstrations, task.answer) == ((), None) and task.key != "k"


def test_a_column_that_was_declared_is_not_taken_twice(tmp_path: Path) -> None:
    task = load_one(tmp_path, {"prompt": "p", "output": "4"}, columns={"answer": "output"})
    assert (task.answer, task.demonstrations) == ("4", ())
    row = {"instruction": "Add.", "input": "4", "output": "o"}
    assert load_one(tmp_path, row, columns={"answer": "input"}).prompt == "Add."


def test_declared_preferences_ratings_messages_and_text(tmp_path: Path) -> None:
    row = {"q": "p", "good": "g", "bad": "b", "reply": "r", "stars": 4, "talk": [USER, RIGHT]}
    pair = load_one(tmp_path, row, columns={"prompt": "q", "chosen": "good", "rejected": "bad"})
    assert pair.preferences == (Preference(chosen="g", rejected="b"),)
    rated = load_one(tmp_path, row, columns={"prompt": "q", "completion": "reply", "rating": "stars"})
    assert rated.rated == (Rated(completion="r", rating=4.0),)
    imitated = load_one(tmp_path, row, columns={"prompt": "q", "completion": "reply"})
    assert imitated.demonstrations == ("r",)
    assert load_one(tmp_path, row, columns={"messages": "talk"}).demonstrations == ("4",)
    assert load_one(tmp_path, row, columns={"text": "reply"}).demonstrations == ("r",)


def test_rows_of_an_environment_need_no_prompt(tmp_path: Path) -> None:
    rows = [{"wish": "milk"}, {"wish": "tea"}, {"wish": "milk"}]
    tasks = load(tmp_path, *rows, columns={"prompt": None})
    assert [(task.prompt, task.fields) for task in tasks] == [("", row) for row in rows]
    assert tasks[0].key != tasks[1].key and tasks[2].key == f"{tasks[0].key}-2"
    assert problem(tasks[0]) == problem(tasks[2]) != problem(tasks[1]), "the fields are the problem"


@pytest.mark.parametrize(
    ("row", "columns", "message"),
    [
        ({"q": "p"}, {"prompt": "qq"}, "columns.prompt names 'qq', which no row has a value in; did you mean 'q'?"),
        ({"prompt": "p", "gold": None}, {"answer": "gold"}, "the columns are 'prompt'"),
        ({"prompt": "p", "stars": 3}, {"rating": "stars"}, "no completion that it rates"),
        ({"frage": "p", "antwort": "a"}, {}, "the columns are 'frage', 'antwort'; known are prompt, question, problem"),
        ({}, {}, "the columns are none"),
    ],
)
def test_columns_that_are_not_there(tmp_path: Path, row: dict[str, Any], columns: dict[str, str], message: str) -> None:
    assert message in error(tmp_path, row, columns=columns)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": ""}, "'prompt' is empty"),
        ({"prompt": " \n"}, "'prompt' is empty"),
        ({"prompt": None}, "no 'prompt', which other rows have; this row has none"),
        ({"question": "q"}, "no 'prompt', which other rows have; this row has 'question'"),
        ({"prompt": 3}, "'prompt' is '3', which is neither text nor a list of messages"),
        ({"prompt": {"role": "user"}}, "which is neither text nor a list of messages"),
        ({"prompt": ["a"]}, "which is neither text nor a list of messages"),
    ],
)
def test_bad_prompts(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    text = error(tmp_path, {"prompt": "fine"}, row)
    assert "rows.jsonl line 2" in text and message in text


# Describing


def test_describe(tmp_path: Path) -> None:
    rows = [
        {"id": n, "Problem": f"What is {n}+{n}?", "answer": n + n, "solution": "...", "subject": "sums", "level": 1}
        for n in range(1200)
    ]
    path = jsonl(tmp_path / "mine.jsonl", rows)
    assert Files(path=str(path)).describe().splitlines() == [
        f"{path} (JSONL): 1,200 tasks",
        "  prompt         Problem (text)",
        "  answer         answer (all)",
        "  demonstrations solution (all)",
        "  domain         subject (1 value)",
        "  key            id",
        "  other fields   level",
        "  first prompt   'What is 0+0?'",
    ]


def test_describe_preferences_ratings_and_chats(tmp_path: Path) -> None:
    jsonl(tmp_path / "a.jsonl", [{"chosen": [USER, RIGHT], "rejected": [USER, WRONG]}])
    assert Files(path=str(tmp_path / "a.jsonl")).describe().splitlines()[1:] == [
        "  prompt         shared prefix (chat)",
        "  preferences    chosen over rejected",
        "  key            hash of prompt and answer",
        "  first prompt   user: 'What is 2+2?'",
    ]
    jsonl(tmp_path / "a.jsonl", [{"prompt": "p" * 200, "completion": "c", "label": True}])
    lines = Files(path=str(tmp_path / "a.jsonl")).describe().splitlines()
    assert "  rated          completion by label" in lines
    assert len(lines[-1]) < 120 and "..." in lines[-1]
