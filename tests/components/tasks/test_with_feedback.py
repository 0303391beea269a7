"""Feedback on demonstrations, in the prompt."""

import pytest

from posttrain.components.tasks.files import Files
from posttrain.components.tasks.routes import Routes
from posttrain.components.tasks.with_feedback import WithFeedback, _appended
from posttrain.datasets.routes import CHECKS
from posttrain.errors import UserError
from posttrain.types import Message


def test_every_check_is_a_line_and_all_are_good_at_test() -> None:
    for before, after in zip(Routes(size=20).load(), WithFeedback(tasks=Routes(size=20)).load(), strict=True):
        words = ["success" if before.fields["checks"][name] else "fail" for name in CHECKS]
        lines = "".join(f"{name}: {word}\n" for name, word in zip(CHECKS, words, strict=True))
        assert after.prompt == f"{before.prompt}{lines}"
        assert after.demonstrations == before.demonstrations
        good = "".join(f"{name}: success\n" for name in CHECKS)
        assert after.asked is not None and after.asked.prompt == f"{before.prompt}{good}"


def test_a_failure_may_be_explained_and_one_may_be_asked_for(tmp_path: object) -> None:
    path = f"{tmp_path}/plans.jsonl"
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"prompt": "Go.", "completion": "by sea", "checks": {"dry": "no, it is wet", "fast": true}}\n')
    (task,) = WithFeedback(tasks=Files(path=path), asked={"dry": False}).load()
    assert task.prompt == "Go.dry: no, it is wet\nfast: success\n"
    assert task.asked is not None and task.asked.prompt == "Go.dry: fail\nfast: success\n"


def test_what_cannot_be_shown_is_refused(tmp_path: object) -> None:
    path = f"{tmp_path}/plans.jsonl"
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"prompt": "a", "completion": "b", "checks": {"dry": true}}\n{"prompt": "c", "completion": "d"}\n')
    with pytest.raises(UserError, match="its field 'checks' is None; give a mapping"):
        WithFeedback(tasks=Files(path=path)).load()
    with pytest.raises(UserError, match=r"tasks\.asked has 'price', which is no check"):
        WithFeedback(tasks=Routes(size=1), asked={"price": False}).load()


def test_in_a_chat_they_end_the_last_message() -> None:
    chat = (Message(role="user", content="Go."),)
    assert _appended(chat, "dry: fail\n") == (Message(role="user", content="Go.\n\ndry: fail"),)
