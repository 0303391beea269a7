"""Each law catches the mistake that it is there for: a suite that passes everything proves nothing."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from posttrain.components.advantages import Advantage
from posttrain.components.corrections import Correction
from posttrain.components.curricula import Curriculum, Pick
from posttrain.components.filters import Filter
from posttrain.components.objectives import Objective
from posttrain.components.penalties import Penalty
from posttrain.components.reducers import Reducer
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts.independent import Independent
from posttrain.signals import ENTROPY, logp_of
from posttrain.types import Credit, PerToken
from tests.conformance import (
    test_advantages,
    test_corrections,
    test_curricula,
    test_filters,
    test_objectives,
    test_penalties,
    test_reducers,
    test_rollouts,
)

Law = Callable[..., None]


def caught(law: Law, *arguments: Any) -> bool:
    try:
        law(*arguments)
    except (Exception, pytest.fail.Exception):
        return True
    return False


def objective(loss: Callable[..., Any], **declared: frozenset[Any]) -> Objective:
    """A member that is wrong in one way."""

    def call(self: Objective, tokens: Any) -> PerToken:
        result = loss(tokens)
        return result if isinstance(result, PerToken) else PerToken(loss_T=result)

    return type("Wrong", (Objective,), {"__call__": call, **declared})()


def plain(tokens: Any) -> torch.Tensor:
    return -tokens.advantage_T * tokens.logp_T


def written_in_place(tokens: Any) -> torch.Tensor:
    tokens.advantage_T.mul_(2)
    return plain(tokens)


WRONG_OBJECTIVES = {
    "one number": (objective(lambda t: plain(t).sum()), test_objectives.test_one_loss_a_token),
    "no gradient": (objective(lambda t: plain(t).detach()), test_objectives.test_one_loss_a_token),
    "metric with a graph": (
        objective(lambda t: PerToken(loss_T=plain(t), metrics={"ratio": (t.logp_T - t.old_logp_T).exp()})),
        test_objectives.test_one_loss_a_token,
    ),
    "undeclared need": (objective(lambda t: plain(t) - t[ENTROPY]), test_objectives.test_needs_are_exact),
    "unread need": (objective(plain, needs=frozenset({ENTROPY})), test_objectives.test_needs_are_exact),
    "written in place": (
        objective(written_in_place),
        test_objectives.test_same_tokens_same_loss_and_nothing_written,
    ),
    "order matters": (
        objective(lambda t: plain(t) * torch.arange(len(t.logp_T))),
        test_objectives.test_order_of_sequences_does_not_matter,
    ),
    "overflow": (
        objective(lambda t: -t.advantage_T * (t.logp_T - t.old_logp_T).exp()),
        test_objectives.test_finite_at_extreme_ratios,
    ),
    "imitation, undeclared": (
        objective(lambda t: -t.logp_T),
        test_objectives.test_zero_advantage_gives_zero_gradient,
    ),
    "declared in vain": (
        objective(plain, exceptions=frozenset({"zero_advantage"})),
        test_objectives.test_zero_advantage_gives_zero_gradient,
    ),
    "ratio to nobody": (
        objective(lambda t: -t.advantage_T * (t.logp_T - t.behavior_logp_T).clamp(-20, 20).exp()),
        test_objectives.test_tokens_that_nobody_sampled_have_a_loss,
    ),
    "half the gradient": (objective(lambda t: plain(t) / 2), test_objectives.test_on_policy_gradient_is_reinforce),
    "wrong sign": (objective(lambda t: -plain(t)), test_objectives.test_solves_a_bandit),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG_OBJECTIVES)
def test_wrong_objectives_are_caught(name: str) -> None:
    member, law, *more = WRONG_OBJECTIVES[name]
    assert caught(law, member, *more)
    assert not caught(law, objective(plain), *more), "the law lets a right one pass"


def advantage(estimate: Callable[..., Any]) -> Advantage:
    """A member that gives every token of trajectory i the i-th number of `estimate(batch)`."""

    def call(self: Advantage, state: Any, batch: Any) -> tuple[Any, Credit]:
        pairs = zip(estimate(batch), batch.token_rewards, strict=True)
        return state, Credit(advantages=tuple(np.full(len(r), a, np.float32) for a, r in pairs))

    return type("Wrong", (Advantage,), {"__call__": call})()


WRONG_ADVANTAGES = {
    "nothing": (advantage(lambda b: 0 * b.return_N), test_advantages.test_better_rollouts_get_more_credit),
    "order matters": (
        advantage(lambda b: b.return_N * np.arange(len(b.return_N))),
        test_advantages.test_permutation_equivariant,
    ),
    "0 / 0": (
        advantage(lambda b: b.return_N / np.where(np.ptp(b.return_N) > 0, 1.0, np.nan)),
        test_advantages.test_finite_on_constant_rewards,
    ),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", WRONG_ADVANTAGES)
def test_wrong_advantages_are_caught(name: str) -> None:
    member, law, *more = WRONG_ADVANTAGES[name]
    assert caught(law, member, *more)
    assert not caught(law, advantage(lambda b: b.return_N), *more), "the law lets a right one pass"


class Forgetful(Advantage):
    """Keeps its memory in the class instead of in the state."""

    seen: ClassVar[list[float]] = []

    def __call__(self, state: Any, batch: Any) -> tuple[Any, Credit]:
        self.seen.append(batch.return_N.mean())
        mean = np.mean(self.seen)
        return state, Credit(advantages=tuple((r - mean).astype(np.float32) for r in batch.token_rewards))


class Overwriting(Advantage):
    def start(self) -> Any:
        return {"steps": 0}

    def __call__(self, state: Any, batch: Any) -> tuple[Any, Credit]:
        state["steps"] += 1
        return state, Credit(advantages=batch.token_rewards)


def test_hidden_and_overwritten_memory_is_caught() -> None:
    assert caught(test_advantages.test_state_is_json_and_resumes_exactly, Forgetful())
    assert caught(test_advantages.test_nothing_is_written, Overwriting())


class Undetached(Correction):
    def __call__(self, tokens: Any) -> torch.Tensor:
        return (tokens.old_logp_T - tokens.behavior_logp_T).exp()


class Blind(Correction):
    """Does not read what every correction declares as needed."""

    def __call__(self, tokens: Any) -> torch.Tensor:
        return torch.ones_like(tokens.logp_T)


def test_wrong_corrections_are_caught() -> None:
    assert caught(test_corrections.test_one_factor_a_token_not_differentiated, Undetached())
    assert caught(test_corrections.test_finite_at_extreme_gaps, Undetached())
    assert caught(test_corrections.test_tokens_that_nobody_sampled_are_left_alone, Undetached())
    assert caught(test_corrections.test_needs_are_exact, Blind())


class Dice(Curriculum):
    """Draws from the process's generator, and may come up short."""

    def select(self, state: Any, pool: Any, count: int, *, seed: int, step: int) -> Any:
        return state, [Pick(task=task) for task in random.sample(list(pool), min(count, len(pool)))]


class Counting(Curriculum):
    """Its position is in the object, not in the state."""

    position: ClassVar[list[int]] = [0]

    def select(self, state: Any, pool: Any, count: int, *, seed: int, step: int) -> Any:
        self.position[0] += count
        return state, [Pick(task=pool[(self.position[0] + i) % len(pool)]) for i in range(count)]


def test_wrong_curricula_are_caught() -> None:
    assert caught(test_curricula.test_same_seed_same_order, Dice())
    assert caught(test_curricula.test_chooses_as_many_as_asked_from_the_pool, Dice())
    assert caught(test_curricula.test_resumed_is_uninterrupted, Counting())


class Losing(Filter):
    def __call__(self, state: Any, groups: Any) -> Any:
        return state, list(groups[1:]), []


class Reversing(Filter):
    def __call__(self, state: Any, groups: Any) -> Any:
        return state, list(groups[::-1]), []


@pytest.mark.parametrize("member", [Losing(), Reversing()])
def test_wrong_filters_are_caught(member: Filter) -> None:
    assert caught(test_filters.test_every_trajectory_is_kept_or_dropped_with_a_reason, member)


class Explosive(Penalty):
    needs = frozenset({logp_of("reference")})

    def in_loss(self, tokens: Any) -> PerToken:
        return PerToken(loss_T=(tokens[logp_of("reference")] - tokens.logp_T).exp())

    def in_reward(self, trajectory: Any, signals: Any) -> Any:
        return trajectory.behavior_logp - signals[logp_of("reference")]


def test_wrong_penalties_are_caught() -> None:
    assert caught(test_penalties.test_finite_at_extreme_ratios, Explosive())
    assert caught(test_penalties.test_tokens_that_nobody_sampled_cost_no_reward, Explosive())
    assert caught(test_penalties.test_acts_somewhere, type("Idle", (Penalty,), {})())


class FirstCounts(Reducer):
    def weights(self, length_N: Any, group_N: Any) -> Any:
        return np.linspace(1, 0.5, len(length_N), dtype=np.float32)


class Unguarded(Reducer):
    def weights(self, length_N: Any, group_N: Any) -> Any:
        with np.errstate(divide="ignore"):
            return (1.0 / length_N / len(length_N)).astype(np.float32)


def test_wrong_reducers_are_caught() -> None:
    assert caught(test_reducers.test_gradient_does_not_depend_on_micro_batches, FirstCounts())
    assert caught(test_reducers.test_sequences_without_tokens_change_nothing, Unguarded())


class Rewriting(Rollout):
    """Makes ids from text again, and hands on trajectories without them being those that were sampled."""

    async def collect(self, task: Any, samplers: Any) -> Any:
        [group] = await Independent(n=2).collect(task, samplers)
        attempts = []
        for attempt in group:
            prompt, answer = attempt.segments
            answer = replace(answer, token_ids=samplers["policy"].encode(answer.text)[1:])
            attempts.append(replace(attempt, segments=(prompt, answer)))
        return [replace(group, trajectories=tuple(attempts))]


def test_ids_made_from_text_again_are_caught() -> None:
    law = test_rollouts.test_every_sampled_token_is_accounted_for
    assert caught(law, Rewriting())
    assert not caught(law, Independent(n=2))


class Curious(Rollout):
    """Requests log-probabilities from a model without declaring it."""

    async def collect(self, task: Any, samplers: Any) -> Any:
        await samplers["reference"].logp(np.arange(4))
        return await Independent(n=2).collect(task, samplers)


def test_signals_that_samplers_are_asked_for_in_secret_are_caught() -> None:
    law = test_rollouts.test_needs_are_exact
    assert caught(law, Curious())
    assert not caught(law, Independent(n=2))
