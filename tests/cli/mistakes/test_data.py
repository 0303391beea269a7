"""What users get wrong, from the command line to the message: data that cannot be used."""

import json
from pathlib import Path

import pytest

from posttrain.cli import main
from tests.cli.mistakes.given import CONTEXT, SMALL, Refused, write_rows


@pytest.mark.parametrize(
    ("name", "content", "changes", "message"),
    [
        (
            "sums.csv",
            None,
            [],
            "no file, folder or kind of tasks named 'sums.csv' (looked in {here}); did you mean sums",
        ),
        ("x.jsonl", "", [], "x.jsonl is empty: it holds no rows"),
        ("x.json", "[]", [], "x.json is empty: it holds no rows"),
        ("x.csv", "question,answer\n", [], "x.csv is empty: it holds no rows"),
        ("x.jsonl", '{"question": "a", "answer": "b"}\n{"question"', [], "x.jsonl line 2, column 12: not JSON"),
        (
            "x.jsonl",
            '{"question": "a", "answer": "b"}\n' * 3,
            [],
            "the 3 tasks of kind 'files' all have the same prompt",
        ),
        ("x.jsonl", '{"ask": "a", "tell": "b"}\n', [], "no column is known to hold the prompt; the columns are 'ask'"),
        (
            "sums.jsonl",
            None,
            ["tasks.columns.answer=anser"],
            "columns.answer names 'anser', which no row has a value in; did you mean 'answer'?",
        ),
        (
            "sums.jsonl",
            None,
            ["evaluation.tasks=sums.jsonl", "evaluation.holdout=12"],
            "stage rl: no task is left to train on, since all are among the 12 held-out ones",
        ),
        ("sums.jsonl", None, ["evaluation.tasks=test.jsonl"], "no file, folder or kind of tasks named 'test.jsonl'"),
        (
            "x.jsonl",
            "".join(f'{{"text": "line {i}"}}\n' for i in range(9)),
            [],
            "the held-out tasks: 2 of 2 tasks have no prompt to answer",
        ),
        (
            "x.jsonl",
            "".join(f'{{"text": "line {i}"}}\n' for i in range(9)),
            ["evaluation.tasks=sums.jsonl"],
            "the rl stage: 9 of 9 tasks have no prompt to answer",
        ),
    ],
)
def test_data_that_cannot_be_used(
    refused: Refused, here: Path, name: str, content: str | None, changes: list[str], message: str
) -> None:
    if content is not None:
        Path(name).write_text(content)
    assert message.format(here=here) in refused("run", "grpo", *SMALL, f"tasks={name}", *changes)


@pytest.mark.slow
@pytest.mark.parametrize("length", [CONTEXT, CONTEXT + 9])
def test_a_prompt_that_leaves_no_room_for_an_answer(refused: Refused, length: int) -> None:
    rows = [{"id": f"row {i}", "question": f"{i}+1=", "answer": "1"} for i in range(12)]
    write_rows("test.jsonl", [{"question": "one?"}, {"question": "two?"}])
    write_rows("long.jsonl", [*rows, {"id": "the long one", "question": "x" * length, "answer": "1"}])
    assert refused("run", "grpo", *SMALL, "tasks=long.jsonl", "evaluation.tasks=test.jsonl") == (
        "long.jsonl line 13: the rl stage: prompts of 1 of 13 tasks leave no room for an answer in the model's context "
        f"of 64 tokens; the first is task the long one with {length} tokens. Shorten or leave out those rows, "
        "or use a model with a longer context"
    )
    message = refused("run", "grpo", *SMALL, "tasks=test.jsonl", "evaluation.tasks=long.jsonl", "evaluation.holdout=13")
    assert message.startswith("long.jsonl line 13: the held-out tasks: prompts of 1 of 13 tasks leave no room")
    assert message == refused("eval", "tiny", "evaluation.tasks=long.jsonl")


@pytest.mark.slow
def test_a_prompt_with_room_for_one_token_is_answered_with_one(capfd: pytest.CaptureFixture[str]) -> None:
    write_rows("edge.jsonl", [{"question": f"{i:0{CONTEXT - 1}}", "answer": "1"} for i in range(12)])
    assert main(["run", "grpo", *SMALL, "tasks=edge.jsonl", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["sampled_tokens"] == 2 * 2 * 2


def test_demonstrations_that_are_missing_or_too_long(refused: Refused) -> None:
    sft = ["run", "sft", "model=tiny", "evaluation.holdout=2", "threads=1", "sft.max_steps=1"]
    assert refused(*sft, "tasks=sums.jsonl").startswith("none of the 10 tasks has a demonstration to imitate; give")
    # 2 tokens of a prompt, 61 of the demonstration and the end token are 64; one more is too much.
    rows = [{"id": str(i), "question": f"{i:02}", "answer": "1", "response": "y" * (61 + i // 11)} for i in range(12)]
    write_rows("long.jsonl", rows)
    message = refused(*sft, "tasks=long.jsonl", "evaluation.tasks=sums.jsonl")
    assert message.startswith(
        "long.jsonl line 12: task 11: prompt (2 tokens) and demonstration (63) together pass the model's context of 64 "
        "tokens; shorten"
    )


def test_a_model_can_be_measured_on_a_whole_file(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "tiny", "tasks=sums.jsonl", "evaluation.tasks=sums.jsonl", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["tasks"] == 12
