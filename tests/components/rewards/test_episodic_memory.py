"""Memory-R+: two memories, rewards for thoughts by them, and the cases in which its release is at fault."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards import episodic_memory as module
from posttrain.components.rewards.episodic_memory import EpisodicMemory, embedded, scaled, thoughts_of
from posttrain.components.rewards.match import Match
from posttrain.types import Score, Task
from tests.components.rewards.judging import attempt, score_all

POINTS = {"east": (1.0, 0.0), "north": (0.0, 1.0), "west": (-1.0, 0.0), "between": (0.6, 0.8), "q": (1.0, 0.0)}


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Embeddings with two numbers that a person can compute with."""
    monkeypatch.setattr(module, "embedded", lambda text: np.array(POINTS.get(text, (0.0, -1.0))))


def thought(words: str, answer: str = "4", question: str = "q") -> Any:
    return attempt(f"<think>{words}</think>\n{answer}", Task(key=question, prompt=question, answer="4"))


def trained(reward: EpisodicMemory, rollouts: Sequence[Any], state: dict[str, Any], step: int = 0) -> list[Score]:
    return score_all(reward, *rollouts, context=RewardContext(step=step, learning=True, state=state))


def parts(scores: Sequence[Score], name: str) -> list[float]:
    return [score.parts[name].value for score in scores]


@pytest.mark.usefixtures("by_hand")
def test_exploit_by_hand() -> None:
    """Failures before the first success have nothing; the first success is its own centroid.

    Third: north is sqrt(2) from east, the largest so far, so 1 - 1 = 0. Fourth: a success at north moves the centroid
    to (1/2, 1/2), sqrt(1/2) away, half of sqrt(2). Fifth: (0.6, 0.8) is sqrt(0.1) away, 0.2236 of sqrt(2).
    """
    rollouts = [
        thought("north", "5"),
        thought("east"),
        thought("north", "5"),
        thought("north"),
        thought("between", "5"),
    ]
    scores = trained(EpisodicMemory(of=Match(), explore=0.0), rollouts, {})
    assert parts(scores, "exploit") == pytest.approx([0.0, 1.0, 0.0, 0.5, 1 - math.sqrt(0.1 / 2)])
    assert [score.value for score in scores] == pytest.approx([0, 2, 0, 1.5, 1 - math.sqrt(0.1 / 2)])
    assert [score.status for score in scores] == ["wrong", "ok", "wrong", "ok", "wrong"]


@pytest.mark.usefixtures("by_hand")
def test_explore_is_for_correct_rollouts_far_from_failures() -> None:
    """Without failures 1; a failure is its own nearest, 0; west is 2 from east, the largest; north 1, half of it."""
    rollouts = [thought("east"), thought("east", "5"), thought("west"), thought("north"), thought("east")]
    scores = trained(EpisodicMemory(of=Match(), exploit=0.0, warm_up=0), rollouts, {})
    assert parts(scores, "explore") == pytest.approx([1.0, 0.0, 1.0, 0.5, 0.0])
    decayed = trained(EpisodicMemory(of=Match(), exploit=0.0, warm_up=0, decay=0.5), rollouts, {}, step=2)
    assert parts(decayed, "explore") == pytest.approx([0.25, 0.0, 0.25, 0.125, 0.0])


@pytest.mark.usefixtures("by_hand")
def test_explore_waits_for_questions_with_failures() -> None:
    reward, state = EpisodicMemory(of=Match(), exploit=0.0, warm_up=2), dict[str, Any]()
    assert parts(trained(reward, [thought("north", "5"), thought("east")], state), "explore") == [0.0, 0.0]
    second = trained(reward, [thought("north", "5", "p"), thought("west", "4", "p")], state, step=1)
    assert parts(second, "explore") == pytest.approx([0.0, 1.0])


def test_equal_numbers_have_no_scale() -> None:
    assert scaled(0.3, [0.3, 0.3], equal=0.3) == 0.3
    assert scaled(0.3, [0.3], equal=0.0) == 0.0
    assert scaled(0.3, [0.2, 0.6, 0.3], equal=0.0) == pytest.approx(0.25)


@pytest.mark.usefixtures("by_hand")
def test_equal_distances_may_give_less_than_nothing() -> None:
    """Of opposite successes the centroid is in the middle, 1 from each: with that distance alone 1 - 1 = 0."""
    reward, state = EpisodicMemory(of=Match(), explore=0.0, window=1), dict[str, Any]()
    assert parts(trained(reward, [thought("east"), thought("west")], state), "exploit") == pytest.approx([1.0, 0.0])


@pytest.mark.usefixtures("by_hand")
def test_a_rounding_error_is_no_novelty(monkeypatch: pytest.MonkeyPatch) -> None:
    near = {"east": (1.0, 0.0), "q": (1.0, 0.0), "nearly": (1.0 - 1e-12, 0.0)}
    monkeypatch.setattr(module, "embedded", lambda text: np.array(near[text]))
    rollouts = [thought("east", "5"), thought("nearly"), thought("nearly")]
    assert parts(trained(EpisodicMemory(of=Match(), warm_up=0), rollouts, {}), "explore") == [0.0, 0.0, 0.0]


@pytest.mark.usefixtures("by_hand")
def test_memories_keep_the_newest_thoughts_and_questions_with_their_own_values() -> None:
    reward = EpisodicMemory(of=Match(), most_questions=2, most_values=2)
    state: dict[str, Any] = {}
    for step, question in enumerate("abc"):
        trained(reward, [thought(words, "4", question) for words in ("east", "north", "west")], state, step)
    trained(reward, [], state, 3)
    assert state["success"] == {"b": ["north", "west"], "c": ["north", "west"]}
    assert json.loads(json.dumps(state, allow_nan=False)) == state


@pytest.mark.usefixtures("by_hand")
def test_a_full_memory_does_not_shift_values_to_other_questions() -> None:
    """Where the first question is dropped, the thoughts of each other one stay its own, and are compared with."""
    reward, state = EpisodicMemory(of=Match(), explore=0.0, most_questions=2), dict[str, Any]()
    for step, (question, words) in enumerate((("a", "west"), ("east", "east"), ("north", "north"))):
        trained(reward, [thought(words, "4", question)], state, step)
    trained(reward, [], state, 3)
    assert state["success"] == {"east": ["east"], "north": ["north"]}
    trained(reward, [thought("east", "5", "east"), thought("east", "5", "north")], state, 3)
    assert [row[3] for row in state["new"]] == pytest.approx([0.0, math.sqrt(2)]), "shifted, it would be the reverse"


@pytest.mark.usefixtures("by_hand")
def test_each_row_of_a_batch_has_its_own_question() -> None:
    """The release stores all rows under the first row's question: north would then be compared with east."""
    reward, state = EpisodicMemory(of=Match(), explore=0.0), dict[str, Any]()
    batch = [thought("east", "4", "east"), thought("north", "4", "north"), thought("north", "5", "north")]
    scores = trained(reward, batch, state)
    assert [row[:2] for row in state["new"]] == [["east", "east"], ["north", "north"], ["north", "north"]]
    assert [row[3] for row in state["new"]] == pytest.approx([0.0, 0.0, 0.0])
    assert parts(scores, "exploit") == pytest.approx([1.0, 1.0, 1.0])
    trained(reward, [], state, 1)
    assert state["success"] == {"east": ["east"], "north": ["north"]}


@pytest.mark.usefixtures("by_hand")
def test_the_nearest_questions_count() -> None:
    """A question without successes has those of its nearest one; with two neighbours, of both."""
    state: dict[str, Any] = {}
    reward = EpisodicMemory(of=Match(), explore=0.0)
    trained(reward, [thought("east", "4", "east")], state)
    trained(reward, [thought("north", "4", "north")], state, 1)
    before = json.dumps(state)
    one = trained(reward, [thought("east", "5", "between")], state, 2)
    assert state["new"][0][3] == pytest.approx(math.sqrt(2)), "north is the nearest question"
    assert one[0].parts["exploit"].value == pytest.approx(0.0), "the farthest of the last distances"
    state = json.loads(before)
    trained(EpisodicMemory(of=Match(), explore=0.0, neighbours=2), [thought("east", "5", "between")], state, 2)
    assert state["new"][0][3] == pytest.approx(math.sqrt(0.5)), "from (1/2, 1/2), the centroid of both"


def test_a_result_is_independent_of_the_order_of_groups() -> None:
    """Groups of a step do not see one another, and the next step sees both whatever came first."""
    first = [thought("2 and 2", "4", "a"), thought("3 and 3", "5", "a")]
    second = [thought("1 and 3", "4", "b"), thought("1 and 1", "5", "b")]
    reward, found = EpisodicMemory(of=Match(), warm_up=0), []
    for order in ((first, second), (second, first)):
        state: dict[str, Any] = {}
        scores = {id(rows): trained(reward, rows, state) for rows in order}
        later = trained(reward, [thought("2 and 3", "4", "c")], state, 1)
        found.append([[s.value for s in scores[id(first)]], [s.value for s in scores[id(second)]], later[0].value])
    assert found[0] == found[1]


def test_a_stopped_run_goes_on_with_its_memories() -> None:
    reward, state = EpisodicMemory(of=Match(), warm_up=0), dict[str, Any]()
    trained(reward, [thought("2 and 2"), thought("3 and 3", "5")], state)
    again = json.loads(json.dumps(state))
    more = [thought("2 and 1"), thought("3 and 2", "5")]
    assert trained(reward, more, state, 1) == trained(reward, more, again, 1)


def test_copied_thoughts_are_rewarded_and_other_scores_are_left_alone() -> None:
    """A cheat by the paper's formula: an incorrect answer after a success's thoughts has the whole of `exploit`."""
    reward, state = EpisodicMemory(of=Match()), dict[str, Any]()
    scores = trained(reward, [thought("two and two"), thought("seven", "5"), thought("two and two", "5")], state)
    assert parts(scores, "exploit") == pytest.approx([1.0, 0.0, 1.0])
    assert [s.value for s in score_all(reward, thought("two and two"), thought("x", "5"))] == [1.0, 0.0]
    failed = trained(reward, [attempt("4", Task(key="bare", prompt="?"))], state, 1)
    assert failed[0].status == "error" and state["new"] == []


def test_thoughts_are_read_and_embedded() -> None:
    assert thoughts_of("x <think>so</think> 4", "think") == "so"
    assert thoughts_of("</think> 4 <think>", "think") == "</think> 4 <think>"
    assert np.linalg.norm(embedded("two and two")) == pytest.approx(1.0)
    assert float(embedded("two and two") @ embedded("Two  and two")) == pytest.approx(1.0)
    assert float(embedded("two and two") @ embedded("seven")) < 0.6
    assert np.isfinite(embedded("")).all() and np.isfinite(embedded("\ud800")).all()
