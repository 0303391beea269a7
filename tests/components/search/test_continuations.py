"""Prefixes of the true text are rated by ten greedy tokens after them."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.search import Found
from posttrain.components.search.continuations import Continuations
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.stages.value_model import ratings_of
from posttrain.types import Completion, Group, Score, Task
from tests.builders import ScriptedSampler

TASK = Task(key="t", prompt="a", answer="bcdefg")


class Greedy(ScriptedSampler):
    """Goes on as the text would, but for `f`."""

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        assert (n, sampling.temperature) == (1, 0.0)
        rest = "abcdexg"[len(self.decode(token_ids)) :][: sampling.max_tokens]
        ids = np.array(list(rest.encode()), np.int64)
        return [Completion(token_ids=ids, logp=np.zeros(len(ids)), stop_reason="length", version=0, text=rest)]


async def grade(group: Group) -> Group:
    """Whether the completion is the answer."""
    made = [t.scored(Score(value=float(t.completion == t.task.answer), status="ok")) for t in group]
    return replace(group, trajectories=tuple(made))


def look(cuts: int, tokens: int) -> Found:
    search = Continuations(cuts=cuts, tokens=tokens)
    return asyncio.run(search.search(TASK, {"policy": Greedy("policy")}, grade))


def test_values_of_prefixes_by_hand() -> None:
    """The two tokens after a prefix are the true ones but where they would have f."""
    found = look(40, 2)
    values = {state.text: state.value for state in found.states}
    assert values == {"": 1.0, "b": 1.0, "bc": 1.0, "bcd": 0.0, "bcde": 0.0, "bcdef": 1.0}
    assert {bytes(state.token_ids[1:].tolist()).decode() for state in found.states} == {f"a{text}" for text in values}


def test_a_value_model_learns_from_prefixes_alone() -> None:
    found = look(3, 10)
    assert [len(ids) for ids, _ in ratings_of(found)] == [len(state.token_ids) for state in found.states]
    with pytest.raises(UserError, match="answer"):
        asyncio.run(Continuations().search(Task(key="t", prompt="a"), {"policy": Greedy("policy")}, grade))
