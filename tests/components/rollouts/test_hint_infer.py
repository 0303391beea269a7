"""Hints right before the answer: where they are put in, and where not."""

import asyncio
from typing import Any

import numpy as np
import pytest

from posttrain.components.environments.calculator import Calculator
from posttrain.components.rollouts import Inserted
from posttrain.components.rollouts.hint_infer import HintInfer
from posttrain.components.rollouts.turns import Turns
from posttrain.engines import Sampling
from posttrain.types import Completion, Task, Trajectory
from tests.builders import ScriptedSampler

TASK = Task(key="t", prompt="Q: 6*7\nA:", answer="42")


class Model(ScriptedSampler):
    """Writes given texts one after the other, each cut after the first stop string in it."""

    def __init__(self, *texts: str) -> None:
        super().__init__("model")
        self.texts = list(texts)
        self.read: list[str] = []

    def bind(self, *key: int | str) -> "Model":
        return self

    def decode(self, token_ids: np.ndarray) -> str:
        return "".join(chr(int(i)) for i in token_ids if i > 1)

    async def sample(self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: Any = None) -> list[Completion]:
        self.read.append(self.decode(token_ids))
        text = self.texts.pop(0)
        ends = [(text.find(stop), stop) for stop in sampling.stop if stop in text]
        cut = min(ends)[0] + len(min(ends)[1]) if ends else None
        ids = np.array([*text[:cut].encode(), *([] if ends else [0])], np.int64)
        logp = np.full(len(ids), -1.0, np.float32)
        return [Completion(token_ids=ids, logp=logp, stop_reason="stop", version=1, text=text[:cut])]


def played(*texts: str, **settings: Any) -> tuple[list[Trajectory], Model]:
    model = Model(*texts)
    rollout = HintInfer(environment=Calculator(), n=1, **{"hints": ("\nHint.",), **settings})
    [group] = asyncio.run(rollout.collect(TASK, {"policy": model}))
    assert not model.texts
    return list(group), model


def shown(trajectory: Trajectory) -> list[tuple[str, str]]:
    return [(s.actor, s.text) for s in trajectory.segments[1:]]


def test_a_hint_is_put_in_before_the_answer_and_the_call_is_executed() -> None:
    (plain, hinted), model = played("I guess\n#### 41", "I guess\n#### 41", "<<6*7>>", "\n#### 42")
    assert shown(plain) == [("policy", "I guess\n#### 41")] and plain.fact(Inserted) == Inserted(
        insertions=0, executed=0
    )
    assert shown(hinted) == [
        ("policy", "I guess"), ("demonstration", "\nHint."), ("policy", "<<6*7>>"),
        ("environment", "42"), ("policy", "\n#### 42"),
    ]  # fmt: skip
    assert hinted.fact(Inserted) == Inserted(insertions=1, executed=1)
    assert [s.turn for s in hinted.segments] == [0, 0, 0, 0, 1, 1]
    assert model.read[2].endswith("I guess\nHint.")
    assert len(hinted.segments[1]) == len("I guess") == len(hinted.segments[1].logp)  # type: ignore[arg-type]


def test_the_end_token_is_withheld_where_there_is_no_trigger() -> None:
    (_, hinted), _ = played("41", "41", "\n#### 41")
    assert shown(hinted) == [("policy", "41"), ("demonstration", "\nHint."), ("policy", "\n#### 41")]
    assert hinted.segments[1].token_ids[-1] != 0, "the model goes on"


def test_no_hint_inside_a_call_or_before_one() -> None:
    (_, hinted), _ = played("x", "<<6\n####", "7>>", "\n####", "\n#### 3")
    assert shown(hinted)[:3] == [("policy", "<<6\n####"), ("policy", "7>>"), ("environment", "error")]
    assert hinted.fact(Inserted) == Inserted(insertions=1, executed=0)
    (_, hinted), _ = played("x", "<<6*7>>", "\n#### 42", "<<2*3>>", "\n#### 6")
    assert [text for actor, text in shown(hinted) if actor == "demonstration"] == ["\nHint."]
    assert shown(hinted)[:2] == [("policy", "<<6*7>>"), ("environment", "42")]


def test_several_hints_and_hints_that_are_not_trained() -> None:
    (_, hinted), _ = played("x", "a\n####", "b\n####", "\n#### 1", insertions=2, trains_hints=False)
    assert shown(hinted) == [
        ("policy", "a"), ("environment", "\nHint."), ("policy", "b"), ("environment", "\nHint."),
        ("policy", "\n#### 1"),
    ]  # fmt: skip
    assert hinted.num_trained == 2 + len("\n#### 1") + 1


def test_plain_rollouts() -> None:
    (plain,), _ = played("\n#### 1", insertions=0)
    assert shown(plain) == [("policy", "\n#### 1")]
    held = HintInfer(environment=Calculator()).held_out(2, Sampling())
    assert isinstance(held, Turns) and held.n == 2


@pytest.mark.parametrize("insertions", [0, 1])
def test_every_rollout_is_a_sample_of_its_own(insertions: int) -> None:
    rollout = HintInfer(environment=Calculator(), n=3, insertions=insertions)
    [group] = asyncio.run(rollout.collect(TASK, {"policy": ScriptedSampler("policy")}))
    assert [t.sample for t in group] == list(range(3 + insertions))
