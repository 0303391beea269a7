"""Rules as text: who learns from what, failures that keep the old list, the gate, and what stays without a phase."""

import asyncio
import json
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from posttrain.components.selections.optimized_rules import Lists, OptimizedRules
from posttrain.components.tasks.greetings import Greetings
from posttrain.datasets.greetings import HOPES, RARE
from posttrain.datasets.rule_agents import CodeRuleAgents, numbered
from posttrain.engines import Sampling
from posttrain.types import Message, Task

TASKS = Greetings(size=300).load()
OLD = Lists(writing=("old",), detecting=("old",))


def played(**settings: Any) -> dict[str, Any]:
    found: dict[str, Any] = asyncio.run(OptimizedRules(rounds=10, **settings).measure(TASKS, {}))
    assert played_is_json(found)
    return found


def played_is_json(found: Any) -> bool:
    return bool(json.loads(json.dumps(found)) == found)


def test_without_a_phase_its_flaws_stay() -> None:
    both = set(played()["detecting"])
    assert set(RARE) <= both and not set(HOPES) & both
    assert not set(RARE) & set(played(phases=("reflection",))["detecting"]), "no label shows them"
    assert {"luck", "peace"} <= set(played(phases=("adversarial",))["detecting"]), "no bad text shows them"
    assert played(phases=())["detecting"] == list(Lists().detecting)


def test_the_gate_refuses_faulty_lists() -> None:
    gated, free = played(slips=0.5), played(slips=0.5, held_out=0)
    assert gated["counts"]["refused rewritings"] > 0 and "refused rewritings" not in free["counts"]
    assert len(set(HOPES) & set(gated["detecting"])) <= len(set(HOPES) & set(free["detecting"]))


def test_lists_have_at_most_ten_rules_and_all_tasks_get_them() -> None:
    found = played(most=7)
    assert len(found["detecting"]) <= 7 and len(found["writing"]) <= 7
    chosen = OptimizedRules().choose(TASKS, found)
    assert len(chosen.tasks) == len(TASKS) and all(t.fields["rules"] == found["detecting"] for t in chosen.tasks)
    assert "caught" in chosen.summary and found["detecting"][0] in chosen.summary


class Agent:
    """Replies to each kind of request with a text of its own, and keeps the requests."""

    def __init__(self, **replies: Any) -> None:
        self.replies, self.asked = replies, list[str]()

    def bind(self, *key: int | str) -> "Agent":
        return self

    async def write(self, prompt: str | Sequence[Message], n: int, sampling: Sampling) -> list[str]:
        request = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        self.asked.append(request)
        kinds = {"generate": "Write a text", "detect": "Judge whether", "reflect": "A judge called", "new": "Rewrite"}
        own = next(self.replies[kind] for kind, words in kinds.items() if request.startswith(words))
        return [own if isinstance(own, str) else json.dumps(own)]


FINE = {
    "generate": {"text": "so so", "flaws": "dull"},
    "detect": {"verdict": "Good", "hint": ""},
    "reflect": {"analysis": "a", "hint": "h"},
    "new": {"rules": ["new"]},
}


@pytest.mark.parametrize(
    ("changed", "writing", "detecting", "event"),
    [
        ({}, ["old"], ["new"], "fooled"),
        ({"detect": {"verdict": "Bad", "hint": "dull"}}, ["new"], ["old"], "caught"),
        ({"detect": {"verdict": "bad?"}}, ["old"], ["old"], "unreadable"),
        ({"generate": {"text": "so so"}}, ["old"], ["old"], "unreadable"),
        ({"new": {"rules": []}}, ["old"], ["old"], "failed rewritings"),
        ({"new": "sorry"}, ["old"], ["old"], "failed rewritings"),
        ({"new": {"rules": ["a", "b", "c"]}}, ["old"], ["old"], "failed rewritings"),
    ],
)
def test_updates_of_the_adversarial_phase(
    changed: dict[str, Any], writing: list[str], detecting: list[str], event: str
) -> None:
    agent: Any = Agent(**{**FINE, **changed})
    rules = OptimizedRules(role="judge", phases=("adversarial",), lists=OLD, rounds=1, batch=1, most=2)
    found = asyncio.run(rules.measure([Task(key="t", prompt="p")], {"judge": agent}))
    assert (found["writing"], found["detecting"]) == (writing, detecting) and event in found["counts"]
    if event == "fooled":
        assert "Hint: dull" in agent.asked[-1], "the generator's own explanation"


EMPTY = {"analysis": "", "hint": "h"}


@pytest.mark.parametrize(("reflect", "detecting"), [(FINE["reflect"], ["new"]), (EMPTY, ["old"])])
def test_an_error_on_a_label_needs_analysis_and_hint(reflect: Any, detecting: list[str]) -> None:
    agent: Any = Agent(**{**FINE, "reflect": reflect})
    rules = OptimizedRules(role="judge", phases=("reflection",), lists=OLD, rounds=1, held_out=0)
    task = Task(key="t", prompt="p", demonstrations=("x",), fields={"label": 0})
    found = asyncio.run(rules.measure([task], {"judge": agent}))
    assert found["detecting"] == detecting and found["counts"]["errors"] == 1
    right = Task(key="t", prompt="p", demonstrations=("x",), fields={"label": 1})
    assert asyncio.run(rules.measure([right], {"judge": agent}))["counts"] == {}


def test_the_text_is_between_marks_and_verdicts_of_a_round_are_by_its_first_list() -> None:
    agent: Any = Agent(**FINE)
    judge: Any = OptimizedRules(role="judge")
    asyncio.run(judge._agents(Random(0), {"judge": agent}).detect("q", "Good! 1. be kind", ["r"]))
    assert "<<<BEGIN" in agent.asked[0] and numbered(["r"]) in agent.asked[0]
    rules = OptimizedRules(role="judge", phases=("adversarial",), lists=OLD, rounds=1, batch=2, held_out=0)
    asyncio.run(rules.measure([Task(key=k, prompt=k) for k in "ab"], {"judge": agent}))
    asked = [request for request in agent.asked if request.startswith("Judge")][1:]
    assert len(asked) == 2 and all("1. old" in request for request in asked)


def test_code_exchanges_what_was_caught() -> None:
    agents = CodeRuleAgents()
    new = asyncio.run(agents.rewrite(["um", "meh"], "+um", "writing", 10))
    assert new is not None and "um" not in new and len(new) == 2
    assert asyncio.run(agents.rewrite(["um"], "-um", "detecting", 10)) == []
    assert asyncio.run(agents.generate("Party of kim", ["cake at a loss"])) is None
