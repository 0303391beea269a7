"""Tasks that evolve: what is drawn, the chains of rewrites, the next set, and what is refused."""

import asyncio
from collections import Counter
from typing import Any

import numpy as np
import pytest

from posttrain.components.curricula import State
from posttrain.components.curricula.evolved import Evolved, drawn_by, informative, weights
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.datasets.evolving import born_task, fault, longer_or_shorter, read_reply, value
from posttrain.datasets.keys import problem
from posttrain.errors import UserError
from posttrain.types import Message, Task
from tests.builders import ScriptedSampler
from tests.components.curricula.helpers import TableProbe, choose, failed, group

POOL = list(Arithmetic(size=20, terms=(2, 3)).load())


@pytest.mark.parametrize(
    ("how", "expected"),
    [("gap", 5.0), ("regret", 3.0), ("second", 2.0), ("mean", 3.0), ("hard", -3.0), ("variance", 4.5), ("none", 0.0)],
)
def test_informativeness_by_hand(how: Any, expected: float) -> None:
    """Rewards 1, 6, 4, 1: mean 3, squares 4 + 9 + 1 + 4 = 18."""
    assert informative([1.0, 6.0, 4.0, 1.0], how) == pytest.approx(expected)


def test_weights_by_hand() -> None:
    assert weights([1.0, 3.0, 2.0]).tolist() == pytest.approx([0.0, 2 / 3, 1 / 3])
    assert weights([0.5, 0.5]).tolist() == [0.5, 0.5], "the release divides by zero here"


def test_draws_follow_the_weights_and_constant_groups_are_never_drawn() -> None:
    """One of three by weights 0, 2/3 and 1/3, 2,000 times: four standard errors are .042."""
    rng = np.random.default_rng(0)
    weight_P = weights([0.0, 1.0, 0.5])
    counts = Counter(int(i) for _ in range(2_000) for i in drawn_by(weight_P, 1, rng))
    assert counts[0] == 0 and counts[1] / 2_000 == pytest.approx(2 / 3, abs=0.042)
    assert sorted(drawn_by(weight_P, 3, rng).tolist()) == [1, 2], "fewer have a weight than are to be drawn"


def after_a_round(curriculum: Evolved, informative_keys: set[str], probe: Any = None) -> State:
    """The state after each task of the pool was taken once, and the next look."""
    probe = probe or TableProbe()
    state = curriculum.start()
    for step in range(2):
        state, picks = choose(curriculum, state, POOL, 10, probe, step=step)
        rewards = [[1.0, 0.0] if pick.task.key in informative_keys else [1.0, 1.0] for pick in picks]
        state = curriculum.observe(state, [group(p.task, r) for p, r in zip(picks, rewards, strict=True)])
    return asyncio.run(curriculum.look(state, POOL, probe, 10, seed=0, step=2))


def test_the_next_set_is_four_fifths_of_rewrites_of_informative_tasks() -> None:
    curriculum = Evolved()
    chosen = {task.key for task in POOL[:7]}
    state = after_a_round(curriculum, chosen)
    assert state["round"] == 1 and len(state["set"]) == 20
    born = [i for i in state["set"] if i >= 20]
    assert len(state["born"]) + sum(state["refused"].values()) == 20, "five of twenty, four times each"
    assert len(born) == min(16, len(state["born"]))
    by_key = {own["key"]: own for own in state["born"]}
    for own in state["born"]:
        lineage, depth = own["lineage"], 1
        assert lineage["writer"] == "rule" and lineage["step"] == 2 and 1 <= lineage["depth"] <= 4
        while lineage["parent"] in by_key:
            lineage, depth = by_key[lineage["parent"]]["lineage"], depth + 1
        assert lineage["parent"] in chosen and own["lineage"]["depth"] == depth
    report = curriculum.report(state)
    assert report["born"] == len(state["born"]) and 0.0 < report["depth"] <= 4.0
    _, picks = curriculum.select(state, POOL, 20, seed=0, step=2)
    assert {pick.reason for pick in picks} == {"born", "data"} and len({pick.task.key for pick in picks}) == 20


def test_fewer_weights_than_draws_are_counted() -> None:
    """A quarter of 20 is 5, and 2 have a weight."""
    assert Evolved().report(after_a_round(Evolved(), {task.key for task in POOL[:2]}))["without_weight"] == 3.0
    assert "without_weight" not in Evolved().report(after_a_round(Evolved(), {task.key for task in POOL[:7]}))


def test_born_tasks_have_the_answer_of_their_sum() -> None:
    state = after_a_round(Evolved(), {task.key for task in POOL[:7]})
    for own in state["born"]:
        task = born_task(own)
        assert task.prompt == f"Q: {own['fields']['expression']}\nA:"
        assert int(task.answer or "") == eval(own["fields"]["expression"])
    assert len({problem(born_task(own)) for own in state["born"]} | {problem(task) for task in POOL}) == 20 + len(
        state["born"]
    ), "none is repeated"


def test_a_set_is_kept_until_it_is_used_up_and_without_any_score() -> None:
    curriculum = Evolved()
    state, picks = choose(curriculum, curriculum.start(), POOL, 10, TableProbe(), step=0)
    seen = curriculum.observe(state, [group(pick.task, [1.0, 0.0]) for pick in picks])
    assert asyncio.run(curriculum.look(seen, POOL, TableProbe(), 10, seed=0, step=1)) == seen
    state, _ = curriculum.select(state, POOL, 10, seed=0, step=1)
    state = curriculum.observe(state, [failed(task) for task in POOL])
    assert asyncio.run(curriculum.look(state, POOL, TableProbe(), 10, seed=0, step=2)) == state


class Creator(ScriptedSampler):
    """Writes the same few texts."""

    async def write(self, prompt: Any, n: int, sampling: Any) -> list[str]:
        asked = str(prompt[0]["content"]).split("\n\n")[1]
        texts = ("", "Q: 1+1\nA:\nAnswer: 2", "Q: 1+1\nA:\nAnswer: 2", f"{asked} again\nAnswer: 3", "Q: 7+7\nA:")
        return [texts[len(asked) % len(texts)]]

    def bind(self, *key: int | str) -> "Creator":
        return self


class Asking(TableProbe):
    """With a model that rewrites."""

    @property
    def samplers(self) -> dict[str, Any]:
        return {"creator": Creator("creator")}

    @property
    def held_out(self) -> frozenset[str]:
        return frozenset({"Q: 1+1\nA:"})


def test_a_model_rewrites_and_what_cannot_be_used_is_counted() -> None:
    state = after_a_round(Evolved(role="creator"), {task.key for task in POOL}, Asking())
    assert {own["lineage"]["writer"] for own in state["born"]} <= {"creator"}
    assert set(state["refused"]) <= {"empty", "held out", "no answer", "repeated"} and state["refused"]
    assert len(state["set"]) == 20, "where too little is written the present set fills the next"


def test_faults_and_replies_by_hand() -> None:
    task = Task(key="t", prompt="2+2?", answer="4")
    made = read_reply(task, "\nWhat is 3+3?\nAnswer: 6 \n")
    assert (made["prompt"], made["answer"]) == ("What is 3+3?", "6")
    assert fault(made, task, set(), set()) == ""
    assert fault(made, task, {"What is 3+3?"}, set()) == "repeated"
    assert fault(made, task, set(), {"What is 3+3?"}) == "held out"
    assert fault(read_reply(task, "What is 3+3?"), task, set(), set()) == "no answer"
    assert fault(read_reply(task, "  \nAnswer: 6"), task, set(), set()) == "empty"
    assert fault({}, task, set(), set()) == "no rule rewrites it"
    chat = Task(key="t", prompt=(Message(role="system", content="Be brief."), Message(role="user", content="2+2?")))
    born = born_task(read_reply(chat, "3+3?"))
    assert [message["content"] for message in born.prompt if not isinstance(message, str)] == ["Be brief.", "3+3?"]


def test_the_rule_by_hand() -> None:
    task = Task(key="t", prompt="Q: 12+7-3\nA:", fields={"expression": "12+7-3"})
    assert longer_or_shorter(task, 0.4, 0.0)["fields"] == {"expression": "12+0"}, "not what it was made of, 12+7"
    longer = longer_or_shorter(task, 0.6, 0.6)
    assert longer["fields"] == {"expression": "12+7-3-60"} and longer["answer"] == "-44"
    assert longer["domain"] == "4 numbers" and value("2+3*4*2-1") == 25
    assert longer_or_shorter(Task(key="t", prompt="Hi"), 0.1, 0.1) == {}


def test_what_is_refused() -> None:
    with pytest.raises(UserError, match="of 3 tasks is none"):
        Evolved().check(POOL[:3], 2)
    with pytest.raises(UserError, match="sums only"):
        Evolved().check([Task(key=str(i), prompt="Hi") for i in range(8)], 2)
    Evolved(role="creator").check([Task(key=str(i), prompt="Hi") for i in range(8)], 2)
