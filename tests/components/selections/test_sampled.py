"""The settings of selections by rollouts; what stages make of them is in ``tests/stages/test_written.py``."""

import asyncio

import numpy as np
import pytest
from pydantic import ValidationError

from posttrain.components.rewards.match import Match
from posttrain.components.selections.sampled import Sampled
from posttrain.methods.preference.dpo import dpo
from posttrain.recipes.changes import preference_of
from posttrain.recipes.overrides import override
from posttrain.types import Completion, Segment, Task


def test_one_temperature_or_one_for_each_writer() -> None:
    with pytest.raises(ValidationError, match="3 numbers for 1 writers"):
        Sampled(reward=Match(), temperatures=(0.5, 1.0, 1.5))
    assert Sampled(reward=Match(), writers=("policy", "reference"), temperatures=(0.7, 1.0)).roles == {
        "policy",
        "reference",
    }


def test_from_the_command_line() -> None:
    recipe = override(dpo(), ["dpo.selection={kind: sampled, reward: match, use: shortest}"])
    selection = preference_of(recipe).selection
    assert selection == Sampled(reward=Match(), use="shortest") and selection.writes == {"preferences"}


class TwoModes:
    """Thinks in every other completion; without thoughts it is correct only for the answer 4."""

    context = 512

    def prompt(self, task: Task) -> Segment:
        return Segment(actor="prompt", token_ids=np.zeros(1, np.int64), text=str(task.prompt))

    def encode_completion(self, prompt: object, text: str) -> np.ndarray:
        return np.array([*text.encode(), 0])

    async def sample(self, token_ids: object, n: int, sampling: object, vectors: object = None) -> list[Completion]:
        texts = ["<think>1+3</think>\n#### 4", "#### 4", "<think>2+2</think>\n#### 4", "#### 5"]
        return [
            Completion(
                token_ids=np.array([*text.encode(), 0]),
                logp=np.zeros(len(text) + 1, np.float32),
                stop_reason="stop",
                version=0,
                text=text,
            )
            for text in texts[:n]
        ]


def test_modes_become_demonstrations_of_the_better_one() -> None:
    """With two rollouts both modes succeed: no thoughts. With four, one does so half as often: thoughts."""
    task = Task(key="k", prompt="2+2", answer="4", demonstrations=("old",))
    for n, text in ((2, "#### 4"), (4, "<think>1+3</think>\n#### 4")):
        selection = Sampled(reward=Match(), use="modes", n=n)
        measured = asyncio.run(selection.measure([task], {"policy": TwoModes()}))  # type: ignore[dict-item]
        [chosen] = selection.choose([task], measured).tasks
        assert chosen.demonstrations == (text,)
        assert chosen.fields["origin"][0]["rates"] == {"on": 1.0, "off": 1.0 if n == 2 else 0.5}
