"""PF-PPO: what the filters keep, and that nothing else is learned from."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from posttrain.components.filters import Filter
from posttrain.components.filters.best_and_worst import BestAndWorst
from posttrain.components.filters.ranked import Ranked
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.methods.sampling.pf_ppo import ROWS, pf_ppo
from posttrain.methods.sampling.pf_ppo_reweighted import pf_ppo_reweighted
from posttrain.recipes.changes import rl_of
from posttrain.recipes.differences import differences
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from posttrain.statistics.reliability import Rule, chances
from tests.builders import group
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

LAST_BYTE = "def score(completion):\n    return ord(completion[-1]) % 7 if completion else 0.0\n"


def test_it_is_ppo_with_a_filter() -> None:
    assert ROWS == (240,)
    assert {d.path for d in differences(ppo(), pf_ppo())} == {"rollout.n", "filters.filtration"}


def test_it_trains(small: Small, train: Train, tmp_path: Path) -> None:
    """Of each task the best and the worst are learned from, by advantages of their own; the others are not."""
    recipe = override(pf_ppo(small(ppo())), ["rollout.n=5", "critic_learner.minibatches=1"])
    _, store = train(with_reward(recipe, tmp_path, LAST_BYTE))
    for step in (1, 2, 3):
        rows = store.rollouts(step)
        for key in {row["task_key"] for row in rows}:
            values = [row["reward"] for row in rows if row["task_key"] == key]
            kept = [row for row in rows if row["task_key"] == key and row["dropped_reason"] is None]
            assert len(values) == 5 and len(kept) == 2
            assert {row["reward"] for row in kept} == {min(values), max(values)}
        for row in rows:
            if row["dropped_reason"] is not None:
                assert all(a is None for a in row["advantage"] or []), "what is left out has no part in the loss"
    assert all(np.isfinite(entry["loss"]) for entry in store.metrics())


def test_what_is_kept_is_what_the_chances_of_its_rule_allow() -> None:
    """The shipped filter, and the three that it is compared with, keep what their rule draws with a chance above 0."""
    rewards = [0.2, 0.7, -0.5, 0.4, 0.1]
    members: dict[Rule, Filter | None] = {
        "none": None,
        "best": Ranked(keep=0.001),
        "best_random": BestAndWorst(against="random", margin=None, min_rollouts=1),
        "best_worst": rl_of(pf_ppo()).filters["filtration"],
    }
    for rule, member in members.items():
        these = group(rewards)
        kept = these if member is None else member({}, [these])[1][0]
        chance_N = chances(rewards, rule)
        places = [t.sample for t in kept]
        assert all(chance_N[place] > 0 for place in places)
        assert 1 in places, "the best is always there"
        assert len(places) == {"none": 5, "best": 1}.get(rule, 2)


def test_the_reweighted_buffer_trains_on_what_is_drawn(small: Small, train: Train, tmp_path: Path) -> None:
    """Advantages of zero or more; those that are not drawn are there and have none."""
    recipe = override(pf_ppo_reweighted(small(ppo())), ["rollout.n=5", "critic_learner.minibatches=1"])
    _, store = train(with_reward(recipe, tmp_path, LAST_BYTE))
    shares = [entry["drawn_share"] for entry in store.metrics()]
    assert all(0.0 < share <= 0.4 for share in shares), "at most the best and the worst of five"
    assert {d.path for d in differences(ppo(), pf_ppo_reweighted())} == {"rollout.n", "advantage"}
