"""The laws of curricula, selections, preference losses and pairings notice members that break them."""

import inspect
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from torch import Tensor

from posttrain.components.curricula import Curriculum, Pick, State
from posttrain.components.curricula.uniform import Uniform
from posttrain.components.pairings import Paired, Rollouts
from posttrain.components.pairings.best_and_lower import BestAndLower
from posttrain.components.preferences import Pairs, PerPair
from posttrain.components.preferences.dpo import DPO
from posttrain.components.rollouts import Row
from posttrain.components.selections import Chosen, Selection
from posttrain.engines import Sampler
from posttrain.signals import Signal, logp_of
from posttrain.types import Group, Preference, Task
from tests.conformance import test_curricula, test_pairings, test_preferences, test_selections

NOTICED = (AssertionError, KeyError, ValueError, pytest.fail.Exception)
CALLS = itertools.count()
REFERENCE = logp_of("reference")

# Curricula


class First(Uniform):
    """The first tasks, moved by an offset of the wrong member's own."""

    def offset(self, state: Any, pool: Sequence[Task], count: int) -> int:
        return 0

    def select(
        self, state: State, pool: Sequence[Task], count: int, *, seed: int, step: int, refill: int = 0
    ) -> tuple[State, list[Pick]]:
        offset = self.offset(state, pool, count)
        return dict(state), [Pick(task=pool[(offset + i) % len(pool)]) for i in range(count)]

    def observe(self, state: State, groups: Sequence[Group]) -> State:
        return dict(state)


class OneTooFew(First):
    def select(self, state: State, pool: Sequence[Task], count: int, **more: Any) -> tuple[State, list[Pick]]:
        state, picks = super().select(state, pool, count, **more)
        return state, picks[:-1]


class OtherTasks(First):
    def select(self, state: State, pool: Sequence[Task], count: int, **more: Any) -> tuple[State, list[Pick]]:
        state, picks = super().select(state, pool, count, **more)
        return state, [replace(pick, task=replace(pick.task, prompt="other")) for pick in picks]


class GlobalDraws(First):
    def offset(self, state: Any, pool: Sequence[Task], count: int) -> int:
        return random.randrange(len(pool))


class OutsideTheState(First):
    def offset(self, state: Any, pool: Sequence[Task], count: int) -> int:
        return next(CALLS)


class TypeInTheState(First):
    def start(self) -> State:
        return {"position": (0,)}

    def offset(self, state: Any, pool: Sequence[Task], count: int) -> int:
        return int(isinstance(state["position"], tuple))


class ReadsAll(First):
    def offset(self, state: Any, pool: Sequence[Task], count: int) -> int:
        return sum(1 for task in pool if task.domain == "a")


class LargeState(First):
    def observe(self, state: State, groups: Sequence[Group]) -> State:
        return {**state, "history": [1.0] * 1_000_000}


class CountsRows(First):
    def observe(self, state: State, groups: Sequence[Group]) -> State:
        return {**state, "rows": sum(isinstance(fact, Row) for group in groups for t in group for fact in t.facts)}


class InPlace(First):
    def offset(self, state: Any, pool: Sequence[Task], count: int) -> int:
        state["position"] += count
        return 0


class OnceEach(First):
    def select(self, state: State, pool: Sequence[Task], count: int, **more: Any) -> tuple[State, list[Pick]]:
        return super().select(state, pool, min(count, len(pool)), **more)


class LooksAtRandom(First):
    async def look(self, state: State, pool: Sequence[Task], probe: Any, count: int, **at: Any) -> State:
        return {**state, "drawn": random.random()}


class LooksInPlace(First):
    async def look(self, state: Any, pool: Sequence[Task], probe: Any, count: int, **at: Any) -> State:
        state["looked"] = at["step"]
        return {**state}


class LooksAway(First):
    async def look(self, state: State, pool: Sequence[Task], probe: Any, count: int, **at: Any) -> State:
        return dict(state)


CURRICULA: Mapping[str, Sequence[Curriculum]] = {
    "test_chooses_as_many_as_asked_from_the_pool": [OneTooFew(), OtherTasks()],
    "test_same_seed_same_order": [GlobalDraws()],
    "test_resumed_is_uninterrupted": [OutsideTheState(), TypeInTheState()],
    "test_a_look_repeats_and_is_resumed": [LooksAtRandom(), LooksInPlace()],
    "test_what_looks_measures": [LooksAway()],
    "test_a_choice_of_many_tasks_reads_the_chosen_ones_only": [ReadsAll(), LargeState()],
    "test_state_is_changed_by_returning_a_new_one": [InPlace()],
    "test_an_episode_of_three_rows_counts_once": [CountsRows()],
    "test_a_pool_of_one": [OnceEach()],
}

# Selections


class Half(Selection):
    """Tasks by a draw of the policy's."""

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        return [samplers["policy"].uniform() for _ in tasks]

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        kept = [task for task, draw in zip(tasks, measured, strict=True) if draw < 0.5]
        return Chosen(tasks=self.changed(kept), summary="half")

    def changed(self, kept: list[Task]) -> list[Task]:
        return kept


class NotJson(Half):
    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        return [float("nan"), *(await super().measure(tasks, samplers))[1:]]


class DecidesOtherwise(Half):
    def changed(self, kept: list[Task]) -> list[Task]:
        return kept[next(CALLS) % 2 :]


class Blind(Half):
    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        return [i % 2 for i in range(len(tasks))]


class Reversed(Half):
    def changed(self, kept: list[Task]) -> list[Task]:
        return kept[::-1]


class Twice(Half):
    def changed(self, kept: list[Task]) -> list[Task]:
        return [*kept, kept[0]]


class OtherPrompts(Half):
    def changed(self, kept: list[Task]) -> list[Task]:
        return [replace(task, prompt="other") for task in kept]


class OtherAnswers(Half):
    def changed(self, kept: list[Task]) -> list[Task]:
        return [replace(task, answer="other", fields={**task.fields, "origin": "policy"}) for task in kept]


class Nothing(Half):
    def changed(self, kept: list[Task]) -> list[Task]:
        return []


class NeverWritten(Half):
    writes = frozenset({"demonstrations"})


SELECTIONS: Mapping[str, Sequence[Selection]] = {
    "test_what_is_seen_is_json_and_decides_alone": [NotJson(), DecidesOtherwise(), Blind()],
    "test_some_are_left_as_they_were_or_with_texts_that_say_where_they_are_from": [
        Reversed(), Twice(), OtherPrompts(), OtherAnswers(), Nothing()
    ],
    "test_what_is_written_takes_the_place_of_the_datas_own": [NeverWritten()],
}  # fmt: skip

# Preference losses


class Altered(DPO):
    """DPO with another loss."""

    def altered(self, loss_P: Tensor, pairs: Pairs) -> Tensor:
        return loss_P

    def __call__(self, pairs: Pairs) -> PerPair:
        return PerPair(loss_P=self.altered(super().__call__(pairs).loss_P, pairs))


class OneLoss(Altered):
    def altered(self, loss_P: Tensor, pairs: Pairs) -> Tensor:
        return loss_P.sum()[None]


class NeedsMore(Altered):
    needs: frozenset[Signal] = frozenset({REFERENCE, logp_of("other")})


class ReadsUnused(Altered):
    reads = frozenset({"margin"})

    def __call__(self, pairs: Pairs) -> PerPair:
        return super().__call__(replace(pairs, fields={"margin": pairs.length_P2[:, 0].double(), **pairs.fields}))


class TeachesMargins(ReadsUnused):
    def altered(self, loss_P: Tensor, pairs: Pairs) -> Tensor:
        return loss_P * pairs.fields["margin"]


class Centered(Altered):
    def altered(self, loss_P: Tensor, pairs: Pairs) -> Tensor:
        return loss_P - loss_P.mean()


class Overflows(Altered):
    def altered(self, loss_P: Tensor, pairs: Pairs) -> Tensor:
        gain_P2 = pairs.logp_P2 - pairs.reference_logp_P2[REFERENCE]
        return -(0.1 * (gain_P2[:, 0] - gain_P2[:, 1])).sigmoid().log()


class Opposite(Altered):
    def altered(self, loss_P: Tensor, pairs: Pairs) -> Tensor:
        return -loss_P


class Writes(Altered):
    def altered(self, loss_P: Tensor, pairs: Pairs) -> Tensor:
        pairs.reference_logp_P2[REFERENCE].add_(1.0)
        return loss_P


class Flat(Altered):
    def altered(self, loss_P: Tensor, pairs: Pairs) -> Tensor:
        return 0.0 * loss_P


class UnknownException(Altered):
    exceptions = frozenset({"finite"})


PREFERENCES: Mapping[str, Sequence[DPO]] = {
    "test_one_loss_a_pair": [OneLoss()],
    "test_needs_are_exact": [NeedsMore(), ReadsUnused()],
    "test_numbers_of_a_pair_have_no_gradient": [TeachesMargins()],
    "test_a_pair_depends_on_no_other": [Centered()],
    "test_finite_at_extreme_margins": [Overflows()],
    "test_training_begins_by_raising_the_chosen_and_lowering_the_rejected": [Opposite(), Flat()],
    "test_nothing_is_written": [Writes()],
    "test_orders_the_arms_of_a_bandit": [Opposite(), Flat()],
    "test_exceptions_are_laws": [UnknownException()],
}

# Pairings


class Changed(BestAndLower):
    """The best and a lower one, with pairs of another kind."""

    def changed(self, pair: Preference) -> Preference:
        return pair

    async def pair(self, rollouts: Rollouts) -> Paired:
        found = await super().pair(rollouts)
        return replace(found, pairs=tuple(self.changed(pair) for pair in found.pairs))


class SameText(Changed):
    def changed(self, pair: Preference) -> Preference:
        return replace(pair, rejected=pair.chosen)


class NoRule(Changed):
    def changed(self, pair: Preference) -> Preference:
        return replace(pair, fields={**pair.fields, "rule": ""})


class NoNumber(Changed):
    gives = frozenset({"margin", "rank"})


class Random(Changed):
    def changed(self, pair: Preference) -> Preference:
        return replace(pair, fields={**pair.fields, "margin": float(next(CALLS))})


class Unscored(Changed):
    async def pair(self, rollouts: Rollouts) -> Paired:
        found = await super().pair(rollouts)
        texts = [trajectory.completion for trajectory in rollouts.trajectories]
        return replace(found, pairs=tuple(replace(pair, rejected=texts[2]) for pair in found.pairs))


class NoReason(Changed):
    async def pair(self, rollouts: Rollouts) -> Paired:
        return replace(await super().pair(rollouts), reason="")


class OtherColumn(Changed):
    reads = ("column",)


PAIRINGS: Mapping[str, Sequence[BestAndLower]] = {
    "test_pairs_of_different_texts_with_rule_origin_and_numbers": [SameText(), NoRule(), NoNumber()],
    "test_the_same_again": [Random()],
    "test_a_rollout_that_could_not_be_scored_is_in_no_pair": [Unscored()],
    "test_none_has_a_reason": [NoReason()],
    "test_reads_what_it_declares": [OtherColumn()],
}

TABLES: Mapping[ModuleType, tuple[Any, Mapping[str, Sequence[Any]]]] = {
    test_curricula: (First(), CURRICULA),
    test_selections: (Half(), SELECTIONS),
    test_preferences: (Altered(), PREFERENCES),
    test_pairings: (Changed(), PAIRINGS),
}


def laws(module: ModuleType) -> dict[str, Callable[[Any], None]]:
    """The laws of a module by name."""
    return {name: law for name, law in vars(module).items() if name.startswith("test_") and inspect.isfunction(law)}


CASES = [
    pytest.param(laws(module)[name], wrong, id=f"{name}-{type(wrong).__name__}")
    for module, (_, table) in TABLES.items()
    for name, members in table.items()
    for wrong in members
]


@pytest.mark.parametrize("module", TABLES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_law_has_a_member_that_breaks_it_and_one_that_does_not(module: ModuleType) -> None:
    right, table = TABLES[module]
    assert laws(module).keys() == table.keys()
    for law in laws(module).values():
        law(right)


@pytest.mark.parametrize(("law", "wrong"), CASES)
def test_a_wrong_member_breaks_its_law(law: Callable[[Any], None], wrong: Any) -> None:
    with pytest.raises(NOTICED):
        law(wrong)
