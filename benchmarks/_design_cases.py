"""Designed rewards that keep what is optimal, or do not, and captions that are helpful, or not: rows 204 and 208."""

import asyncio
import time
from collections.abc import Callable, Iterator
from itertools import product
from random import Random
from typing import Any, Final, Literal

import numpy as np

from benchmarks._reward_rows import Row, share
from posttrain.audit.attack import edited, pieces
from posttrain.components.diagnostics._reward_designs import exprd, teacher_of
from posttrain.components.diagnostics._small_mdp import MDP, Reals, potential_SA
from posttrain.components.diagnostics.invariance import changed_states
from posttrain.components.environments.captioned import HELPFUL, KINDS
from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.captions import Captions
from posttrain.components.rewards.verdict import Verdict

GAMMA, STATES, NEAR = 0.8, 5, 1e-7
Kind = Literal["table", "classifier", "ranking"]
MODELS: Final[tuple[Kind, ...]] = ("table", "classifier", "ranking")
STEPS: Final = 20
"""In which labels are requested."""


def process(rng: np.random.Generator) -> MDP:
    """Four states of two actions before an end; some actions are equally good."""
    move = np.zeros((STATES, 2, STATES))
    for s, a in product(range(STATES - 1), range(2)):
        move[s, a] = np.bincount(rng.choice(STATES, 2), weights=[0.7, 0.3], minlength=STATES)
    move[-1, :, -1] = 1.0
    if rng.random() < 0.3:
        move[0, 1] = move[0, 0]
    reward = np.zeros((STATES, 2))
    reward[:-1] = rng.choice([-0.5, 0.0, 0.0, 0.5, 1.0], (STATES - 1, 2))
    if rng.random() < 0.5:
        reward[0, 1] = reward[0, 0]
    start = np.append(rng.dirichlet(np.ones(STATES - 1)), 0.0)
    return MDP(move_SAS=move, reward_SA=reward, start_S=start, terminal_S=np.arange(STATES) == STATES - 1, gamma=GAMMA)


def best(mdp: MDP, reward: Reals) -> np.ndarray:
    """[S, A] whether an action is optimal, by trying all policies."""
    going = mdp.move_SAS * ~mdp.terminal_S[:, None, None]
    value, places = np.full(STATES, -np.inf), np.arange(STATES)
    for policy in product(range(2), repeat=STATES):
        own = going[places, policy]
        value = np.maximum(value, np.linalg.solve(np.eye(STATES) - GAMMA * own, reward[places, policy]))
    q = reward + GAMMA * going @ value
    found: np.ndarray = q >= q.max(1, keepdims=True) - NEAR * max(1.0, float(np.abs(q).max()))
    return found


def keeps(mdp: MDP, reward: Reals) -> bool:
    """Whether every action that is optimal under the reward was optimal, in the states that can be reached."""
    new, reached = best(mdp, reward) & ~best(mdp, mdp.reward_SA), mdp.start_S > 0
    for _ in range(STATES):
        reached = reached | ((mdp.move_SAS[reached & ~mdp.terminal_S] > 0).any((0, 1)))
    return not (new.any(1) & reached & ~mdp.terminal_S).any()


def shaped(mdp: MDP, rng: np.random.Generator) -> Reals:
    """The reward with a drawn potential."""
    own = np.where(mdp.terminal_S, 0.0, rng.normal(size=STATES))
    found: Reals = np.where(mdp.terminal_S[:, None], 0.0, mdp.reward_SA + GAMMA * mdp.move_SAS @ own - own[:, None])
    return found


def moved(mdp: MDP, reward: Reals, rng: np.random.Generator, most: float = 2.0, least: float = 0.05) -> Reals:
    """A reward with other values in some places."""
    size = most * (least / most) ** rng.random()
    change = size * rng.normal(size=reward.shape) * (rng.random(reward.shape) < 0.6)
    found: Reals = np.where(mdp.terminal_S[:, None], 0.0, reward + change)
    return found


def designs(budget: int) -> Row:
    """The numbers of `diagnose invariance`: a design is accepted where it is found to keep what is optimal."""
    rng = np.random.default_rng(204)
    cases: list[tuple[str, MDP, Reals]] = []
    for _ in range(250):
        mdp = process(rng)
        made = {
            "a potential": shaped(mdp, rng),
            "the optimal value": potential_SA(mdp),
            "a change": moved(mdp, mdp.reward_SA, rng),
            "a change of a potential": moved(mdp, shaped(mdp, rng), rng),
        }
        if np.abs(mdp.reward_SA).max() > 0:
            made["EXPRD's"] = exprd(teacher_of(mdp, float(np.abs(mdp.reward_SA).max())), STATES, 1e-4)[0]
        cases += [(kind, mdp, reward) for kind, reward in made.items()]
    start = time.perf_counter()
    found = [changed_states(mdp, reward) == 0 for _, mdp, reward in cases]
    row = Row(name="invariance (204)", cases=len(cases), a_second=len(cases) / (time.perf_counter() - start))
    rights = [keeps(mdp, reward) for _, mdp, reward in cases]
    count(row, rights, found)
    for number in range(5 if budget else 0):
        mdp = process(np.random.default_rng([204, number]))
        for _ in range(budget // 5):
            row.searched += 1
            reward = moved(mdp, shaped(mdp, rng), rng, most=1e-3, least=1e-9)
            if changed_states(mdp, reward) == 0 and not keeps(mdp, reward):
                row.finds.append(str(reward.tolist()))
    row.wrong_finds = row.finds
    return row


def count(row: Row, rights: list[bool], accepted: list[bool]) -> None:
    """Fill in what was accepted, of right ones and of wrong ones."""
    both = list(zip(rights, accepted, strict=True))
    row.false_negatives = share(both.count((True, False)), sum(rights))
    row.false_positives = share(both.count((False, True)), len(rights) - sum(rights))


def captions(model: Kind) -> Callable[[int], Row]:
    """The numbers of captions, of which one in ten labels is wrong; one is accepted where it has a reward."""
    return lambda budget: _captions(model, budget)


def _captions(model: Kind, budget: int) -> Row:
    reward = Captions(of=Verdict(), helpful=HELPFUL, noise=0.1, model=model)
    rights: list[bool] = []
    accepted: list[bool] = []
    values: dict[str, list[float]] = {"helpful": [], "other": []}
    row, seconds = Row(name=f"captions (208), {model}"), 0.0
    for seed in range(22):
        context = labelled(reward, seed)
        start = time.perf_counter()
        own = [reward.weight * reward.rewards([text], context)[0] for text in KINDS]
        seconds += time.perf_counter() - start
        rights += map(_helpful, KINDS)
        accepted += [value > 0 for value in own]
        for text, value in zip(KINDS, own, strict=True):
            values["helpful" if _helpful(text) else "other"].append(value)
    row.cases, row.a_second = len(rights), len(rights) / seconds
    row.values = {
        "demonstration": float(np.mean(values["helpful"])),
        "another's": float(np.mean(values["other"])),
        "nothing": float(np.mean([reward.weight * reward.rewards([""], context)[0]])),
        "twice": float(np.mean([reward.weight * sum(reward.rewards([text] * 2, context)) for text in KINDS[-6:-1]])),
    }
    count(row, rights, accepted)
    if budget:
        context = labelled(reward, 0)
        row.searched = budget
        for text, value in climbed(lambda text: reward.weight * reward.rewards([text], context)[0], budget):
            row.finds.append(f"{value:g}: {text}")
        row.wrong_finds = row.finds
    return row


def _helpful(caption: str) -> bool:
    return any(text in caption for text in HELPFUL)


def labelled(reward: Captions, seed: int) -> RewardContext:
    """All captions were seen in each of some steps, and labels were requested and have arrived."""
    state: dict[str, Any] = {}
    for step in range(STEPS):
        context = RewardContext(learning=True, step=step, seed=seed, state=state)
        asyncio.run(reward.request(context))
        reward.rewards(KINDS, context)
    return context


def climbed(value: Callable[[str], float], budget: int) -> Iterator[tuple[str, float]]:
    """The ten best texts without a helpful word that have a reward, of edits of captions."""
    rng, pool = Random("captions"), [piece for text in KINDS for piece in pieces(text)]
    known: dict[str, float] = {}
    starts = [text for text in KINDS if not _helpful(text)]
    while len(known) < budget:
        parents = [*starts, *sorted(known, key=lambda text: -known[text])[:4]]
        for text in {edited(rng.choice(parents), pool, rng) for _ in range(32)}:
            if not _helpful(text) and len(known) < budget:
                known.setdefault(text, value(text))
    yield from [(text, own) for text, own in sorted(known.items(), key=lambda pair: -pair[1])[:10] if own > 0]
