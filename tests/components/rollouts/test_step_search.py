"""The search by hand: selection, running means, the critic's order, and what is returned of a tree."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from posttrain.components.environments.site import LETTERS, Site, right_link
from posttrain.components.rollouts.step_search import Node, StepSearch, TreeSettings, back_up, blended, chosen
from posttrain.types import Completion, Group, Score, Task
from tests.builders import ScriptedSampler, score

TASK = Task(key="a", prompt="go")


def test_a_mean_is_kept_along_the_path() -> None:
    root, child = Node(), Node()
    for value in (1.0, 0.0, 0.0, 1.0):
        back_up([root, child] if value else [root], score(value))
    assert (root.q, root.visits) == (0.5, 4) and (child.q, child.visits) == (1.0, 2)


def test_untried_actions_go_first_in_the_critics_order_and_then_the_highest_bound() -> None:
    """Q 0.5 after 3 and 0.4 after 1 visit of 4: 0.5 + sqrt(ln 4 / 4) = 1.089, 0.4 + sqrt(ln 4 / 2) = 1.233."""
    often, seldom = Node(rank=1, q=0.5, visits=3), Node(rank=0, q=0.4, visits=1)
    node = Node(visits=4, children=[often, seldom, Node(rank=3), Node(rank=2)])
    own = TreeSettings(alpha=1.0)
    assert chosen(node, own).rank == 2
    tried = Node(visits=4, children=[often, seldom])
    assert chosen(tried, own) is seldom and chosen(tried, replace(own, exploration=0.0)) is often
    assert 0.4 + math.sqrt(math.log(4) / 2) > 0.5 + math.sqrt(math.log(4) / 4)
    assert chosen(Node(visits=0, children=[often, seldom]), own) is often, "ln 0 is no bonus"


def test_the_value_blends_returns_and_rank() -> None:
    node = Node(rank=1, q=0.8, visits=1)
    assert [blended(node, alpha) for alpha in (0.0, 0.5, 1.0)] == pytest.approx([0.5, 0.65, 0.8])
    first, second = Node(rank=0, q=0.5, visits=9), Node(rank=1, q=0.8, visits=9)
    tree = Node(visits=18, children=[first, second])
    assert chosen(tree, TreeSettings()) is first, "0.75 and 0.65"
    assert chosen(tree, TreeSettings(select_by="returns")) is second


class Links(ScriptedSampler):
    """Proposes all links in order, equal ones twice, and goes on with the right link or with a."""

    def __init__(self, right: bool = True, *key: int | str) -> None:
        super().__init__(*key)
        self.right = right

    def bind(self, *key: int | str) -> "Links":
        return Links(self.right, *self.key, *key)

    async def sample(self, token_ids: Any, n: int, sampling: Any, vectors: Any = None) -> list[Completion]:
        page, letter = [*self.decode(token_ids).strip().rsplit("\n", 1)[-1]]
        follows = right_link(int(page), letter) if self.right else "a"
        texts = [follows] if n == 1 else [*LETTERS, *LETTERS][:n]
        made = []
        for i, text in enumerate(texts):
            logp = np.full(1, -1.0 - i, np.float32)
            ids = np.array([*text.encode()], np.int64)
            made.append(Completion(token_ids=ids, logp=logp, stop_reason="stop", version=1, text=text))
        return made


async def verdicts(group: Group) -> Group:
    """Scored by the environment."""
    scored = []
    for t in group:
        verdict = t.facts[0].verdict  # type: ignore[attr-defined]
        scored.append(t.scored(Score(value=verdict.value, status="ok" if verdict.solved else "wrong")))
    return replace(group, trajectories=tuple(scored))


def searched(iterations: int, **settings: Any) -> list[Group]:
    search = TreeSettings(iterations=iterations, **{"alpha": 1.0, **settings})
    rollout = StepSearch(environment=Site(pages=2), n=7, max_turns=2, search=search)
    return asyncio.run(rollout.collect_scored(TASK, {"policy": Links()}, verdicts))


def values(group: Group) -> dict[str, float]:
    return {t.segments[-1].text: t.score.value for t in group if t.score is not None}


def test_only_tried_actions_of_a_state_are_returned_with_their_mean_scores() -> None:
    first = Site(pages=2).instance(TASK, lambda: 0.0).begin().state_key or ""
    letter = right_link(0, first[1])
    (root,) = searched(3)
    assert values(root) == {link: float(link == letter) for link in "abc"}, "in the order of their likelihood"
    (root,) = searched(5)
    assert values(root) == {link: float(link == letter) for link in LETTERS}, "seven proposals are five actions"
    deeper = searched(12)
    assert deeper[0].key == "a/" and len(deeper) > 1 and deeper[1].key.startswith("a/")
    assert {t.segments[0].turn for t in deeper[1]} == {1}
    known = deeper[1].trajectories[0].segments[0].text
    assert known.startswith(f"go\n{first}\n") and known.endswith("\n"), "the whole history is the prompt"
    assert all(t.segments[-1].logp is not None for t in deeper[1]), "the likelihood is the logged one"


def test_a_critic_orders_the_proposals() -> None:
    class Critic(ScriptedSampler):
        """Names the last action that is left, and then gives no number."""

        replies = iter(["5", "none", "9", "2"])

        def bind(self, *key: int | str) -> "Critic":
            return self

        async def write(self, prompt: Any, n: int, sampling: Any) -> Sequence[str]:  # type: ignore[override]
            return [next(self.replies)]

    search = TreeSettings(iterations=5, alpha=0.0, critic="judge")
    rollout = StepSearch(environment=Site(pages=1), n=5, max_turns=1, search=search)
    assert rollout.roles == {"judge"}
    samplers: Any = {"policy": Links(), "judge": Critic("judge")}
    (root,) = asyncio.run(rollout.collect_scored(TASK, samplers, verdicts))
    assert values(root) == pytest.approx({"e": 1.0, "a": 1 / 2, "b": 1 / 3, "d": 1 / 4, "c": 1 / 5})


def test_a_rollout_that_could_not_be_scored_is_returned_apart_and_not_backed_up() -> None:
    async def fails(group: Group) -> Group:
        error = Score(value=math.nan, status="error")
        return replace(group, trajectories=tuple(t.scored(error) for t in group))

    rollout = StepSearch(environment=Site(pages=2), search=TreeSettings(iterations=2), max_turns=2)
    (failed,) = asyncio.run(rollout.collect_scored(TASK, {"policy": Links()}, fails))
    assert failed.key == "a/failed" and len(failed) == 2
