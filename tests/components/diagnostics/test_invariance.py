"""Designed rewards: values, potentials and gaps by hand, what the programs find, and a learner's own shaping."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics._reward_designs import HORIZONS, adapted, exprd, informativeness, teacher_of
from posttrain.components.diagnostics._shaped_learner import Episode, Shaping, learn
from posttrain.components.diagnostics._small_mdp import MDP, chain, optimal_SA, potential_SA, rooms
from posttrain.components.diagnostics.invariance import Invariance, changed_states
from posttrain.errors import UserError


def found(*names: str, **settings: Any) -> dict[str, Any]:
    def unused(*_: Any) -> Any:
        raise AssertionError("no model is loaded")

    subjects = [Subject(name=name, load=unused, serve=unused) for name in names]
    given = {"seeds": 2, "episodes": 20, **settings}
    return dict(Invariance(**given).examine(*subjects).values["found"])


def two_states(gamma: float = 0.5) -> MDP:
    """State 0: action 0 stays for 1, action 1 goes to state 1 for 0. State 1: both go to the end, for 4."""
    move = np.zeros((3, 2, 3))
    move[0, 0, 0] = move[0, 1, 1] = move[1, :, 2] = move[2, :, 2] = 1.0
    reward = np.array([[1.0, 0.0], [4.0, 4.0], [0.0, 0.0]])
    start, ends = np.eye(3)[0], np.array([False, False, True])
    return MDP(move_SAS=move, reward_SA=reward, start_S=start, terminal_S=ends, gamma=gamma, horizon=4)


def test_values_by_hand() -> None:
    # staying for ever has 1 / (1 - .5) = 2, going on 0 + .5 * 4 = 2: both are optimal; 1 + .5 * 2 = 2 as well
    assert two_states().q_SA().tolist() == [[2.0, 2.0], [4.0, 4.0], [0.0, 0.0]]
    assert optimal_SA(two_states().q_SA())[0].all()
    patient = two_states(0.9)  # going on 3.6 and no more; staying 1 / (1 - .9) = 10
    assert patient.q_SA()[0].tolist() == pytest.approx([10.0, 3.6]) and patient.best() == pytest.approx(10.0)
    half = np.full((3, 2), 0.5)  # v = .5 (1 + .5 v) + .5 (.5 * 4): v = 2
    assert two_states().value(half) == pytest.approx(2.0)
    # visits of a random walk: 1 / (1 - .25) in state 0, half of .5 of them in state 1, half of these at the end
    assert (two_states().occupancy_S(half) / 0.5).tolist() == pytest.approx([4 / 3, 1 / 3, 1 / 6])


def test_any_potential_keeps_what_is_optimal_and_telescopes() -> None:
    mdp, rng = rooms(), np.random.default_rng(0)
    for _ in range(20):
        potential_S = np.where(mdp.terminal_S, 0.0, rng.normal(size=len(mdp.start_S)))
        shaped = mdp.reward_SA + mdp.gamma * mdp.move_SAS @ potential_S - potential_S[:, None]
        shaped[mdp.terminal_S] = 0.0
        assert changed_states(mdp, shaped) == 0
        # discounted terms add up to minus the first potential
        inner = ~mdp.terminal_S
        assert (mdp.q_SA() - mdp.q_SA(shaped))[inner] == pytest.approx(np.repeat(potential_S[:, None], 4, 1)[inner])
    assert changed_states(mdp, potential_SA(mdp)) == 0 and potential_SA(mdp).max() == pytest.approx(0.0)
    assert changed_states(mdp, -mdp.reward_SA) > 0


def test_informativeness_by_hand() -> None:
    """In the chain the other action loses two steps: gaps of the first H + 1 rewards are 0 far from the goal."""
    mdp = chain(1, 2, 0.0)  # cells 0 to 3, start 1, goal 3: values .99 and 1, gaps .99 - 0 and 1 - .99^2
    teacher = teacher_of(mdp, 10.0)
    assert teacher.gap_G.tolist() == pytest.approx([0.99, 1 - 0.99**2], rel=1e-4)
    short = teacher.difference_GR(1) @ mdp.reward_SA.ravel()
    assert short.tolist() == pytest.approx([0.99, 1.0])  # two rewards: left of the goal the way back has none yet
    assert informativeness(teacher, mdp.reward_SA) == pytest.approx(0.0, abs=1e-9)
    nothing = informativeness(teacher, np.zeros_like(mdp.reward_SA))
    assert nothing == pytest.approx(-(0.99 + 1 - 0.99**2) / 2, rel=1e-4)  # all of the gap is missing, in each state
    assert len(HORIZONS) == 5


def test_designs_keep_the_gaps_and_say_more() -> None:
    pytest.importorskip("scipy")
    mdp = rooms(1)
    teacher = teacher_of(mdp, 10.0)
    reward, chosen = exprd(teacher, 3, 0.0)
    assert len(chosen) == 3 and np.abs(reward).max() <= 10.0 + 1e-9
    assert (np.abs(np.delete(reward, chosen, 0)) < 1e-12).all() and (mdp.reward_SA[chosen[0]] == 10.0).all()
    assert (teacher.difference_GR() @ reward.ravel() >= teacher.gap_G - 1e-5).all()
    assert changed_states(mdp, reward) == 0
    assert informativeness(teacher, reward) > informativeness(teacher, mdp.reward_SA)
    small, _ = exprd(teacher, 3, 100.0)  # a high price of rewards: no more than what the gaps need
    assert np.abs(small).sum() < np.abs(reward).sum()
    with pytest.raises(UserError, match="states is 0, and 1 states have a reward already"):
        exprd(teacher, 0, 0.0)
    with pytest.raises(UserError, match="largest is 1, and the process has a reward of 10"):
        teacher_of(mdp, 1.0)


def test_the_adaptive_reward_follows_the_learner() -> None:
    pytest.importorskip("scipy")
    mdp = chain(2, 3)
    teacher = teacher_of(mdp, 10.0)
    uniform = np.full(mdp.reward_SA.shape, 0.5)
    first = adapted(teacher, uniform)
    assert changed_states(mdp, first) == 0 and (teacher.difference_GR() @ first.ravel() >= teacher.gap_G - 1e-5).all()
    # where learner and teacher both are, the right action has as much more as the bounds allow
    assert first[2].tolist() == pytest.approx([-10.0, 10.0])
    # nothing that keeps the gaps raises the advantage more: the sum over states and actions, written once more
    q_SA = mdp.q_SA()
    advantage = q_SA - q_SA.max(1, keepdims=True)
    taught, seen = mdp.occupancy_S(np.eye(2)[optimal_SA(q_SA).argmax(1)]), mdp.occupancy_S(uniform)

    def raised(reward: np.ndarray) -> float:
        found = sum(
            taught[s]
            * seen[s]
            * 0.5
            * 0.5
            * (advantage[s, a] - advantage[s].mean())
            * (reward[s, a] - reward[s].mean())
            for s in range(1, 5)
            for a in range(2)
        )
        return float(found)

    assert raised(first) > raised(potential_SA(mdp)) and raised(first) > raised(mdp.reward_SA)
    assert raised(first) == pytest.approx(10.0 * raised(np.sign(np.eye(2)[[1] * 6] - 0.5)))  # +-10 on each side


def test_designs_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(UserError, match=r"pip install 'posttrain\[designs\]', or leave out exprd and adaptive"):
        found("exprd")
    assert found("original")["original"]["kept"] == 1.0


def episode(policy: np.ndarray, original: list[float]) -> Episode:
    return Episode(
        state_NT=np.array([[0, 1]]),
        action_NT=np.array([[1, 0]]),
        live_NT=np.array([[True, True]]),
        return_NT=np.array([original]),
        original_NT=np.array([original]),
        policy_NSA=policy,
    )


def test_a_learners_own_shaping_by_hand() -> None:
    shaping = Shaping(two_states(), 1, learned=True, bonus=True)
    policy = np.array([[[0.75, 0.25], [0.5, 0.5], [0.5, 0.5]]])
    shaping.value_NS[0, 0] = 1.0
    shaping.update([episode(policy, [3.0, 4.0])])
    # state 0: .01 * pi(1) (3 - 1) (onehot - pi); state 1: .01 * .5 * 4 (onehot - pi); V by .01 gap / 2 steps
    assert shaping.phi_NSA[0].ravel().tolist() == pytest.approx([-0.00375, 0.00375, 0.01, -0.01, 0.0, 0.0])
    assert shaping.value_NS[0].tolist() == pytest.approx([1.0 + 0.01 * 2 / 2, 0.01 * 4 / 2, 0.0])
    assert shaping.bonus_NS()[0].tolist() == [1.0, 1.0, 0.0]
    shaping.left_NS[0, 0] = 3.0
    assert shaping.bonus_NS()[0].tolist() == [0.5, 1.0, 0.0]
    unrewarded = Shaping(two_states(), 1, learned=True, bonus=True)
    unrewarded.update([episode(policy, [0.0, 0.0])])  # never successful: the bonus alone acts
    assert not unrewarded.phi_NSA.any() and not unrewarded.value_NS.any()
    without = Shaping(two_states(), 1, learned=False, bonus=False)
    without.update([episode(policy, [3.0, 4.0])])
    assert not without.phi_NSA.any() and not without.bonus_NS().any()


def test_repetitions_do_not_depend_on_one_another() -> None:
    mdp = chain(2, 3)
    few, many = (
        learn(mdp, lambda _: mdp.reward_SA, seeds=seeds, episodes=20, rate=1.0, learned=True, bonus=True)
        for seeds in (2, 3)
    )
    assert many.value_NE[:2] == pytest.approx(few.value_NE) and many.value_NE.shape == (3, 2)


@pytest.mark.slow
def test_exploring_and_learning_find_what_is_far() -> None:
    rows = found("original", "explors", "potential", seeds=3, episodes=300)
    assert rows["original"]["share"]["mean"] < 0.5 < 0.7 < rows["explors"]["share"]["mean"]
    assert rows["potential"]["kept"] == 1.0 and rows["potential"]["changed"] == 0.0


def test_a_process_and_designs_of_ones_own(tmp_path: Path) -> None:
    mdp = two_states(0.9)
    given = {"transitions": mdp.move_SAS.tolist(), "reward": mdp.reward_SA.tolist(), "start": [1, 0, 0]}
    given |= {"terminal": [2], "gamma": 0.9, "horizon": 4}
    wrong = {"hasty": [[0, 5], [4, 4], [0, 0]], "same": mdp.reward_SA.tolist()}
    (tmp_path / "mine.json").write_text(json.dumps({**given, "designs": wrong}))
    rows = found("hasty", "same", process=str(tmp_path / "mine.json"))
    assert rows["hasty"]["changed"] == 1.0 and rows["same"]["kept"] == 1.0
    with pytest.raises(UserError, match="no design 'hastily'"):
        found("hastily", process=str(tmp_path / "mine.json"))
    (tmp_path / "bad.json").write_text(json.dumps({**given, "reward": [[-1.0, -1.0]] * 3}))
    with pytest.raises(UserError, match=r"the best return is -1.9, and shares of it"):
        found("original", process=str(tmp_path / "bad.json"))
    for change in ({"gamma": 1.0}, {"start": [1, 1, 0]}, {"reward": [[1, 2]]}, {"designs": {"a": [[1]]}}):
        (tmp_path / "bad.json").write_text(json.dumps({**given, **change}))
        with pytest.raises(UserError, match=r"bad\.json.*there must be transitions"):
            found("original", process=str(tmp_path / "bad.json"))
