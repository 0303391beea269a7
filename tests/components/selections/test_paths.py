"""Right paths of a search as demonstrations: equal ones once, a preferred one among them, faults left out."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from posttrain.components.rewards.match import Match
from posttrain.components.rollouts import Scorer
from posttrain.components.search import Found, Search
from posttrain.components.search.best_of import BestOf
from posttrain.components.search.functions import Functions
from posttrain.components.selections.paths import Paths
from posttrain.components.tasks.tagged_steps import GRAMMAR
from posttrain.engines import Sampler, Sampling
from posttrain.types import Completion, Task
from tests.builders import ScriptedSampler

PLAIN = "<step>1+1=2</step><answer>2</answer>"
CHECKED = "<step>1+1=2</step><check>ok</check><answer>2</answer>"
FIXED = "<step>1+1=3</step><check>no</check><fix>1+1=2</fix><answer>2</answer>"
NO_PATH = "<answer>2</answer>"
TASKS = [Task(key=key, prompt="1+1", answer="2", demonstrations=("2",)) for key in ("a", "b", "c")]


class Said(ScriptedSampler):
    """Writes these texts, one after another."""

    context = 200

    def __init__(self, *texts: str) -> None:
        super().__init__("said")
        self.texts = texts

    def bind(self, *key: int | str) -> "Said":
        return Said(*(self.texts if "b" not in key else (PLAIN.replace("2<", "3<"),)))

    async def sample(self, token_ids: Any, n: int, sampling: Sampling, vectors: Any = None) -> list[Completion]:
        made = await super().sample(token_ids, n, sampling)
        return [replace(c, text=t, stop_reason="stop") for c, t in zip(made, (*self.texts, *self.texts), strict=False)]


def select(selection: Paths, *texts: str) -> Any:
    measured = asyncio.run(selection.measure(TASKS, {"policy": Said(*texts)}))
    return measured, selection.choose(TASKS, measured)


def search(n: int) -> Functions:
    """Best of n with the grammar of tagged steps, so that the texts are whole and given."""
    return _Given(rollouts=n, grammar=GRAMMAR)


class _Given(Functions):
    """The texts of `best_of` as the paths of a search with a grammar."""

    async def search(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer | None = None) -> Found:
        return await BestOf(n=self.rollouts, value_role=None).search(task, samplers, scorer)


def test_right_paths_once_each_and_one_that_repairs() -> None:
    selection = Paths(search=search(6), reward=Match(), most=2, first=2, prefer=("fix",))
    measured, chosen = select(selection, PLAIN, NO_PATH, PLAIN, CHECKED, FIXED, "<step>1+1=3</step><answer>3</answer>")
    assert measured[0] == {"paths": 5, "right": [[0, PLAIN], [3, CHECKED], [4, FIXED]]} and measured[2] is None
    (task,) = chosen.tasks
    assert task.demonstrations == (PLAIN, FIXED), "the first, and one that repairs in the last place"
    assert task.fields["origin"] == [{"writer": "policy", "path": 0}, {"writer": "policy", "path": 4}]
    told = "1 of 2 tasks have a right path: 3 of 6 different paths are right, and 2 are imitated, 1 of them with fix"
    assert chosen.summary == told


def test_without_a_preference_the_first_are_taken() -> None:
    _, chosen = select(Paths(search=search(3), reward=Match(), most=2), PLAIN, CHECKED, FIXED)
    assert [task.key for task in chosen.tasks] == ["a", "c"]
    assert chosen.tasks[0].demonstrations == (PLAIN, CHECKED)
    _, one = select(Paths(search=search(3), reward=Match(), most=1, prefer=("fix",)), PLAIN, CHECKED, FIXED)
    assert one.tasks[0].demonstrations == (FIXED,)


def test_what_is_too_long_to_imitate_is_left_out() -> None:
    long = PLAIN.replace("1+1=2", "1+1=2 " * 40)
    _, chosen = select(Paths(search=search(2), reward=Match()), long, CHECKED)
    assert chosen.tasks[0].demonstrations == (CHECKED,)


def test_a_search_without_a_grammar_and_without_rewards() -> None:
    voted: Search = BestOf(n=2, value_role="policy")
    selection = Paths(search=voted, reward=Match())
    assert selection.roles == {"policy"} and selection.writes == {"demonstrations"}
    _, chosen = select(selection, NO_PATH, "3")
    assert chosen.tasks[0].demonstrations == (NO_PATH,), "scored by the reward of the selection"
