"""Reviews in phases: what each phase finds, replies that cannot be read, and the pairs that come of verdicts."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from posttrain.components.selections.refined_pairs import RefinedPairs, retrieved
from posttrain.datasets.greetings import prompt_of
from posttrain.datasets.reviews import CodeReviewers, Reviewed
from posttrain.engines import Sampling
from posttrain.types import Message, Task
from tests.builders import ScriptedSampler

PARTY = prompt_of("party", "kim", "abc")


def task(key: str, prompt: str, text: str = "", label: int | None = None, clicks: int = 0) -> Task:
    fields = {"clicks": clicks} if label is None else {"clicks": clicks, "label": label}
    return Task(key=key, prompt=prompt, demonstrations=(text,) if text else (), fields=fields)


POOL = [
    task("a", "Party of kim (abd):", " cake joy kim", 1, 3),
    task("b", "Party of kim (abe):", " tears joy kim", 0, 9),
    task("c", "Loss of sam (zzz):", " cake joy sam", 0, 5),
]


def verdict(text: str, *phases: Any, examples: Sequence[Any] = ()) -> int | None:
    selection = RefinedPairs(phases=phases, slips=0.0)
    return asyncio.run(selection._reviewed(CodeReviewers(), PARTY, text, examples))


def test_the_nearest_are_sorted_by_clicks() -> None:
    own = task("q", PARTY)
    assert [e["text"] for e in retrieved(own, POOL, 3, 3)] == [" tears joy kim", " cake joy sam", " cake joy kim"]
    assert [e["text"] for e in retrieved(own, POOL, 2, 1)] == [" tears joy kim"], "the loss is not near"
    assert [e["label"] for e in retrieved(POOL[1], POOL, 9, 9)] == [0, 1], "never its own text"


def test_without_a_phase_its_flaws_stay() -> None:
    examples = retrieved(task("q", PARTY), POOL, 2, 2)
    every = ("merits", "flaws", "reflection")
    assert verdict(" joy kim", *every, examples=examples) == 1
    for text, phase in ((" um joy kim", "flaws"), (" joy", "merits")):
        assert verdict(text, *every, examples=examples) == 0
        assert verdict(text, *(own for own in every if own != phase), examples=examples) == 1
    assert verdict(" tears joy kim", *every, examples=examples) == 0
    assert verdict(" tears joy kim", *every) == 1, "no example shows it"


def test_reflection_overturns_slips_alone() -> None:
    texts = [" joy kim", " um joy kim"] * 30

    def right(*phases: Any) -> int:
        selection, agents = RefinedPairs(phases=phases), CodeReviewers(slips=0.4)
        found = [asyncio.run(selection._reviewed(agents, PARTY, text, ())) for text in texts]
        return sum(own == (text == " joy kim") for own, text in zip(found, texts, strict=True))

    assert right("merits", "flaws") < 50 and right("merits", "flaws", "reflection") == 60


class Agent:
    """Replies to each kind of request with a text of its own."""

    def __init__(self, **replies: str) -> None:
        self.replies, self.asked = replies, list[str]()

    def bind(self, *key: int | str) -> "Agent":
        return self

    async def write(self, prompt: str | Sequence[Message], n: int, sampling: Sampling) -> list[str]:
        request = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        self.asked.append(request)
        kinds = {"merits": "List its merits", "flaws": "List its flaws", "verdict": "Judge strictly", "final": "Check"}
        return [next(self.replies[kind] for kind, words in kinds.items() if words in request)]


SURE = {"merits": '{"reasons": ["warm"]}', "flaws": '{"reasons": []}', "verdict": '{"verdict": 1, "reason": "fine"}'}


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"final": 'So: {"verdict": 0, "reason": "no name"}'}, 0),
        ({"final": '{"verdict": true}'}, None),
        ({"verdict": '{"verdict": 2}', "final": '{"verdict": 1}'}, None),
        ({"flaws": "none", "final": '{"verdict": 1}'}, None),
    ],
)
def test_a_model_replies_in_json_or_has_no_verdict(changed: dict[str, str], found: int | None) -> None:
    writer = Agent(**{**SURE, **changed})
    selection: Any = RefinedPairs(role="judge")
    agents = selection._agents(task("t", "q"), {"judge": writer})
    assert asyncio.run(RefinedPairs()._reviewed(agents, "q", " hi", ())) == found
    if "no name" in str(changed):
        assert "Merits: warm\nFlaws: none listed\nVerdict: 1, since fine" in writer.asked[-1]
        assert "warm" not in writer.asked[1], "the agents do not answer one another"


def test_pairs_have_a_good_and_a_bad_text() -> None:
    tasks = [task("x", "p"), task("y", "p"), task("z", "p")]
    rows = [{"texts": ["a", "b", "c", "d"], "verdicts": [None, 0, 1, 1]}, {"texts": ["a"], "verdicts": [1]}]
    chosen = RefinedPairs().choose(tasks, json.loads(json.dumps(rows)))
    ((own),) = chosen.tasks
    assert own.key == "x" and [(p.chosen, p.rejected) for p in own.preferences] == [("c", "b"), ("d", "b")]
    assert "2 pairs of 1 of 2 tasks" in chosen.summary and "1 have no readable verdict" in chosen.summary


def test_texts_are_the_writers() -> None:
    selection = RefinedPairs(n=3, first=2, phases=(), slips=0.4)
    rows = asyncio.run(selection.measure(POOL, {"policy": ScriptedSampler("policy")}))
    assert len(rows) == 2 and all(len(row["texts"]) == len(row["verdicts"]) for row in rows)
    assert RefinedPairs(role="judge").roles == {"policy", "judge"}
    assert not asyncio.run(CodeReviewers().flaws(Reviewed(question="Party of kim", text="joy")))
