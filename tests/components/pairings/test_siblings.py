"""A search over steps by hand, the pairs of siblings, and prefixes without an end token."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from posttrain.components.pairings import Rollouts
from posttrain.components.pairings._plans import Node, grow, pairs_of, select
from posttrain.components.pairings.siblings import NO_PAIR, Siblings
from posttrain.engines import Sampling
from posttrain.types import Group, Score, Task
from tests.components.pairings.given import rollout, texts
from tests.components.search.lines import Lines

Way = tuple[int, ...]
TASK = Task(key="t", prompt="P:")


def grown(outcomes: Mapping[Way, float], *, iterations: int, value: float = 0.0, branches: int = 2) -> Node[Way]:
    """A tree in which the nodes of `outcomes` are terminal, all priors are 1, and the first of equals is taken."""

    async def expand(node: Node[Way]) -> Sequence[Node[Way]]:
        ways = [(*node.state, i) for i in range(branches)]
        return [Node(state=way, outcome=outcomes.get(way)) for way in ways]

    async def estimate(_: Node[Way]) -> float:
        return value

    root: Node[Way] = Node(state=())
    asyncio.run(
        grow(root, iterations=iterations, exploration=1.5, expand=expand, estimate=estimate, uniform=lambda: 0.0)
    )
    return root


def test_a_terminal_child_is_backed_up_when_it_is_made() -> None:
    """Root: children a (terminal, +1) and b. The root has +1 of a and the estimate 0.5 of its own expansion."""
    root = grown({(0,): 1.0}, iterations=1, value=0.5)
    assert (root.visits, root.q) == (2, 0.75)
    assert [(c.visits, c.q, c.closed) for c in root.children] == [(1, 1.0, True), (0, 0.0, False)]


def test_a_node_without_a_child_to_select_is_terminal() -> None:
    """b has two terminal children, -1 and -1: it closes, and with it the root; no estimate of b is backed up."""
    root = grown({(0,): 1.0, (1, 0): -1.0, (1, 1): -1.0}, iterations=9, value=0.5)
    assert root.closed and (root.children[1].visits, root.children[1].q) == (2, -1.0)
    assert (root.visits, root.total) == (4, 1.0 + 0.5 - 2.0)


def test_selection_adds_the_prior() -> None:
    """N_parent = 4, c = 1.5: .5 + 1.5 * .1 * 2 / 2 = .65 against 0 + 1.5 * .3 * 2 / 1 = .9; without closed ones."""
    node: Node[Way] = Node(state=(), visits=4)
    seen: Node[Way] = Node(state=(0,), prior=0.1, visits=1, total=0.5)
    node.children = [seen, Node(state=(1,), prior=0.3), Node(state=(2,), prior=1.0, closed=True)]
    assert select(node, 1.5, lambda: 0.0) is node.children[1]
    assert select(node, 0.0, lambda: 0.0) is seen


def child(q: float, *, outcome: float | None = None, visits: int = 1, broken: bool = False) -> Node[Way]:
    return Node(state=(), visits=visits, total=q * visits, outcome=outcome, broken=broken)


def test_every_positive_with_every_negative_step_and_one_pair_of_solutions() -> None:
    steps = [child(0.5), child(-0.25), child(0.75), child(0.0), child(-1.0, visits=0), child(-1.0, broken=True)]
    assert [(a, b) for _, _, a, b in pairs_of(steps, 0.3)] == [(0.5, -0.25), (0.75, -0.25)]
    solutions = [child(1.0, outcome=1.0), child(-1.0, outcome=-1.0), child(1.0, outcome=1.0)]
    [(best, worst, high, low)] = pairs_of(solutions, 0.3)
    assert (best, worst) == (solutions[0], solutions[1]) and (high, low) == pytest.approx((0.3, -0.3))
    assert not pairs_of([child(0.5), child(1.0, outcome=1.0)], 0.3), "steps and solutions are not compared"


class Bound(Lines):
    """One that is bound to it is itself."""

    def bind(self, *key: int | str) -> "Bound":
        return self

    async def score(self, token_ids: np.ndarray, *, vectors: np.ndarray | None = None) -> float:
        return self.values[self.decode(token_ids)]


def paired(
    script: Mapping[str, Sequence[str]], **settings: object
) -> tuple[list[tuple[str, str]], list[dict[str, Any]]]:
    async def scorer(group: Group) -> Group:
        marked = [t.scored(Score(value=1.0, status="ok" if "good" in t.completion else "wrong")) for t in group]
        return replace(group, trajectories=tuple(marked))

    writer = Bound(script, {"P:": 0.5, "P:x;": 0.9, "P:y;": 0.1})
    shown = {"iterations": 9, "first": 2, "samples": 2, "delimiter": ";", "sampling": Sampling(max_tokens=20)}
    rule = Siblings(**{**shown, **settings})  # type: ignore[arg-type]
    given = Rollouts(
        task=TASK,
        trajectories=(rollout(TASK, "z", 0.0, 0),),
        sampler=writer,  # type: ignore[arg-type]
        scorer=scorer,
        samplers={"value": writer},  # type: ignore[dict-item]
    )
    found = asyncio.run(rule.pair(given))
    assert found.pairs or found.reason == NO_PAIR
    return texts(found), [dict(pair.fields) for pair in found.pairs]


def test_pairs_of_steps_are_prefixes_and_pairs_of_solutions_end() -> None:
    """x leads to two right solutions, y to two wrong ones: the steps are a pair; then z to one of each."""
    script = {"P:": ["x;", "y;"], "P:x;": ["good", "good!"], "P:y;": ["bad", "bad!"]}
    pairs, fields = paired(script)
    assert pairs == [("x;", "y;")] and fields[0]["cut"] == "both" and fields[0]["rule"] == "siblings"
    assert fields[0]["margin"] == pytest.approx(2.0) and fields[0]["depth"] == 1
    pairs, fields = paired({"P:": ["x;", "x;"], "P:x;": ["good", "bad"]})
    assert pairs == [("x;good", "x;bad")] and "cut" not in fields[0] and fields[0]["margin"] == pytest.approx(0.6)


def test_what_is_too_deep_is_in_no_pair() -> None:
    assert paired({"P:": ["x;", "good"]}, depth=1) == ([], [])


def test_the_value_model_estimates_prefixes() -> None:
    """The root and both children are expanded: x is backed up with 2 * .9 - 1 = .8 and y with 2 * .1 - 1 = -.8."""
    script = {"P:": ["x;", "y;"], "P:x;": ["a;", "b;"], "P:y;": ["a;", "b;"]}
    pairs, fields = paired(script, value_role="value", iterations=3, exploration=1000.0)
    assert pairs == [("x;", "y;")] and fields[0]["margin"] == pytest.approx(1.6)
    rule = Siblings(value_role="value")
    assert rule.roles == {"value"} and not Siblings().roles and rule.gives == {"margin"}
