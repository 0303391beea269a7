"""Episodes whose history is replaced by a summary."""

import asyncio
from typing import Any

import numpy as np

from posttrain.components.environments import Episode
from posttrain.components.environments.sources import Sources
from posttrain.components.rollouts import Row
from posttrain.components.rollouts.summarized import Summarized
from posttrain.engines import Sampling
from posttrain.stages.rl.metrics import rollout_metrics
from posttrain.types import Completion, Group, Score, Task, Trajectory
from tests.components.rollouts.test_hint_infer import Model

TASK = Task(key="t", prompt="q")


class Whole(Model):
    """Writes whole texts."""

    def bind(self, *key: int | str) -> "Whole":
        return self

    async def sample(self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: Any = None) -> list[Completion]:
        return await super().sample(token_ids, n, Sampling())


def rows(*texts: str, **settings: Any) -> tuple[list[Trajectory], Whole]:
    model = Whole(*texts)
    rollout = Summarized(environment=Sources(empty=0.0), n=1, **settings)
    [group] = asyncio.run(rollout.collect(TASK, {"policy": model}))
    return list(group), model


def test_a_summary_begins_a_new_row() -> None:
    found, model = rows("<search>A</search>", "<summary>A 7</summary>", "<answer>7</answer>")
    assert [t.completion.count("<search>") for t in found] == [1, 0]
    first, second = found
    assert first.completion.endswith("<summary>A 7</summary>") and second.completion == "<answer>7</answer>"
    assert "A 7" in model.read[2] and "<search>" not in model.read[2], "the history is gone"
    assert [t.fact(Row) for t in found] == [Row(episode=0, row=0, counts=False), Row(episode=0, row=1)]
    episodes = [t.fact(Episode) for t in found]
    assert episodes[0] == episodes[1] and episodes[0] is not None and episodes[0].turns == 3
    assert [t.sample for t in found] == [0, 1] and [t.stop_reason for t in found] == ["stop", "environment"]


def test_a_summary_beside_another_text_is_no_summary() -> None:
    found, _ = rows("so <summary>x</summary>", "<answer>7</answer>")
    assert len(found) == 1 and "One action" in found[0].completion


def test_only_the_last_row_is_given_in_evaluation() -> None:
    assert Summarized(environment=Sources()).held_out(3, Sampling()).last
    found, _ = rows("<summary>x</summary>", "<answer>7</answer>", last=True)
    assert [t.completion for t in found] == ["<answer>7</answer>"]


def test_a_summary_in_the_last_turn_begins_nothing() -> None:
    found, _ = rows("<search>A</search>", "<summary>x</summary>", max_turns=2)
    assert len(found) == 1 and found[0].stop_reason == "length"


def test_metrics_count_episodes() -> None:
    """A wrong episode of two rows, and a right one of one row: half are solved, three and one turns."""
    long, _ = rows("<search>A</search>", "<summary>A 7</summary>", "<answer>8</answer>")
    short, _ = rows("<answer>7</answer>")
    assert (len(long), len(short)) == (2, 1)
    wrong = [t.scored(Score(value=0.0, status="wrong")) for t in long]
    right = [t.scored(Score(value=1.0, status="ok")) for t in short]
    found = rollout_metrics([Group(key="t", trajectories=(*wrong, *right))])
    assert (found["reward"], found["solved"], found["turns"]) == (0.5, 0.5, 2.0)
    assert found["completion_tokens"] == sum(t.num_trained for t in (*wrong, *right)) / 2
