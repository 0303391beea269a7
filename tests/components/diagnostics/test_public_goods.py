"""Efforts for a common result: payoffs and induction by hand, tables, networks, and writers that are models."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics._decoding_nets import Agent, features, sampling_of
from posttrain.components.diagnostics._goods import Payoff, equilibrium, learnt
from posttrain.components.diagnostics.public_goods import PublicGoods
from posttrain.components.rewards.match import Match
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.engines.native import Native
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy

LEVELS = (0.0, 0.5, 1.0)


def test_payoffs_by_hand() -> None:
    """F = .75, below the benchmark: 1.8 x .75 / 2 - 1.5 = -.825 for both; cost .5 c^2, synergy 1.5 x 1 x .5."""
    assert Payoff().of([0.5, 1.0]).tolist() == pytest.approx([-0.825 - 0.125, -0.825 - 0.5 + 0.75])
    assert Payoff().of([0.5, 1.0], quality=0.85).tolist() == pytest.approx([0.765 - 0.125, 0.765 - 0.5 + 0.75])
    assert Payoff().of([0.0, 0.0, 0.0]).tolist() == [-1.5] * 3, "no effort costs the penalty alone"
    assert Payoff(penalty=0.0).of([1.0]).tolist() == pytest.approx([1.8 - 0.5])


@pytest.mark.parametrize(
    ("payoff", "agents", "effort"),
    [
        (Payoff(), 3, (1.0, 1.0, 1.0)),
        (Payoff(cost=0.9, synergy=0.0, penalty=0.0), 3, (0.0, 0.0, 0.0)),
        (Payoff(cost=0.9, penalty=0.0), 3, (0.5, 0.5, 0.5)),
        (Payoff(cost=0.9, synergy=0.0), 3, (1.0, 1.0, 1.0)),
        (Payoff(), 4, (0.5, 1.0, 1.0, 1.0)),
    ],
)
def test_backward_induction(payoff: Payoff, agents: int, effort: tuple[float, ...]) -> None:
    found = equilibrium(payoff, LEVELS, agents)
    assert found.effort == effort and found.unique
    assert found.payoff == pytest.approx(payoff.of(effort).tolist())


@pytest.mark.parametrize(("agents", "levels"), [(2, LEVELS), (3, (0.0, 1.0))])
def test_backward_induction_is_the_profile_from_which_no_agent_departs_after_any_history(
    agents: int, levels: tuple[float, ...]
) -> None:
    """Of all strategies of all agents: those that are best replies in every subgame, with payoffs drawn at random."""
    before = [list(itertools.product(levels, repeat=agent)) for agent in range(agents)]
    strategies = [
        [dict(zip(seen, own, strict=True)) for own in itertools.product(levels, repeat=len(seen))] for seen in before
    ]

    def path(profile: Sequence[Mapping[tuple[float, ...], float]], history: tuple[float, ...]) -> tuple[float, ...]:
        while len(history) < agents:
            history = (*history, profile[len(history)][history])
        return history

    def departs(payoff: Payoff, profile: Sequence[Mapping[tuple[float, ...], float]]) -> bool:
        """Whether an agent has a better effort after some history, with all after it as they are."""
        for agent, seen in enumerate(before):
            for history in seen:
                own = payoff.of(path(profile, history))[agent]
                if any(payoff.of(path(profile, (*history, level)))[agent] > own + 1e-9 for level in levels):
                    return True
        return False

    rng = np.random.default_rng(7)
    seen_efforts = set()
    for _ in range(8):
        cost, synergy, share, penalty = rng.uniform(0.0, 2.0, 4).tolist()
        payoff = Payoff(cost=cost, synergy=synergy, share=share, penalty=penalty, benchmark=0.6)
        stable = [profile for profile in itertools.product(*strategies) if not departs(payoff, profile)]
        found = equilibrium(payoff, levels, agents)
        assert {path(profile, ()) for profile in stable} == {found.effort} and found.unique
        seen_efforts.add(found.effort)
    assert len(seen_efforts) > 1, "the payoffs decide"


def test_the_penalty_alone_is_an_equilibrium_at_a_loss_and_ties_are_not_unique() -> None:
    found = equilibrium(Payoff(cost=0.9, synergy=0.0), LEVELS, 3)
    assert max(found.payoff) < 0.0
    assert not equilibrium(Payoff(cost=0.0, synergy=0.0, share=0.0, penalty=0.0), LEVELS, 2).unique


def test_tables_learn_full_effort_and_none() -> None:
    full = learnt(Payoff(cost=0.9), LEVELS, 3, seed=0, rollouts=1500)
    none = learnt(Payoff(cost=0.9, synergy=0.0, penalty=0.0), LEVELS, 3, seed=0, rollouts=1500)
    assert full.shape == (150, 3) and set(full.reshape(-1).tolist()) <= set(LEVELS)
    assert full.mean(0).min() > 0.9 and none.mean(0).max() < 0.1
    assert learnt(Payoff(), LEVELS, 2, seed=1, rollouts=100, full=False).shape == (10, 2)


def test_parameters_stay_in_their_ranges() -> None:
    low, middle, high = (sampling_of([z] * 4, (100, 400)) for z in (-1e6, 0.0, 1e6))
    assert (low.temperature, low.top_p, low.top_k, low.max_tokens) == pytest.approx((0.3, 0.6, 20, 100))
    assert (middle.temperature, middle.top_p, middle.top_k, middle.max_tokens) == pytest.approx((0.75, 0.775, 50, 250))
    assert (high.temperature, high.top_p, high.top_k, high.max_tokens) == pytest.approx((1.2, 0.95, 80, 400))
    seen_D = features(np.array([3, 67, 4]), 1, 2)  # 3 and 67 are the same modulo 64
    assert seen_D[[3, 4]].tolist() == pytest.approx([2 / 5**0.5, 1 / 5**0.5]) and seen_D[-2:].tolist() == [0.0, 1.0]
    assert features(np.array([], np.int64), 0, 1).tolist() == [0.0] * 64 + [1.0]


def test_a_network_learns_the_parameter_that_is_rewarded() -> None:
    agent = Agent(width=3, generator=torch.Generator().manual_seed(0))
    seen_BD = torch.ones(32, 3)
    before = float(agent.act(seen_BD, greedy=True)[0, 0])
    for _ in range(15):
        action_BK = agent.act(seen_BD)
        assert agent.learn(seen_BD, action_BK, -action_BK[:, 0]) < 1.0
    assert float(agent.act(seen_BD, greedy=True)[0, 0]) < before - 0.1


def test_the_loss_by_hand() -> None:
    """One action at the mean, whose old log-density was lower by log 2: the ratio 2 is clipped to 1.2 with A > 0."""
    agent = Agent(width=1, generator=torch.Generator().manual_seed(0))
    seen_BD = torch.zeros(1, 1)
    mean_BK, value = agent.act(seen_BD, greedy=True), agent.value(seen_BD).item()
    old_B = agent.logp(seen_BD, mean_BK).detach() - np.log(2)
    entropy = 4 * (np.log(0.5) + 0.5 * np.log(2 * np.pi * np.e))
    for advantage, taken in ((1.0, 1.2), (-1.0, -2.0)):
        loss = agent.loss(seen_BD, mean_BK, torch.ones(1), torch.tensor([advantage]), old_B)
        assert loss.item() == pytest.approx(-taken + 0.5 * (value - 1) ** 2 - 0.02 * entropy, rel=1e-4)


def test_models_write_one_after_the_other_and_a_run_repeats(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=256)
    subjects = [
        Subject(
            name=f"tiny {i}",
            load=lambda: load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu")),
            serve=lambda policy: Native().serve(policy, 0),
        )
        for i in range(2)
    ]
    diagnostic = PublicGoods(tasks=Arithmetic(size=4), reward=Match(), rounds=1, batch=2, tokens=(2, 4))
    finding = diagnostic.examine(*subjects)
    assert finding.values["before"]["effort"] == [0.0, 0.0] and finding.values["before"]["payoff"] == [-1.5, -1.5]
    assert finding.values["tables"]["equilibrium"] == [1.0, 1.0] and len(finding.lines) == 4
    assert diagnostic.examine(*subjects).values == finding.values


def test_what_a_writer_reads() -> None:
    [task] = Arithmetic(size=1).load()
    own = PublicGoods(tasks=Arithmetic(size=1), reward=Match())
    full = PublicGoods(tasks=Arithmetic(size=1), reward=Match(), view="full")
    assert own._shown(task, []) == task.prompt
    assert own._shown(task, ["a", "b"]) == f"{task.prompt}b\n{task.prompt}"
    assert full._shown(task, ["a", "b"]) == f"{task.prompt}a\n{task.prompt}b\n{task.prompt}"
