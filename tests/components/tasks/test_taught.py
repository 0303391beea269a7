import pytest

from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.files import Files
from posttrain.components.tasks.taught import Taught
from posttrain.errors import UserError


def test_the_solution_is_in_the_prompt_and_the_question_in_a_field() -> None:
    plain = Arithmetic(size=2, terms=(3, 3))
    taught = Taught(tasks=plain, request="#### {answer}\n{question}", closing="\n####")
    for before, after in zip(plain.load(), taught.load(), strict=True):
        assert after.prompt == f"#### {before.answer}\n{before.prompt}" and after.key == before.key
        assert after.fields["question"] == before.prompt and after.fields["solution"] == before.answer
        assert f"{after.demonstrations[0]} {before.answer}" == before.demonstrations[0]
    assert Taught(tasks=plain).load()[0].demonstrations == (), "without the closing text there is no explanation"


def test_a_task_without_a_solution_is_refused(tmp_path: object) -> None:
    from pathlib import Path

    file = Path(str(tmp_path)) / "mine.jsonl"
    file.write_text('{"prompt": "why?"}\n')
    with pytest.raises(UserError, match="has no solution to be explained"):
        Taught(tasks=Files(path=str(file))).load()
