"""Directions in prompts."""

import math
from typing import Any

import pytest

from posttrain.components.tasks.directed import Directed
from posttrain.components.tasks.wanted_words import WantedWords
from posttrain.datasets.wanted_words import labels_of
from posttrain.types import Message, Task


def test_angles_are_stated_as_whole_numbers_whose_norm_is_not_one() -> None:
    tasks = Directed(tasks=WantedWords(size=3), angles=(-15.0, 0.0, 90.0)).load()
    assert [str(task.prompt).partition("\n")[0] for task in tasks] == ["97 -26", "100 0", "0 100"]
    assert math.hypot(97, 26) == pytest.approx(100.4, abs=0.05)
    assert tasks[0].fields["direction"] == pytest.approx([0.9659, -0.2588], abs=1e-4)


def test_drawn_angles_are_within_the_span_and_others_with_another_seed() -> None:
    def angles(**settings: Any) -> list[float]:
        tasks = Directed(tasks=WantedWords(size=200), **settings).load()
        return [math.degrees(math.atan2(*reversed(task.fields["direction"]))) for task in tasks]

    first = angles()
    assert max(first) < 45.0 and min(first) > -45.0 and max(first) > 40.0 > -40.0 > min(first)
    assert first == angles() != angles(seed=1)
    assert max(map(abs, angles(span=5.0))) <= 5.0


def test_without_the_statement_the_prompt_is_as_it_was() -> None:
    source = WantedWords(size=4)
    tasks = Directed(tasks=source, stated=False).load()
    assert [task.prompt for task in tasks] == [task.prompt for task in source.load()]
    assert all(len(task.fields["direction"]) == 2 for task in tasks)


def test_a_chat_has_it_in_its_system_message(monkeypatch: pytest.MonkeyPatch) -> None:
    chat = Task(key="t", prompt=(Message(role="user", content="Hi"),))
    monkeypatch.setattr(WantedWords, "load", lambda _: [chat])
    [task] = Directed(tasks=WantedWords(), angles=(-15.0,)).load()
    assert not isinstance(task.prompt, str)
    system, user = task.prompt
    assert "97 * helpfulness + -26 * verbosity" in system["content"]
    assert user == {"role": "user", "content": "Hi"}


def test_labels_by_hand_and_each_task_has_one() -> None:
    assert labels_of(" fox owl bee.", ["fox", "bee"]) == {"helpfulness": pytest.approx(8 / 3), "verbosity": 1.0}
    assert labels_of("", ["fox"]) == {"helpfulness": 0.0, "verbosity": 0.0}
    tasks = WantedWords(size=6, labels=True).load()
    assert [[name for name in ("helpfulness", "verbosity") if name in task.fields] for task in tasks] == [
        ["helpfulness"],
        ["verbosity"],
    ] * 3
