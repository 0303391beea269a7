"""Laws of the pairings, for every member on arrival."""

import asyncio
import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from posttrain.components.pairings import Paired, Pairing, Rollouts
from posttrain.components.pairings.bands import Bands
from posttrain.components.pairings.fields_differ import FieldsDiffer
from posttrain.components.pairings.fragments import Fragments
from posttrain.components.pairings.prefix_tree import PrefixTree
from posttrain.components.pairings.siblings import Siblings
from posttrain.components.rewards import failure
from posttrain.types import Group, Score, Segment, Task, Trajectory
from tests.builders import ScriptedSampler
from tests.conformance._members import each, members

TASK = Task(
    key="k",
    prompt="p: ",
    demonstrations=("act: 1\nstate: x",),
    fields={"ranked": [f"text {i}" for i in range(9)]},
)

every_member = pytest.mark.parametrize("pairing", members(Pairing))


def able(pairing: Pairing) -> Pairing:
    """With settings that fit the task."""
    if isinstance(pairing, PrefixTree):
        return PrefixTree(branches=8, depth=2)  # scripted responses end soon
    if isinstance(pairing, Siblings):
        return replace(
            pairing, iterations=20, first=8, delimiter="q", value_role=None
        )  # a letter of the scripted texts
    if isinstance(pairing, Fragments):
        return replace(pairing, least=-9.0)  # scripted texts have no word of the reference
    if isinstance(pairing, Bands):
        return Bands(ends=(3, 9), counts=(1, 2))
    return FieldsDiffer(fields=("act", "state"), most=pairing.most) if isinstance(pairing, FieldsDiffer) else pairing


def rollouts(values: list[float | None], *, key: str = "k", stop: str = "stop") -> Rollouts:
    """One rollout for each value, None for one that could not be scored; 1 and more is correct."""
    sampler = ScriptedSampler(key)

    def scored(trajectory: Trajectory, value: float | None) -> Trajectory:
        known = None if value is None else Score(value=value, status="ok" if value >= 1 else "wrong")
        return trajectory.scored(known or failure("broken"))

    async def scorer(group: Group) -> Group:
        marked = [scored(t, float(sum(map(ord, t.completion)) % 2)) for t in group]
        return replace(group, trajectories=tuple(marked))

    def one(i: int, value: float | None) -> Trajectory:
        text = f"act: 2\nstate: {'xyz'[i % 3]}\nline {i}"
        segment = Segment(actor="policy", token_ids=sampler.encode_completion("", text), trained=True, text=text)
        made = Trajectory(task=TASK, segments=(sampler.prompt(TASK), segment), stop_reason=stop, sample=i)  # type: ignore[arg-type]
        return scored(made, value)

    found = tuple(one(i, value) for i, value in enumerate(values))
    return Rollouts(task=TASK, trajectories=found, sampler=sampler, scorer=scorer)


def made(pairing: Pairing, given: Rollouts) -> Paired:
    return asyncio.run(able(pairing).pair(given))


MIXED = [0.25, 1.0, None, 0.5, 0.25]


@every_member
def test_pairs_of_different_texts_with_rule_origin_and_numbers(pairing: Pairing) -> None:
    found = made(pairing, rollouts(MIXED))
    assert found.pairs and not found.reason
    for pair in found.pairs:
        assert pair.chosen != pair.rejected and pair.chosen.strip() and pair.rejected.strip()
        assert pair.fields["rule"] == pairing.kind and len(pair.fields["origin"]) == 2
        assert all(isinstance(pair.fields[name], float) for name in able(pairing).gives)
    assert json.loads(json.dumps([asdict(pair) for pair in found.pairs], allow_nan=False))


@every_member
def test_the_same_again(pairing: Pairing) -> None:
    assert made(pairing, rollouts(MIXED)) == made(pairing, rollouts(MIXED))


@every_member
def test_a_rollout_that_could_not_be_scored_is_in_no_pair(pairing: Pairing) -> None:
    given = rollouts(MIXED)
    texts = {text for pair in made(pairing, given).pairs for text in (pair.chosen, pair.rejected)}
    exempt = isinstance(pairing, FieldsDiffer)  # what is compared are its fields, not its score
    assert exempt or given.trajectories[2].completion not in texts


@every_member
@each(values=[[], [None, None], [1.0, 1.0], [0.0, 0.0]])
def test_none_has_a_reason(pairing: Pairing, values: list[float | None]) -> None:
    found = made(pairing, rollouts(values))
    assert bool(found.pairs) != bool(found.reason)
    if not isinstance(pairing, (Bands, FieldsDiffer)) and (not values or values == [None, None]):
        assert not found.pairs and found.reason == "no rollout could be scored"


@every_member
def test_reads_what_it_declares(pairing: Pairing) -> None:
    chosen: Any = able(pairing)
    assert set(chosen.reads) <= TASK.fields.keys()
