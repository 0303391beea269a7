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


def test_a_share_of_the_explanations_is_the_solution_alone() -> None:
    plain = Arithmetic(size=200)
    found = {seed: Taught(tasks=plain, closing="\n####", stated=0.5, seed=seed).load() for seed in (0, 1)}
    bare = {seed: {t.key for t in own if t.demonstrations == (f" {t.answer}\n####",)} for seed, own in found.items()}
    assert all(70 < len(own) < 130 for own in bare.values()) and bare[0] != bare[1]
    whole = Taught(tasks=plain, closing="\n####").load()
    assert all(a == b for a, b in zip(whole, found[0], strict=True) if a.key not in bare[0])
    assert Taught(tasks=plain, stated=1.0).load()[0].demonstrations == (), "none is made where there was none"
