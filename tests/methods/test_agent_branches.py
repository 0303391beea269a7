"""The map of the survey of optimization of agents is true, and its branches read one kind of trajectory."""

import asyncio
import re
from pathlib import Path

from posttrain.components.diagnostics import Diagnostic
from posttrain.components.environments import Environment
from posttrain.components.environments.try_again import TryAgain
from posttrain.components.filters import Filter
from posttrain.components.filters.best_and_worst import BestAndWorst
from posttrain.components.filters.outcome import Outcome
from posttrain.components.objectives import Objective
from posttrain.components.pairings import Pairing
from posttrain.components.rewards import Reward
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts.reflected import Reflected
from posttrain.components.rollouts.turns import Turns
from posttrain.components.tasks import Tasks
from posttrain.engines import Sampling
from posttrain.recipes.catalogue import entries
from posttrain.stages import Stage
from posttrain.types import Group, Task, Trajectory
from tests.builders import ScriptedSampler, score

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
METHODS = {entry.name for entry in entries("recipe")}
PARTS = {
    kind
    for contract in (Diagnostic, Environment, Filter, Objective, Pairing, Reward, Rollout, Tasks, Stage)
    for kind in contract.kinds()
}


def names(cell: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", cell))


def test_every_branch_has_methods_and_parts_that_exist() -> None:
    lines = [line for line in PAGE.read_text().partition("<!-- map: begin -->")[2].splitlines() if line[:1] == "|"]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    assert len(rows) == 14
    for branch, methods, parts in rows:
        assert names(methods) <= METHODS, branch
        assert names(parts) and names(parts) <= PARTS, branch


def sampled(rollout: Rollout) -> tuple[Trajectory, ...]:
    async def scorer(group: Group) -> Group:
        return Group(key=group.key, trajectories=tuple(t.scored(score(float(t.sample == 0))) for t in group))

    task = Task(key="ball", prompt="Box:", answer="a")
    [group] = asyncio.run(rollout.collect_scored(task, {"policy": ScriptedSampler("policy")}, scorer))
    return group.trajectories


def test_observations_and_notes_are_never_trained_and_filters_keep_the_author() -> None:
    turns = Turns(environment=TryAgain(tries=2), n=3, max_turns=2, sampling=Sampling(max_tokens=3))
    for rollout in (
        turns,
        Reflected(environment=turns.environment, n=2, tries=2, max_turns=2, sampling=turns.sampling),
    ):
        found = sampled(rollout)
        actors = {(segment.actor, segment.trained) for t in found for segment in t.segments}
        assert actors == {("prompt", False), ("policy", True), ("environment", False)}
        group = Group(key="ball", trajectories=found)
        for part in (Outcome(), BestAndWorst()):
            _, kept, dropped = part({}, [group])
            after = [t for one in [*kept, *(d.group for d in dropped)] for t in one]
            assert sorted(t.sample for t in after) == [t.sample for t in found]
            assert {(s.actor, s.trained) for t in after for s in t.segments} == actors
