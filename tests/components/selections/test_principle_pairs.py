"""Comparisons by principles: both orders, the margin that decides, negation, noise, and the pairs that come of it."""

import asyncio
from collections import Counter
from typing import Any

import numpy as np
import pytest

from posttrain.components.selections.principle_pairs import PrinciplePairs, margin_of
from posttrain.components.tasks.principle_items import PrincipleItems, reply
from posttrain.datasets.principles import Principle
from posttrain.types import Task
from tests.builders import ScriptedSampler

BRIEF = {"brief": Principle(text="brief", negated="wordy")}
BOTH = {**BRIEF, "kind": Principle(text="kind", negated="rude")}


class Judge(ScriptedSampler):
    """Likes the letter of the shorter of two responses, and the letter a besides."""

    def __init__(self, bias: float = 0.0) -> None:
        super().__init__("policy")
        self.bias = bias

    async def logp(
        self, token_ids: np.ndarray, *, temperature: float = 1.0, vectors: np.ndarray | None = None
    ) -> np.ndarray:
        text = self.decode(token_ids)
        first, second = (text.split(f"\n{letter}: ")[1].split("\n")[0] for letter in "ab")
        size = len(second) - len(first) + self.bias if text.endswith(" a") else 0.0
        return np.array([0.0] * (len(token_ids) - 2) + [size], np.float32)


def row(**scores: list[float]) -> dict[str, Any]:
    return {"texts": ["one", "two"], "scores": scores}


def chosen(selection: PrinciplePairs, *rows: dict[str, Any]) -> list[Any]:
    tasks = [Task(key=f"t{i}", prompt="p") for i in range(len(rows))]
    return [pair for task in selection.choose(tasks, list(rows)).tasks for pair in task.preferences]


def test_orders_that_disagree_have_the_margin_zero() -> None:
    assert [margin_of(s) for s in ([2.0, 4.0], [-1.0, -3.0], [2.0, -1.0], [0.0, 3.0])] == [3.0, -2.0, 0.0, 0.0]


def test_the_label_follows_the_principle_and_its_negation() -> None:
    pairs = chosen(PrinciplePairs(principles=BRIEF, noise=0.0, copies=40), row(brief=[2.0, 4.0]))
    assert len(pairs) == 40
    by_form = Counter((pair.fields["principles"], pair.chosen) for pair in pairs)
    assert set(by_form) == {("brief", "one"), ("wordy", "two")} and min(by_form.values()) >= 10
    assert not chosen(PrinciplePairs(principles=BRIEF, noise=0.0), row(brief=[2.0, -1.0])), "nothing decides"


def test_the_most_decisive_principle_decides_over_the_variance_or_the_std() -> None:
    """Scores of kind are ten times those of brief: over the variance its margin is a tenth, over the std the same."""
    rows = [row(brief=[1.0, 1.0], kind=[-10.0, -10.0]), row(brief=[-1.0, -1.0], kind=[10.0, 10.0])]
    for scale, size in (("variance", 1.0), ("std", 1.0)):
        selection = PrinciplePairs(principles=BOTH, noise=0.0, copies=60, scale=scale)  # type: ignore[arg-type]
        for pair in chosen(selection, *rows):
            forms = pair.fields["principles"].split("; ")
            if scale == "variance" and ("brief" in forms or "wordy" in forms):
                assert pair.fields["margin"] == pytest.approx(size), "1 / 1, where kind has 10 / 100"
            elif scale == "std":
                assert pair.fields["margin"] == pytest.approx(size)


def test_labels_are_flipped_with_the_noise() -> None:
    pairs = chosen(PrinciplePairs(principles=BRIEF, noise=0.25, copies=64), *[row(brief=[1.0, 1.0])] * 20)
    flipped = sum((p.chosen == "one") != (p.fields["principles"] == "brief") for p in pairs)
    assert flipped / len(pairs) == pytest.approx(0.25, abs=0.05)


def test_both_orders_are_asked_and_a_preference_for_a_letter_cancels_or_disagrees() -> None:
    tasks = [Task(key=f"t{i}", prompt=f"p{i}") for i in range(12)]
    plain = asyncio.run(PrinciplePairs(principles=BRIEF).measure(tasks, {"policy": Judge()}))
    for own in plain:
        difference = len(own["texts"][1].strip()) - len(own["texts"][0].strip())
        assert own["scores"]["brief"] == [difference, difference]
    biased = asyncio.run(PrinciplePairs(principles=BRIEF, first=3).measure(tasks, {"policy": Judge(100.0)}))
    assert len(biased) == 3 and all(margin_of(own["scores"]["brief"]) == 0.0 for own in biased)


def test_items_have_one_reply_that_satisfies_the_principle() -> None:
    for item in PrincipleItems(size=60).load():
        _, first, second, principle = str(item.prompt).split("\n")
        has = [("please" in t) if principle == "polite?" else ("desk" not in t) for t in (first, second)]
        assert has[0] != has[1] and item.answer == ("a" if has[0] else "b")
    assert reply(True, False, who="kim") == "please see kim or ask at the desk"
