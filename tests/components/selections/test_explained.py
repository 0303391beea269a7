"""Pairs of an explanation with the answer shown, and of a sample without it."""

import asyncio
from typing import Any

import numpy as np
import pytest

from posttrain.components.rewards.match import Match
from posttrain.components.selections.explained import Explained
from posttrain.errors import UserError
from posttrain.types import Completion, Segment, Task

SUM = Task(key="k", prompt="2+2=", answer="4")


class Writer:
    """Answers the bare question with one text, and the request with another."""

    context = 64

    def __init__(self, own: str, explanation: str) -> None:
        self.own, self.explanation = own, explanation

    def bind(self, *key: object) -> "Writer":
        return self

    def prompt(self, task: Task) -> Segment:
        ids = np.array([*str(task.prompt).encode()], np.int64)
        return Segment(actor="prompt", token_ids=ids, text=str(task.prompt))

    def encode_completion(self, prompt: object, text: str) -> np.ndarray:
        return np.array([*text.encode(), 0])

    def decode(self, token_ids: np.ndarray) -> str:
        return bytes(int(i) for i in token_ids if i).decode()

    async def sample(self, token_ids: Any, n: int, sampling: Any, vectors: object = None) -> list[Completion]:
        shown = self.decode(token_ids).startswith("[4]")
        text = self.explanation if shown else self.own
        ids = np.array([*text.encode(), *([] if shown else [0])])
        cut = text.removesuffix("####") if shown else text
        logp = np.zeros(len(ids), np.float32)
        return [Completion(token_ids=ids, logp=logp, stop_reason="stop", version=0, text=cut)]


def made(own: str, explanation: str, **settings: Any) -> Any:
    selection = Explained(reward=Match(), request="[{answer}] {question}", **settings)
    measured = asyncio.run(selection.measure([SUM], {"policy": Writer(own, explanation)}))  # type: ignore[dict-item]
    return selection.choose([SUM], measured)


def test_the_explanation_is_preferred_with_the_answer_after_it() -> None:
    [task] = made("5\n#### 5", "two and two\n####").tasks
    [pair] = task.preferences
    assert (pair.chosen, pair.rejected) == ("two and two\n#### 4", "5\n#### 5")
    assert task.prompt == SUM.prompt, "the answer is not in the question that is learned from"
    assert task.fields["origin"][1] == {"writer": "sample", "right": False}


@pytest.mark.parametrize(
    ("own", "explanation", "settings", "reason"),
    [
        ("#### 5", "no end", {}, "has no '####'"),
        ("#### 4", "so ####", {"rejected": "wrong"}, "is not wrong"),
        ("#### 4", "####", {}, "equal"),
        ("#### 5", "x" * 60 + "####", {}, "does not fit after the question"),
    ],
)
def test_tasks_without_a_pair(own: str, explanation: str, settings: dict[str, Any], reason: str) -> None:
    chosen = made(own, explanation, **settings)
    assert not chosen.tasks and reason in chosen.summary


def test_a_task_without_an_answer_is_refused() -> None:
    selection = Explained(reward=Match())
    with pytest.raises(UserError, match="shows the answer"):
        asyncio.run(selection.measure([Task(key="k", prompt="2+2=")], {}))
