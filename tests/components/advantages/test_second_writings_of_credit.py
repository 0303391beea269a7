"""The formulas of advantages and of their losses against a second writing of each, on 3,000 random cases."""

import math
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch

from posttrain.components.advantages.cgpo import CGPO
from posttrain.components.advantages.constrained import Constrained
from posttrain.components.advantages.gae import GAE
from posttrain.components.advantages.ordered import Ordered
from posttrain.components.advantages.termination import Termination
from posttrain.components.objectives.asaf import ASAF
from posttrain.components.objectives.pairwise import Pairwise
from posttrain.components.penalties.kl import KL
from posttrain.components.preferences.dpo import DPO
from posttrain.components.preferences.rpo import RPO
from posttrain.components.rewards.constraints import CALIBRATED, calibrated
from posttrain.components.rollouts import Continued, Shuffled
from posttrain.grading.pieces import KEYWORDS, ranges_of
from posttrain.signals import OLD_VALUE, logp_of
from posttrain.stages.rl.credit import token_rewards
from posttrain.stages.rl.spans import with_span_rewards
from posttrain.types import Batch, Group, Score, Segment, Task, Trajectory
from tests.builders import batch, tokens

CASES = 3000
GROUPS = 10
"""Groups, or rollouts, of one case: a batch that is estimated at once."""
pytestmark = pytest.mark.slow


def with_facts(given: Batch, facts: list[list[tuple[Any, ...]]]) -> Batch:
    groups = [
        replace(group, trajectories=tuple(replace(t, facts=own) for t, own in zip(group, row, strict=True)))
        for group, row in zip(given.groups, facts, strict=True)
    ]
    return replace(given, groups=tuple(groups))


def sizes(rng: Random) -> list[int]:
    return [rng.randint(1, 6) for _ in range(GROUPS)]


def firsts(advantage: Any, given: Batch) -> list[float]:
    return [float(own[0]) for own in advantage(advantage.start(), given)[1].advantages]


def test_progress_against_termination() -> None:
    """Row 39: alpha (R - J of those that answer at once) + outcome (R - mean of the group)."""
    rng = Random(39)
    for _ in range(CASES // GROUPS):
        rows = [[rng.choice((0.0, 1.0, 0.25)) for _ in range(size)] for size in sizes(rng)]
        once = [[rng.random() < 0.4 for _ in row] for row in rows]
        alpha, outcome = rng.choice((0.0, 1.0, 2.5)), rng.choice((0.0, 1.0))
        facts = [[(Continued(prefix_tokens=1, at_once=own),) for own in row] for row in once]
        found = iter(firsts(Termination(alpha=alpha, outcome=outcome), with_facts(batch(rows), facts)))
        for row, ends in zip(rows, once, strict=True):
            forced = [r for r, end in zip(row, ends, strict=True) if end] or row
            for r in row:
                wanted = alpha * (r - sum(forced) / len(forced)) + outcome * (r - sum(row) / len(row))
                assert next(found) == pytest.approx(wanted, abs=1e-6)


def test_episodes_of_thoughts() -> None:
    """Row 39: paragraphs, and the keywords that begin an episode unless the last one began two or one before."""
    rng, starts = Random(390), [*KEYWORDS, "so", "then", "waits", "hold on", "but"]
    for _ in range(CASES):
        paragraphs = [f"{rng.choice(starts).capitalize()} {number}." for number in range(rng.randint(0, 9))]
        text = "\n\n".join(paragraphs)
        episodes: list[list[str]] = []
        last = 0
        for number, paragraph in enumerate(paragraphs):
            begins = any(paragraph.lower().startswith(word) for word in KEYWORDS) and not number - last <= 2
            if begins or not episodes:
                episodes.append([])
                last = number
            episodes[-1].append(paragraph)
        assert [text[a:b] for a, b in ranges_of(text, "episodes", 99)] == ["\n\n".join(own) for own in episodes]


def test_bonus_for_order_on_the_advantage() -> None:
    """Row 143: GRPO's advantage, then alpha for each correct rollout of a task with p >= mu q."""
    rng = Random(143)
    for _ in range(CASES // GROUPS):
        rows = [[rng.choice((3.0, -0.5, -2.5, 1.5)) for _ in range(size)] for size in sizes(rng)]
        copies = [rng.choice((None, 0.0, 0.25, 0.5, 1.0)) for _ in rows]
        facts = [
            [() if q is None else (Shuffled(accuracy=q),) for _ in row] for q, row in zip(copies, rows, strict=True)
        ]
        given, mu = with_facts(batch(rows), facts), rng.choice((0.5, 0.8, 1.0))
        on_advantage = iter(firsts(Ordered(mu=mu), given))
        on_reward = iter(firsts(Ordered(mu=mu, where="reward"), given))
        for row, q in zip(rows, copies, strict=True):
            right = [r >= 1 for r in row]  # as `score` of the builders has it
            bonus = 0.1 if q is not None and sum(right) / len(row) >= mu * q - 1e-9 else 0.0
            more = [bonus * own for own in right]
            for value, extra in zip(_standard(row), more, strict=True):
                assert next(on_advantage) == pytest.approx(value + extra, abs=1e-5)
            for value in _standard([r + extra for r, extra in zip(row, more, strict=True)]):
                assert next(on_reward) == pytest.approx(value, abs=1e-5)


def _standard(row: list[float]) -> list[float]:
    mean = sum(row) / len(row)
    std = math.sqrt(sum((r - mean) ** 2 for r in row) / (len(row) - 1)) if len(row) > 1 else 0.0
    return [(r - mean) / (std + 1e-6) if std > 1e-9 else 0.0 for r in row]


def test_spans_at_tokens() -> None:
    """Row 216: a later segment of a reward replaces an earlier one at its token, rewards add, ends are clamped."""
    rng = Random(216)
    for _ in range(CASES):
        pieces = ["".join(rng.choices("ab. ", k=rng.randint(1, 4))) for _ in range(rng.randint(1, 6))]
        text = "".join(pieces)
        spans = []
        for part in "xyz"[: rng.randint(0, 3)]:
            ends = sorted(rng.randint(1, len(text) + 3) for _ in range(rng.randint(1, 4)))
            spans += [(0, end, rng.choice((0.3, -0.3, 0.5)), part) for end in ends]
        raw = np.zeros(len(pieces))
        for part in {own[3] for own in spans}:
            at_T = np.zeros(len(pieces))
            for _, end, reward, name in spans:
                if name == part:
                    before = np.cumsum([len(piece) for piece in pieces])
                    at_T[min(int((before < end).sum()), len(pieces) - 1)] = reward
            raw += at_T
        ids = np.arange(len(pieces))
        own = Segment(actor="policy", token_ids=ids, trained=True, text=text, logp=np.zeros(len(ids), np.float32))
        value = sum(reward for _, _, reward, _ in spans)
        rollout = Trajectory(
            task=Task(key="t", prompt="p"),
            segments=(Segment(actor="prompt", token_ids=np.array([0]), text="p"), own),
            stop_reason="stop",
            score=Score(value=value, status="ok", spans=tuple(spans)),
        )
        tokenizer = SimpleNamespace(token_bytes=lambda token, pieces=pieces: pieces[token].encode())
        models: Any = {"policy": SimpleNamespace(tokenizer=tokenizer)}
        [group] = with_span_rewards([Group(trajectories=(rollout,))], models)
        reference = np.array([rng.uniform(-2, 0) for _ in ids], np.float32)
        penalty = KL(coefficient=0.3, form="k1", where="reward").in_reward(rollout, {logp_of("reference"): reference})
        assert penalty is not None
        found = token_rewards(group.trajectories[0], [penalty])
        assert found == pytest.approx(raw - 0.3 * (0.0 - reference), abs=1e-5)


def test_sub_sentences() -> None:
    """Row 216: cuts after , ; ! ? with 5 words or more to come; a piece below 5 words goes to the one before, or after
    if it is the first.
    """
    rng = Random(2160)
    for _ in range(CASES):
        words = [f"w{i}{rng.choice(('', '', '', ',', ';'))}" for i in range(rng.randint(1, 24))]
        pieces: list[list[str]] = [[]]
        for number, word in enumerate(words):
            pieces[-1].append(word)
            if word[-1] in ",;!?" and len(words[number + 1 :]) >= 5:
                pieces.append([])
        while len(pieces) > 1 and len(pieces[0]) < 5:
            pieces[:2] = [pieces[0] + pieces[1]]
        while (short := next((i for i, own in enumerate(pieces) if i and len(own) < 5), 0)) > 0:
            pieces[short - 1 : short + 1] = [pieces[short - 1] + pieces[short]]
        text = " ".join(words)
        assert [text[a:b].split() for a, b in ranges_of(text, "sub_sentences", 99)] == pieces


def test_whitening_and_the_recursion_at_padding() -> None:
    """Row 216 as a padded table, as the release has it: rewards whitened with their mean kept, then GAE."""
    draw = np.random.default_rng(2161)
    for case in range(CASES // GROUPS):
        lengths = draw.integers(1, 7, GROUPS)
        if case == 0:
            lengths[:] = 1
        valid = np.arange(lengths.max()) < lengths[:, None]
        reward, value = (np.where(valid, draw.normal(size=valid.shape), 0).astype(np.float32) for _ in range(2))
        reward *= case % 7 != 1  # all equal
        divisor: Literal["std", "sqrt_std"] = "std" if case % 2 else "sqrt_std"
        padded, lam = bool(case % 3), float(draw.choice([0.0, 0.95, 1.0]))
        std = math.sqrt(reward[valid].astype(float).var(ddof=1) + 1e-8)
        scale = std if divisor == "std" else math.sqrt(std)
        mean = reward[valid].astype(float).mean()
        white = (reward - mean) / scale + mean
        white = white if padded else white * valid  # mask_after_whiten
        following, advantage = np.zeros(GROUPS), np.zeros(valid.shape)
        for t in reversed(range(valid.shape[1])):
            later = value[:, t + 1] if t + 1 < valid.shape[1] else 0.0
            following = white[:, t] + later - value[:, t] + lam * following
            advantage[:, t] = following
        flat = advantage[valid]
        std = math.sqrt(flat.var(ddof=1) + 1e-8)
        wanted = (flat - flat.mean()) / (std if divisor == "std" else math.sqrt(std))
        given = batch(
            [[0.0]] * GROUPS,
            token_rewards=[row[own].tolist() for row, own in zip(reward, valid, strict=True)],
            signals={OLD_VALUE: [row[own].tolist() for row, own in zip(value, valid, strict=True)]},
        )
        _, credit = GAE(lam=lam, whiten_rewards=True, divisor=divisor, padded=padded)({}, given)
        assert np.concatenate(credit.advantages) == pytest.approx(wanted, abs=2e-3 if std < 1e-3 else 1e-4)
        assert np.concatenate(credit.value_targets) == pytest.approx((advantage + value)[valid], abs=1e-4)


def _constrained(rewards: list[list[float]], kept: list[list[bool]], kl: list[list[float]]) -> Batch:
    """Rollouts with k, calibrated rewards, and 0 where a constraint is broken."""
    plain = batch([[c * own for c, own in zip(*row, strict=True)] for row in zip(rewards, kept, strict=True)])
    groups = []
    for group, row in zip(plain.groups, rewards, strict=True):
        parts = [{CALIBRATED: Score(value=c, status="ok")} for c in row]
        scored = [t.scored(replace(t.score, parts=own)) for t, own in zip(group, parts, strict=True) if t.score]
        groups.append(replace(group, trajectories=tuple(scored)))
    given = replace(plain, groups=tuple(groups))
    flat = [k for row in kl for k in row]
    reference = tuple(t.behavior_logp - np.float32(k / 2) for t, k in zip(given.trajectories, flat, strict=True))
    return replace(given, signals={logp_of("reference"): reference})


def test_three_rules_of_constrained_policies() -> None:
    """Row 287, with violators masked by leaving them out."""
    rng = Random(287)
    for _ in range(CASES // GROUPS):
        open_ = [[rng.uniform(-3, 3) for _ in range(size)] for size in sizes(rng)]
        base = [rng.uniform(-3, 3) for _ in open_]
        c = [[1 / (1 + math.exp(b - r)) for r in row] for row, b in zip(open_, base, strict=True)]
        for row, own, b in zip(open_, c, base, strict=True):
            assert [calibrated(r, b) for r in row] == pytest.approx(own)
        kept = [[rng.random() < 0.6 for _ in row] for row in c]
        kl = [[rng.choice((0.0, -3.0, 4.0, 9.0, 30.0)) for _ in row] for row in c]
        given = _constrained(c, kept, kl)
        found = {rule: firsts(CGPO(rule=rule), given) for rule in ("crpg", "crraft", "codpo")}
        weights, imitated, pairs = list[float](), list[float](), list[float]()
        for values, passed, far in zip(c, kept, kl, strict=True):
            factor = [min(1.0, max(0.0, 1 - k / 10)) for k in far]
            weights += [v * f if p else 0.0 for v, f, p in zip(values, factor, passed, strict=True)]
            near = {i: values[i] for i in range(len(values)) if passed[i] and far[i] <= 10}
            best = max(near, key=lambda i: near[i], default=-1)
            imitated += [v if i == best else 0.0 for i, v in enumerate(values)]
            right = [i for i in range(len(values)) if passed[i]]
            wrong = [i for i in range(len(values)) if not passed[i]] or right
            chosen = max(right, key=lambda i: values[i], default=-1)
            rejected = min(wrong, key=lambda i: values[i])
            real = chosen >= 0 and chosen != rejected
            pairs += [real * float((i == chosen) - (i == rejected)) for i in range(len(values))]
        mean = sum(weights) / len(weights)
        assert found["crpg"] == pytest.approx([w - mean for w in weights], abs=1e-5)
        assert found["crraft"] == pytest.approx(imitated, abs=1e-6) and found["codpo"] == pairs


def test_preference_loss_of_constrained_policies() -> None:
    """Row 287: -log sigmoid(beta h) - lambda / |y_c| log p(y_c) of the chosen and the rejected one."""
    rng = Random(2870)
    loss = Pairwise(loss=RPO(loss=DPO(beta=0.1), eta=5.0, length="mean", times_beta=False), pairs="extremes")
    for _ in range(CASES // GROUPS):
        rows, reference, advantage, group, wanted = [], [], [], list[int](), list[float]()
        for number in range(GROUPS):
            own = [[-rng.expovariate(1) for _ in range(rng.randint(1, 4))] for _ in range(rng.randint(2, 4))]
            other = [[p - rng.gauss(0, 1) for p in row] for row in own]
            chosen, rejected = rng.sample(range(len(own)), 2)
            paired = rng.random() < 0.8
            signs = [float((i == chosen) - (i == rejected)) * paired for i in range(len(own))]
            rows += own
            reference += other
            advantage += [[sign] * len(row) for sign, row in zip(signs, own, strict=True)]
            group += [number] * len(own)
            h = sum(own[chosen]) - sum(other[chosen]) - (sum(own[rejected]) - sum(other[rejected]))
            value = math.log1p(math.exp(-0.1 * h)) - 5.0 / len(own[chosen]) * sum(own[chosen])
            wanted += [value if paired else 0.0] * sum(map(len, own))
        given = tokens(rows, advantage=advantage, reference_logp={"reference": reference}, group_N=group)
        assert loss(given).loss_T.detach().numpy() == pytest.approx(wanted, rel=1e-5, abs=1e-6)


def test_learned_weights_of_behaviors() -> None:
    """Row 205: shares by softmax, their loss by torch's gradient, Adam with eps 1e-5, the last 40 rollouts."""
    rng, steps = Random(205), 30
    for case in range(CASES // steps):
        low = {name: rng.random() for name in "ab"[: rng.randint(0, 2)]}
        high = {name: rng.random() for name in "cd"[: rng.randint(0, 2)]}
        bootstrap = "a" if "a" in low and case % 2 else None
        advantage = Constrained(at_least=low, at_most=high, bootstrap=bootstrap, rate=0.1, window=40)
        state, bounds = (
            advantage.start(),
            [*((1.0, *own) for own in low.items()), *((-1.0, *own) for own in high.items())],
        )
        z = torch.full((1 + len(bounds),), 0.02, dtype=torch.float64, requires_grad=True)
        adam, seen = torch.optim.Adam([z], lr=0.1, eps=1e-5), {name: list[float]() for _, name, _ in bounds}
        for _ in range(steps):
            rewards = [[float(rng.random() < 0.5) for _ in range(rng.randint(1, 4))] for _ in range(3)]
            flat = [r for row in rewards for r in row]
            costs = {name: [rng.choice((None, 0.0, 1.0, 1.0)) for _ in flat] for name in seen}
            state, credit = advantage(state, _with_parts(rewards, costs))
            for name, own in costs.items():
                seen[name] = [*seen[name], *(x for x in own if x is not None)][-40:]
            share = torch.softmax(z, 0)
            gaps = [
                sign * share[k + 1] * (sum(seen[name]) / len(seen[name]) - rate)
                for k, (sign, name, rate) in enumerate(bounds)
                if seen[name]
            ]
            adam.zero_grad()
            (torch.stack(gaps).sum() if gaps else 0.0 * z.sum()).backward()
            adam.step()
            share = torch.softmax(z.detach(), 0)
            assert float(share.sum()) == pytest.approx(1.0)
            weight = {name: sign * float(share[k + 1]) for k, (sign, name, _) in enumerate(bounds)}
            first = 1.0 - sum(map(abs, weight.values()))
            first = first if bootstrap is None else max(weight[bootstrap], first)
            assert credit.metrics["weight/reward"] == pytest.approx(first, abs=1e-6)
            group = [g for g, row in enumerate(rewards) for _ in row]
            wanted = first * np.array(_less_means(flat, group))
            for name, own in costs.items():
                wanted += weight[name] * np.array(_less_means(own, group))
            assert [float(a[0]) for a in credit.advantages] == pytest.approx(wanted.tolist(), abs=1e-5)


def _with_parts(rewards: list[list[float]], costs: dict[str, list[float | None]]) -> Batch:
    plain, place, groups = batch(rewards), 0, []
    for group in plain.groups:
        scored = []
        for trajectory in group:
            parts = {
                name: Score(value=0.0, status="ok" if own[place] else "wrong", applies=own[place] is not None)
                for name, own in costs.items()
            }
            assert trajectory.score is not None
            scored.append(trajectory.scored(replace(trajectory.score, parts=parts)))
            place += 1
        groups.append(replace(group, trajectories=tuple(scored)))
    return replace(plain, groups=tuple(groups))


def _less_means(values: Any, group: list[int]) -> list[float]:
    found = []
    for own, at in zip(values, group, strict=True):
        known = [x for x, g in zip(values, group, strict=True) if g == at and x is not None]
        found.append(0.0 if own is None else own - sum(known) / len(known))
    return found


@pytest.mark.parametrize("per", ["sequence", "token"])
def test_discriminators_of_two_policies(per: Literal["sequence", "token"]) -> None:
    """Row 205: cross-entropy of D = p / (p + p_old), from probabilities."""
    rng = Random(2050)
    for _ in range(CASES // GROUPS):
        rows = [[-rng.expovariate(1) for _ in range(rng.randint(1, 4))] for _ in range(GROUPS)]
        old = [[-rng.expovariate(1) for _ in row] for row in rows]
        shown = [rng.random() < 0.5 for _ in rows]
        known = [[math.nan if own else x for x in row] for own, row in zip(shown, old, strict=True)]
        given = tokens(rows, old_logp=old, behavior_logp=known)
        loss_T, wanted = ASAF(per=per)(given).loss_T.detach().numpy(), list[float]()
        for p_T, q_T, own in zip(rows, old, shown, strict=True):
            pairs = list(zip(p_T, q_T, strict=True)) if per == "token" else [(sum(p_T), sum(q_T))]
            share = [math.exp(p) / (math.exp(p) + math.exp(q)) for p, q in pairs]
            losses = [-math.log(d if own else 1 - d) for d in share]
            wanted += losses if per == "token" else [losses[0] / len(p_T)] * len(p_T)
        assert loss_T == pytest.approx(wanted, rel=1e-5, abs=1e-6)
