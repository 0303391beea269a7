"""Formulas of designed rewards, of suites and of regret against a second writing of each, on 3,000 random cases."""

import math
from itertools import combinations
from random import Random

import numpy as np
import pytest

from posttrain.components.diagnostics._reward_designs import HORIZONS, adapted, exprd, informativeness, teacher_of
from posttrain.components.diagnostics._shaped_learner import Episode, Shaping, _play, _slope
from posttrain.components.diagnostics._small_mdp import MDP, potential_SA
from posttrain.grading import suites
from posttrain.statistics.thought_regret import normalised_regret

CASES = 3000
pytestmark = pytest.mark.slow
GAMMA = 0.8


def process(rng: np.random.Generator, *, states: int = 3, rewarded: int = 3, certain: bool = False) -> MDP:
    """`states` of two actions before an end; `rewarded` of them have rewards, some of which are equal."""
    move = np.zeros((states + 1, 2, states + 1))
    for s in range(states):
        for a in range(2):
            ends = rng.choice(states + 1, 1 if certain else 2)
            move[s, a] = np.bincount(ends, weights=[1.0] if certain else [0.7, 0.3], minlength=states + 1)
    move[states, :, states] = 1.0
    reward = np.zeros((states + 1, 2))
    reward[rng.choice(states, rewarded, replace=False)] = rng.choice([-0.5, 0.25, 0.5, 1.0], (rewarded, 2))
    start = np.append(rng.dirichlet(np.ones(states)), 0.0)
    ends_S = np.arange(states + 1) == states
    return MDP(move_SAS=move, reward_SA=reward, start_S=start, terminal_S=ends_S, gamma=GAMMA, horizon=6)


def iterated(mdp: MDP, reward: np.ndarray) -> np.ndarray:
    """Values of the best actions, by value iteration."""
    q = np.zeros_like(reward)
    for _ in range(120):
        best = np.where(mdp.terminal_S, 0.0, q.max(1))
        q = np.where(mdp.terminal_S[:, None], 0.0, reward + GAMMA * mdp.move_SAS @ best)
    return q


def followed(mdp: MDP, policy: np.ndarray, reward: np.ndarray, steps: int) -> np.ndarray:
    """[S, A] expected return of an action and of `steps` rewards after it, under a policy; 0 in an end."""
    value = np.zeros(len(policy))
    for _ in range(steps):
        first = reward[np.arange(len(policy)), policy]
        onward = mdp.move_SAS[np.arange(len(policy)), policy]
        value = np.where(mdp.terminal_S, 0.0, first + GAMMA * onward @ value)
    return np.asarray(reward + GAMMA * mdp.move_SAS @ value)


class Second:
    """EXPRD once more, from simulated returns."""

    def __init__(self, mdp: MDP) -> None:
        self.mdp, q = mdp, iterated(mdp, mdp.reward_SA)
        self.inner = range(len(q) - 1)
        self.best = np.array([next(a for a in (0, 1) if q[s, a] >= q[s].max() - 1e-6) for s in range(len(q))])
        self.gap = {s: (q[s].max() - q[s].min()) / (1 + 1e-5) for s in self.inner if q[s].max() - q[s].min() > 1e-6}

    def differences(self, reward: np.ndarray, steps: int) -> np.ndarray:
        """[S] how much more the best action has than the other one."""
        q = followed(self.mdp, self.best, reward, steps)
        return np.array([q[s, self.best[s]] - q[s, 1 - self.best[s]] for s in self.inner])

    def short(self, reward: np.ndarray) -> np.ndarray:
        """[H, S] what is missing to the gap; of a state with equal actions nothing is."""
        rows = [self.differences(reward, steps) for steps in HORIZONS]
        return np.array(
            [[max(0.0, self.gap[s] - row[s]) if s in self.gap else 0.0 for s in self.inner] for row in rows]
        )

    def keeps(self, reward: np.ndarray) -> bool:
        wanted = np.array([self.gap.get(s, 0.0) for s in self.inner])
        return bool((self.differences(reward, 120) >= wanted - 1e-6).all())


def test_how_much_a_reward_informs_and_the_potential() -> None:
    """Row 204: minus the mean over horizons and states of what short returns lack; the optimal advantage."""
    rng = np.random.default_rng(204)
    for _ in range(CASES // 10):
        mdp = process(rng)
        second, teacher = Second(mdp), teacher_of(mdp, 1.0)
        reachable = mdp.reachable_S()[:-1]
        for _ in range(10):
            reward = np.where(mdp.terminal_S[:, None], 0.0, rng.uniform(-1, 1, mdp.reward_SA.shape))
            wanted = -second.short(reward)[:, reachable].mean()
            assert informativeness(teacher, reward) == pytest.approx(wanted, abs=1e-6)
        value = iterated(mdp, mdp.reward_SA).max(1)
        shaped = mdp.reward_SA + GAMMA * mdp.move_SAS @ value - value[:, None]
        assert potential_SA(mdp)[:-1] == pytest.approx(shaped[:-1], abs=1e-6)


def corners(lines: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """[M, D] all points in which D of the hyperplanes line . x = limit meet."""
    chosen = np.array(list(combinations(range(len(lines)), lines.shape[1])))
    sides, ends = lines[chosen], limits[chosen]
    fine = np.abs(np.linalg.det(sides)) > 1e-9
    return np.asarray(np.linalg.solve(sides[fine], ends[fine][..., None])[..., 0])


def test_the_most_informative_reward_by_its_corners() -> None:
    """Row 204: rewards of one state are two numbers; the best one is where two of all lines with a bend meet."""
    pytest.importorskip("scipy")
    rng = np.random.default_rng(2040)
    for _ in range(CASES // 20):
        mdp, price = process(rng, rewarded=1), float(rng.choice([0.0, 1e-3, 0.2]))
        if not mdp.reachable_S()[:-1].all():
            continue
        second, [own] = Second(mdp), np.flatnonzero(mdp.reward_SA.any(1))
        found, chosen = exprd(teacher_of(mdp, 2.0), 1, price)
        assert chosen == [own] and not np.delete(found, own, 0).any() and np.abs(found).max() <= 2 + 1e-9
        units = [np.zeros_like(mdp.reward_SA) for _ in range(2)]
        for a, unit in enumerate(units):
            unit[own, a] = 1.0
        slopes_HS2 = np.array([[second.differences(unit, h) for unit in units] for h in (*HORIZONS, 120)]).swapaxes(
            1, 2
        )
        gap_S = np.array([second.gap.get(s, 0.0) for s in second.inner])
        lines = np.concatenate([slopes_HS2.reshape(-1, 2), np.eye(2), np.eye(2), np.eye(2)])
        limits = np.concatenate([np.tile(gap_S, len(HORIZONS) + 1), np.zeros(2), np.full(2, 2.0), np.full(2, -2.0)])
        points = corners(lines, limits)
        fits = (points @ slopes_HS2[-1].T >= gap_S - 1e-7).all(1) & (np.abs(points) <= 2 + 1e-7).all(1)
        worse_S = np.array([s in second.gap for s in second.inner])
        short = np.maximum(0.0, gap_S - np.einsum("hsa,pa->phs", slopes_HS2[:-1], points)) * worse_S
        value = -short.mean((1, 2)) - price * np.abs(points).sum(1)
        assert second.keeps(found)
        reached = -second.short(found).mean() - price * np.abs(found).sum()
        assert reached == pytest.approx(value[fits].max(), abs=1e-5)


def test_more_states_are_added_greedily() -> None:
    """Row 204: nothing that is drawn in the same states and keeps the gaps informs more, and equals stay equals."""
    pytest.importorskip("scipy")
    rng = np.random.default_rng(2041)
    for _ in range(CASES // 300):
        mdp = process(rng, states=4, rewarded=1)
        second, teacher = Second(mdp), teacher_of(mdp, 1.0)
        reward, chosen = exprd(teacher, 2, 0.0)
        assert second.keeps(np.where(mdp.reachable_S()[:, None], reward, mdp.reward_SA))
        mine = informativeness(teacher, reward)
        assert mine >= informativeness(teacher, mdp.reward_SA) - 1e-9
        for _ in range(100):
            other = np.zeros_like(reward)
            other[chosen] = np.clip(reward[chosen] + rng.normal(0, 0.2, (len(chosen), 2)), -1, 1)
            if second.keeps(np.where(mdp.reachable_S()[:, None], other, mdp.reward_SA)):
                assert informativeness(teacher, other) <= mine + 1e-6


def test_the_adaptive_reward_by_its_corners() -> None:
    """Row 204: of two states' four numbers the best corner, of a sum that is written out."""
    pytest.importorskip("scipy")
    rng = np.random.default_rng(2042)
    for _ in range(CASES // 30):
        mdp = process(rng, states=2, rewarded=2)
        if not mdp.reachable_S()[:-1].all():
            continue
        second, policy = Second(mdp), rng.dirichlet([1, 1], 3)
        q = iterated(mdp, mdp.reward_SA)
        visits = {}
        for name, own in (("teacher", np.eye(2)[second.best]), ("learner", policy)):
            chance, total = mdp.start_S.copy(), np.zeros(3)
            for t in range(150):
                total += (1 - GAMMA) * GAMMA**t * chance
                chance = np.einsum("s,sa,sat->t", chance * ~mdp.terminal_S, own, mdp.move_SAS)
            visits[name] = total

        def raised(reward: np.ndarray, q=q, policy=policy, visits=visits) -> float:  # type: ignore[no-untyped-def]
            total = 0.0
            for s in range(2):
                centre = {name: float(policy[s] @ x[s]) for name, x in (("A", q - q.max(1)[:, None]), ("R", reward))}
                for a in range(2):
                    more = (q[s, a] - q[s].max() - centre["A"]) * (reward[s, a] - centre["R"])
                    total += visits["teacher"][s] * visits["learner"][s] * policy[s, a] * policy[s, a] * more
            return total

        units = np.eye(4).reshape(4, 2, 2)
        padded = [np.vstack([unit, np.zeros((1, 2))]) for unit in units]
        slope = np.array([second.differences(unit, 120) for unit in padded]).T
        gap_S = np.array([second.gap.get(s, 0.0) for s in second.inner])
        points = corners(
            np.concatenate([slope, np.eye(4), np.eye(4)]), np.concatenate([gap_S, np.full(4, 1.0), np.full(4, -1.0)])
        )
        fits = (points @ slope.T >= gap_S - 1e-7).all(1) & (np.abs(points) <= 1 + 1e-7).all(1)
        weight = np.array([raised(unit) for unit in padded])
        found = adapted(teacher_of(mdp, 1.0), policy)
        assert second.keeps(found)
        assert raised(found) == pytest.approx((points[fits] @ weight).max(), abs=1e-6)


def test_what_a_learner_adds_by_itself() -> None:
    """Row 204, ExploRS: episodes are played again by hand, with the counts of states that were left."""
    rng = np.random.default_rng(2043)
    for _ in range(CASES // 30):
        mdp = process(rng, certain=True)
        shaping, policy = Shaping(mdp, 2, learned=True, bonus=True), rng.dirichlet([1, 1], (2, 4))
        given = rng.normal(size=(2, 4, 2))
        left, phi, value = np.zeros((2, 4)), np.zeros((2, 4, 2)), np.zeros((2, 4))
        for _ in range(3):
            draws = [np.random.default_rng(rng.integers(1 << 30)) for _ in range(2)]
            played = [_play(mdp, policy, given, shaping, draws) for _ in range(5)]
            gains = [_replayed(mdp, own, given, phi, left) for own in played]
            pushes, gaps, steps = np.zeros_like(phi), np.zeros_like(value), np.zeros(2)
            slope = np.zeros_like(phi)
            for own, (shaped, original) in zip(played, gains, strict=True):
                for n, t in zip(*np.nonzero(own.live_NT), strict=True):
                    s, a = own.state_NT[n, t], own.action_NT[n, t]
                    assert own.return_NT[n, t] == pytest.approx(shaped[n, t])
                    gap = original[n, t] - value[n, s]
                    push = np.eye(2)[a] - policy[n, s]
                    pushes[n, s] += 0.01 * policy[n, s, a] * gap * push
                    slope[n, s] += shaped[n, t] * push
                    gaps[n, s] += gap
                    steps[n] += 1
            assert _slope(policy, played) == pytest.approx(slope / np.maximum(steps, 1)[:, None, None])
            shaping.update(played)
            phi += pushes
            value += 0.01 * gaps / np.maximum(steps, 1)[:, None]
            assert shaping.phi_NSA == pytest.approx(phi) and shaping.value_NS == pytest.approx(value)
            assert shaping.left_NS == pytest.approx(left)


def _replayed(
    mdp: MDP, own: Episode, given: np.ndarray, phi: np.ndarray, left: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns of the shaped and of the original reward; counts of left states go on in `left`."""
    shaped, original = np.zeros(own.live_NT.shape), np.zeros(own.live_NT.shape)
    for n, row in enumerate(own.live_NT):
        for t in np.flatnonzero(row):
            s, a = own.state_NT[n, t], own.action_NT[n, t]
            onward = int(mdp.move_SAS[s, a].argmax())
            bonus = 0.0 if mdp.terminal_S[onward] else 1 / math.sqrt(1 + left[n, onward])
            left[n, s] += 1
            for before in range(t + 1):
                shaped[n, before] += GAMMA ** (t - before) * (given[n, s, a] + phi[n, s, a] + bonus)
                original[n, before] += GAMMA ** (t - before) * mdp.reward_SA[s, a]
    return shaped, original


def test_regret_of_thoughts() -> None:
    """Row 39: 1 less the area under a line from (0, 0) through all points, on a fine grid of whole tokens."""
    rng = Random(39)
    for _ in range(CASES):
        tokens = sorted(rng.sample(range(1, 60), rng.randint(0, 6)))
        success = [rng.random() for _ in tokens]
        limit = rng.randint(1, 60)
        height = np.interp(np.arange(limit + 1), [0, *tokens], [0.0, *success])
        area = float((height[1:] + height[:-1]).sum() / 2)
        assert normalised_regret(tokens, success, limit) == pytest.approx(1 - area / limit)


def test_metrics_of_suites() -> None:
    """Row 286: detection, verifier accuracy, distinct patterns, area, n_eff and the formula of saturation."""
    rng = Random(286)
    for _ in range(CASES):
        tests, wrong = rng.randint(1, 6), rng.randint(1, 6)
        table = [[rng.random() < rng.choice((0.1, 0.5)) for _ in range(wrong)] for _ in range(tests)]
        kills, columns = np.array(table, bool), list(zip(*table, strict=True))
        assert suites.detection_rate(kills) == pytest.approx(sum(map(any, columns)) / wrong)
        assert suites.verifies(kills) == all(map(any, columns))
        distinct = {tuple(row) for row in table if sum(row)}
        assert suites.patterns(kills) == len(distinct)
        assert suites.diversity(kills) == pytest.approx(len(distinct) / tests)
        curve, fewest = [rng.random() for _ in range(tests)], rng.randint(1, tests)
        parts = [(a + b) / 2 for a, b in zip(curve[fewest - 1 :], curve[fewest:], strict=False)]
        wanted = sum(parts) / (tests - fewest) if tests > fewest else curve[-1]
        assert suites.area(curve, fewest) == pytest.approx(wanted)
        varied = [row for row in table if 0 < sum(row) < wrong]
        pairs = [_correlation(a, b) for a, b in combinations(varied, 2)]
        rho = max(0.0, sum(pairs) / len(pairs)) if pairs else 0.0
        assert suites.correlation(kills) == pytest.approx(rho, abs=1e-9)
        p = sum(map(sum, table)) / (tests * wrong)
        assert suites.effective(tests, rho) == pytest.approx(tests / (1 + (tests - 1) * rho))
        assert suites.saturation(p, tests, rho) == pytest.approx(1 - (1 - p) ** (tests / (1 + (tests - 1) * rho)))


def _correlation(a: list[bool], b: list[bool]) -> float:
    n, x, y = len(a), sum(a), sum(b)
    both = sum(p and q for p, q in zip(a, b, strict=True))
    return (n * both - x * y) / math.sqrt(x * (n - x) * y * (n - y))
