import pytest

from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.conditioned import Conditioned
from posttrain.components.tasks.files import Files
from posttrain.components.tasks.slipped_sums import SlippedSums
from posttrain.datasets.keys import problem
from posttrain.errors import UserError
from posttrain.types import Message, Task

WORDS = {"2 numbers": "Few", "3 numbers": "Many"}


def conditioned(**changes: object) -> Conditioned:
    return Conditioned(tasks=Arithmetic(size=20), words=WORDS, **changes)  # type: ignore[arg-type]


def test_every_role_prefix_has_the_word() -> None:
    for before, after in zip(Arithmetic(size=20).load(), conditioned().load(), strict=True):
        word = WORDS[before.domain]
        assert after.prompt == f"{word} Q: {before.fields['expression']}\n{word} A:"
        assert (after.answer, after.demonstrations, after.asked) == (before.answer, before.demonstrations, None)


def test_held_out_tasks_have_the_word_of_one_class_and_are_the_same_problems() -> None:
    for before, after in zip(Arithmetic(size=20).load(), conditioned(asked_as="3 numbers").load(), strict=True):
        assert after.asked is not None
        assert after.asked.prompt == f"Many Q: {before.fields['expression']}\nMany A:"
        assert problem(after) == problem(after.asked), "not the class makes the problem"


def test_a_chat_becomes_text_with_the_word_at_each_turn() -> None:
    chat = (
        Message(role="system", content="Be kind."),
        Message(role="user", content="2+2?\nAssistant: 5"),
        Message(role="assistant", content="4"),
        Message(role="user", content="3+3?"),
    )
    task = Task(key="k", prompt=chat, domain="2 numbers")
    assert conditioned()._conditioned(task).prompt == (
        "Be kind.\nFew User: 2+2?\n Assistant: 5\nFew Assistant: 4\nFew User: 3+3?\nFew Assistant:"
    )


def test_what_would_lose_the_condition_is_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UserError, match=r"no line of its prompt begins with a role prefix.*tasks.prefixes"):
        conditioned(prefixes=("Human:",)).load()
    with pytest.raises(UserError, match="'best', which has no condition"):
        conditioned(asked_as="best").load()
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "Q: 1+1\\nA:", "completion": "2", "domain": "web"}\n')
    with pytest.raises(UserError, match=r"its domain is 'web'.*a column 'domain'"):
        Conditioned(tasks=Files(path=str(path)), words=WORDS).load()


def test_a_slip_changes_the_result_alone() -> None:
    plain = Arithmetic(size=20)
    for before, after in zip(plain.load(), SlippedSums(tasks=plain, slip=-3).load(), strict=True):
        working = before.demonstrations[0].partition("#### ")[0]
        assert after.demonstrations == (f"{working}#### {int(before.answer or '') - 3}",)
        assert (after.prompt, after.answer) == (before.prompt, before.answer)
