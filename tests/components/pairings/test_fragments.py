"""A tree of fragments by hand: chains, values, descent, and which siblings are a pair."""

import asyncio
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from posttrain.components.pairings import Paired, Rollouts
from posttrain.components.pairings.fragments import (
    Cuts,
    Fragments,
    Growth,
    Judge,
    Node,
    chosen_child,
    cut_ends,
    fast_value,
    graded,
    prior_of,
    shared_words,
)
from posttrain.engines import Sampling
from posttrain.types import Completion, Group, Score, Task
from tests.builders import ScriptedSampler, trajectory

FIRST = (trajectory(),)
CALL = Task(key="sum", prompt="add 1 and 2:", answer="f(a=1, b=2)]", demonstrations=("f(a=1, b=2)]",))


class Writer(ScriptedSampler):
    """Writes given texts in order, whatever the prompt."""

    def __init__(self, says: Iterator[str] | Sequence[str]) -> None:
        super().__init__("policy")
        self.says, self.prompts = iter(says), list[str]()

    def bind(self, *key: int | str) -> "Writer":
        return self

    async def sample(self, token_ids: np.ndarray, n: int, sampling: Any, vectors: Any = None) -> list[Completion]:
        self.prompts.append(self.decode(token_ids))
        return [completion(next(self.says)) for _ in range(n)]


def completion(text: str, stop: Any = "stop") -> Completion:
    ids = np.array([*text.encode()], np.int64)
    logp = np.full(len(ids), math.log(0.5), np.float32)
    return Completion(token_ids=ids, logp=logp, stop_reason=stop, version=1, text=text)


def searched(says: Sequence[str], **settings: Any) -> tuple[Paired, Writer]:
    async def scorer(group: Group) -> Group:
        def of(text: str) -> Score:
            if text == "broken":
                return Score(value=math.nan, status="error")
            return Score(value=float(text == CALL.answer), status="ok" if text == CALL.answer else "wrong")

        return Group(key=group.key, trajectories=tuple(t.scored(of(t.completion)) for t in group))

    writer = Writer(says)
    rollouts = Rollouts(task=CALL, trajectories=FIRST, sampler=writer, scorer=scorer)
    return asyncio.run(rules(**settings).pair(rollouts)), writer


def rules(**settings: Any) -> Fragments:
    growth = Growth(
        **{"actions": 2, "simulations": 1, **{k: settings.pop(k) for k in ("simulations", "depth") if k in settings}}
    )
    return Fragments(growth=growth, cuts=Cuts(after=settings.pop("cuts", ("?",))), **settings)


def test_a_sample_is_cut_where_a_piece_ends() -> None:
    sampler = ScriptedSampler("policy")
    made = completion("f(a=1, b=2)]")
    assert cut_ends(made, ("(", ", ", "="), 1, sampler) == [2, 4, 7, 9, 12]
    assert cut_ends(made, ("(", ", ", "="), 2, sampler) == [4, 9, 12]
    assert cut_ends(completion("ab"), ("(",), 1, sampler) == [2]
    assert cut_ends(completion("ab("), ("(",), 1, sampler) == [3], "nothing follows the cut"


def test_values_by_hand() -> None:
    whole = "f(a=1, b=2)]"
    assert fast_value(whole, whole, ")]") == pytest.approx(0.1 + 1 - 0.5)
    assert fast_value("f(a=1,", whole, ")]") == pytest.approx(-0.1 + 1 - 0.5)
    assert fast_value("g", whole, ")]") == pytest.approx(-0.6) and fast_value("  ", whole, ")]") == 0.0
    assert shared_words("a b c", "c d") == 0.5 and shared_words("", "a") == 0.0
    assert prior_of(np.log([0.5, 0.125])) == pytest.approx(0.25) and prior_of(np.zeros(0)) == 0.1
    assert graded([0.0, -50.0, -50.0, -50.0]) == pytest.approx(0.25)
    assert graded([0.0, 0.0, 0.0, 0.0]) == pytest.approx((1 + 0.1 - 1 - 2) / 16)


def test_descent_is_by_mean_value_prior_and_visits() -> None:
    empty = np.zeros(0, np.int64)
    seen = Node(ids=empty, value=1.0, visits=1, prior=0.5)  # 1/2 + .5 sqrt(log 3 / 2) = .871
    fresh = Node(ids=empty, value=0.2, visits=0, prior=0.7)  # .2 + .7 sqrt(log 3) = .934
    parent = Node(ids=empty, visits=3, children=[seen, fresh])
    assert chosen_child(parent, 1.0) is fresh and chosen_child(parent, 0.0) is seen


def test_siblings_with_one_prefix_are_paired_and_values_are_sums() -> None:
    found, writer = searched(["f(a=1, b=2)]", "f(a=2, b=2)]"], cuts=("=",), depth=2)
    [pair] = found.pairs
    assert (pair.chosen, pair.rejected) == ("f(a=1, b=2)]", "f(a=2, b=2)]"), "both begin with f(a="
    fast = [0.1 + 0.5 - 0.5, 0.1 + 0.5 - 0.5]  # half of the fragments' two words are in the reference
    assert pair.fields["margin"] == pytest.approx(fast[0] + 0.25 - fast[1]) and "cut" not in pair.fields
    assert writer.prompts == ["add 1 and 2:"] and found.rollouts == 2


def test_fragments_of_a_pair_have_no_suffix() -> None:
    found, _ = searched(["f(a=1, b=2)]", "g(c=9, d=9)]"], cuts=("(",), depth=2, least=-1.0)
    [pair] = found.pairs
    assert (pair.chosen, pair.rejected, pair.fields["cut"]) == ("f(", "g(", "both")


def test_the_root_is_expanded_twice_before_any_descent() -> None:
    says = ["a b", "c b", "e b", "g d", "x", "y"]
    _, writer = searched(says, simulations=3, cuts=(" ",), depth=2)
    assert writer.prompts[:2] == ["add 1 and 2:"] * 2 and writer.prompts[2] != "add 1 and 2:"


@pytest.mark.parametrize(
    "settings", [{"gap": 2.0}, {"least": 2.0}, {"alike": 0.0, "least": -9.0}, {"cuts": ("?",), "alike": 0.0}]
)
def test_equal_poor_and_alike_siblings_are_no_pair(settings: dict[str, Any]) -> None:
    found, _ = searched(["f(a=1, b=2)]", "f(a=2, b=2)]"], **{"cuts": ("=",), "depth": 2, **settings})
    assert found.pairs == () and found.reason == "no fragments that differ enough"


def test_equal_samples_are_one_node_and_a_failed_grade_is_no_value() -> None:
    found, _ = searched(["same", "same"])
    assert found.pairs == ()
    found, _ = searched(["broken", "broken"])
    assert found.pairs == () and found.reason == "no rollout could be scored"


def test_an_answer_that_has_not_ended_is_finished_once() -> None:
    class Cut(Writer):
        async def sample(self, token_ids: np.ndarray, n: int, sampling: Any, vectors: Any = None) -> list[Completion]:
            self.prompts.append(self.decode(token_ids))
            return [completion(next(self.says), "length" if n > 1 else "stop") for _ in range(n)]

    writer = Cut(["f(a=1", "g", ", b=2)]"])

    async def scorer(group: Group) -> Group:
        assert [t.completion for t in group] == ["f(a=1, b=2)]"]
        return Group(key=group.key, trajectories=tuple(t.scored(Score(value=1.0, status="ok")) for t in group))

    rollouts = Rollouts(task=CALL, trajectories=FIRST, sampler=writer, scorer=scorer)
    [pair] = asyncio.run(rules(least=-1.0, sampling=Sampling(max_tokens=20)).pair(rollouts)).pairs
    assert (pair.chosen, pair.rejected, pair.fields["cut"]) == ("f(a=1", "g", "both")
    assert writer.prompts[-1] == "add 1 and 2:f(a=1"


def test_a_judge_grades_by_the_probabilities_of_letters() -> None:
    class Grader(ScriptedSampler):
        async def logp(self, token_ids: np.ndarray, **_: Any) -> np.ndarray:
            letter = chr(int(token_ids[-1]))
            return np.array([0.0, {"A": -0.1, "B": -3.0}.get(letter, -9.0)])

    async def never(group: Group) -> Group:
        raise AssertionError("the judge grades")

    samplers = {"judge": Grader("judge")}
    rollouts = Rollouts(task=CALL, trajectories=FIRST, sampler=Writer(["f(", "g"]), scorer=never, samplers=samplers)
    search = rules(judge=Judge(role="judge"), least=-1.0)
    assert search.roles == {"judge"} and len(asyncio.run(search.pair(rollouts)).pairs) == 1
