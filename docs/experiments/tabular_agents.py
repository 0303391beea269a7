"""Agents whose policy is a table over states: UserRL, RLVER, DoctorAgent-RL, proactive questions, Behavior Priming.

The table starts as after imitation: of a clerk who wastes questions in `tickets`, of replies with the right format in
`moods` and `clinic`, of random questions in `briefs`, of worked questions in `tools`, of 200 episodes of a player in
`sources`. The environments, rewards and advantages are those of the package; only the model is a table of logits, so
that five seeds take seconds. A step samples 8 episodes of each of 4 tasks and moves the logits by the mean over tokens
of the advantage times (one-hot - p). Measured are 200 sampled episodes of new tasks after the last step.
``episodes`` has their success, turns, calls and regret.

    python docs/experiments/tabular_agents.py tickets     # or moods, clinic, briefs, tools, sources
"""

import argparse
import asyncio
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
from episodes import episode_row

from posttrain.component import frozen
from posttrain.components.advantages import Advantage
from posttrain.components.advantages.by_episode import ByEpisode
from posttrain.components.advantages.gae import GAE
from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.advantages.turn_credit import TurnCredit
from posttrain.components.environments import Environment, Episode
from posttrain.components.environments.briefs import Briefs
from posttrain.components.environments.clinic import Clinic
from posttrain.components.environments.moods import LINES, Moods
from posttrain.components.environments.sources import Sources
from posttrain.components.environments.tickets import Tickets
from posttrain.components.environments.two_tools import TwoTools
from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rewards.mood import Mood
from posttrain.components.rewards.tool_use import ToolUse
from posttrain.components.rewards.verdict import Verdict
from posttrain.components.tasks.lookups import Lookups
from posttrain.signals import OLD_VALUE
from posttrain.stages.rl.credit import token_rewards
from posttrain.statistics.intervals import mean
from posttrain.types import Batch, Group, Segment, Task, Trajectory

PROMPTS, ROLLOUTS, FRESH = 4, 8, 200
Menu = Callable[[Any, str], tuple[str, Sequence[str]]]
"""From an instance and the key of its state, the state of the table and the turns to choose from."""


@dataclass(kw_only=True)
class Table:
    """A softmax policy, and values for a critic."""

    rng: np.random.Generator
    prior: Callable[[str, int], np.ndarray]
    logits: dict[str, np.ndarray] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)

    def chances(self, state: str, count: int) -> np.ndarray:
        """[actions] probabilities."""
        logits = self.logits[state] if state in self.logits else self.prior(state, count)
        self.logits[state] = logits
        powers = np.exp(logits - logits.max())
        return powers / powers.sum()

    def act(self, chances: np.ndarray) -> int:
        """Draw an action."""
        return min(int(np.searchsorted(chances.cumsum(), self.rng.random())), len(chances) - 1)


@dataclass(frozen=True, kw_only=True)
class Arm:
    """What is compared."""

    environment: Environment
    menu: Menu
    reward: Reward = field(default_factory=Verdict)
    advantage: Advantage = field(default_factory=GroupMean)
    prior: Callable[[str, int], np.ndarray] = lambda state, count: np.zeros(count)
    """Logits before training."""
    steps: int = 200
    rate: float = 4.0
    task: Callable[[str], Task] = lambda name: Task(key=name, prompt="")
    """The task of a name."""


async def episode(arm: Arm, table: Table, task: Task, chance: float, most: int = 12) -> tuple[Trajectory, list[str]]:
    """One episode, and the state of the table before each turn."""
    instance: Any = arm.environment.instance(task, Random(chance).random)
    seen = instance.begin()
    segments = [Segment(actor="prompt", token_ids=np.zeros(1, np.int64))]
    states, valid, rewards = [], [], []
    for turn in range(most):
        state, texts = arm.menu(instance, seen.state_key or "")
        chances = table.chances(state, len(texts))
        action = table.act(chances)
        outcome = await instance.step(texts[action])
        states.append(state)
        valid.append(outcome.valid)
        rewards.append(float(outcome.reward))
        ids = np.array([action], np.int64)
        segments.append(
            Segment(
                actor="policy", token_ids=ids, trained=True, turn=turn, reward=rewards[-1], text=texts[action],
                state_key=seen.state_key, logp=np.log(chances[ids]).astype(np.float32),
            )
        )  # fmt: skip
        seen = outcome.observation
        if outcome.done:
            break
        segments.append(Segment(actor="environment", token_ids=np.zeros(1, np.int64), text=seen.text))
    facts = Episode(
        valid_turns=tuple(valid), turn_rewards=tuple(rewards), measures=instance.measures(), verdict=instance.verdict()
    )
    return Trajectory(task=task, segments=tuple(segments), stop_reason="environment", facts=(facts,)), states


async def sampled(arm: Arm, table: Table, names: Sequence[str], n: int) -> tuple[list[Group], list[list[str]]]:
    """Scored groups, and the states of each episode."""
    groups, states = [], []
    for name in names:
        task = arm.task(name)
        played = [await episode(arm, table, task, float(table.rng.random())) for _ in range(n)]
        states += [own for _, own in played]
        group = Group(key=name, trajectories=tuple(trajectory for trajectory, _ in played))
        scores = await arm.reward.score(group, RewardContext())
        scored = tuple(t.scored(score) for t, score in zip(group, scores, strict=True))
        groups.append(replace(group, trajectories=scored))
    return groups, states


async def learnt(arm: Arm, seed: int) -> Mapping[str, float]:
    """What the table does after training."""
    table = Table(rng=np.random.Generator(np.random.Philox(key=seed)), prior=arm.prior)
    memory = arm.advantage.start()
    for step in range(arm.steps):
        groups, states = await sampled(arm, table, [f"{seed}/{step}/{i}" for i in range(PROMPTS)], ROLLOUTS)
        batch = Batch(
            groups=tuple(groups),
            token_rewards=tuple(token_rewards(t, ()) for g in groups for t in g),
            signals={OLD_VALUE: tuple(np.array([table.values.get(s, 0.0) for s in own], np.float32) for own in states)},
        )
        memory, credit = arm.advantage(memory, batch)
        count = sum(map(len, states))
        moves: dict[str, np.ndarray] = {}
        for trajectory, own, advantage_T in zip(batch.trajectories, states, credit.advantages, strict=True):
            actions = [int(s.token_ids[0]) for s in trajectory.segments if s.trained]
            for state, action, advantage in zip(own, actions, advantage_T, strict=True):
                move = -table.chances(state, len(table.logits[state]))
                move[action] += 1
                moves[state] = moves.get(state, 0.0) + advantage * move
        for state, move in moves.items():
            table.logits[state] = table.logits[state] + arm.rate * move / count
        for own, target_T in zip(states, credit.value_targets, strict=False):
            for state, target in zip(own, target_T, strict=True):
                table.values[state] = table.values.get(state, 0.0) + 0.05 * (target - table.values.get(state, 0.0))
    groups, _ = await sampled(arm, table, [f"new {seed}/{i}" for i in range(FRESH)], 1)
    fresh = [t for g in groups for t in g]
    facts = [t.fact(Episode) for t in fresh]
    solved = [f.verdict.solved if f.verdict else t.solved for f, t in zip(facts, fresh, strict=True)]
    broken = [not s.text.startswith("<") for g in groups for t in g for s in t.segments if s.trained]
    return {
        "solved": float(np.mean(solved)),
        "turns": float(np.mean([f.turns for f in facts])),
        "broken": float(np.mean(broken)),
        **{name: float(np.mean([f.measures[name] for f in facts])) for name in facts[0].measures},
    }


def columns_of(what: str, found: Mapping[str, float]) -> list[str]:
    """What the first table has; regret, and calls of searches, are in that of episodes."""
    left_out = {"regret"} | ({"broken"} if what in ("tickets", "briefs", "tools") else set())
    return [name for name in found if name not in left_out | ({"calls"} if what == "sources" else set())]


def of_tickets(instance: Any, key: str) -> tuple[str, Sequence[str]]:
    """A state for each set of known facts."""
    return key, instance.begin().legal


def asking(state: str, count: int) -> np.ndarray:
    """As after imitation of a clerk who asks, known facts too, until all are known, and then names the desk."""
    logits, facts = np.zeros(count), len(state)
    if "?" in state:
        logits[:facts] = 4.0
    else:
        logits[facts + int(state, 2)] = 4.0
        logits[:facts] = 2.0
    return logits


def formed(state: str, count: int) -> np.ndarray:
    """As after imitation of replies that have the format: about 1 in 20 does not."""
    logits = np.zeros(count)
    logits[: 3 if count == 6 else count - 1] = 3.0 if count == 6 else 1.5
    return logits


def of_moods(instance: Any, key: str) -> tuple[str, Sequence[str]]:
    """The user's last line, and each act with the format and without."""
    return key, [*(f"<think>{need}</think>{need}" for need in LINES), *LINES]


def of_clinic(instance: Any, key: str) -> tuple[str, Sequence[str]]:
    """How many symptoms are known and how many diseases fit; the best question, a random one, an old one, a name."""
    rng = Random(f"{key}:{instance._turn}")
    known, left = sorted(instance._known), instance.candidates
    new = [s for s in range(instance._rules.symptoms) if s not in known]
    best = min(new, key=lambda s: abs(2 * sum(instance._table[d][s] for d in left) - len(left))) if new else 0
    name = rng.choice(left)
    asked = [best, rng.choice(new) if new else 0, rng.choice(known) if known else best]
    diagnosis = f"<answer>Diagnosis: d{name}. Recommendation: r{name}</answer>"
    fit = min(len(left), 4)
    return f"{fit} {instance._turn}", [*(f"<answer>s{s}?</answer>" for s in asked), diagnosis, "hm"]


def of_briefs(instance: Any, key: str) -> tuple[str, Sequence[str]]:
    """Asked or not yet; a hidden fact that is new, one of the brief, an old question, all facts at once, the end."""
    rng = Random(f"{key}:{instance._turns}")
    left = [fact for fact in instance._missing if fact not in instance._known]
    brief = [fact for fact in range(1, 21) if fact not in instance._missing]
    asked = sorted(instance._asked) or brief
    every = " ".join(map(str, range(1, 21)))
    texts = [*(f"?{rng.choice(own)}" for own in (left, brief, asked)), f"?{every}", "."]
    return "asked" if instance._asked else "first", texts


def at_random(state: str, count: int) -> np.ndarray:
    """As random questions among 20 facts: 5 hidden and new, 12 of the brief, 2 old ones; all at once 1 in 40."""
    return np.log([5.0, 12.0, 2.0, 0.5, 1.0])


def of_tools(instance: Any, key: str) -> tuple[str, Sequence[str]]:
    """What is looked up and added; a call of each tool, one of each that fails, and the answer so far."""
    number, added = instance.asked
    found, summed = instance._executed["search"] > 0, instance._executed["python"] > 0
    thought = "" if instance._calls else "<think>so</think>"
    right = found and (summed or not added)
    box = rf"<answer>\boxed{{{number + added if right else '?'}}}</answer>"
    item = next(iter(instance._facts))
    query = f"{number}+{added}" if found else "1+1"
    calls = [f"<search>{item}</search>", f"<python>{query}</python>", "</search>", "</python>"]
    state = f"{bool(added)} {found} {summed} {instance._calls}"
    return state, [f"{thought}{call}" for call in (*calls, box)]


QUESTIONS = Lookups(size=2000).load()


def question(name: str) -> Task:
    """A question of `lookups`."""
    return QUESTIONS[zlib.crc32(name.encode()) % len(QUESTIONS)]


@frozen
class Shown(TwoTools):
    """The tools, with the numbers of the question for the menu."""

    def instance(self, task: Task, draw: Callable[[], float]) -> Any:
        """The tools of a task."""
        made: Any = super().instance(task, draw)
        number = next(iter(task.fields["facts"].values()))
        made.asked = number, int(task.answer or 0) - number
        return made


def as_worked(state: str, count: int) -> np.ndarray:
    """As after imitation of calls and answers in any order; a call that fails is rare."""
    return np.array([1.5, 0.5, -1.0, -1.0, 1.0])


def as_typed(state: str, count: int) -> np.ndarray:
    """The same, but the program's closing tag is typed more often than the program is called."""
    return np.array([1.5, -1.0, -1.0, 0.5, 1.0])


def of_sources(instance: Any, key: str) -> tuple[str, Sequence[str]]:
    """What is found, and each search, the official source, the answers that it or a source gives, and a wrong one."""
    found = [instance.found(name) for name in "AB"]
    seen = [
        "none" if instance.nothing(n) else "new" if f is None else "found" for n, f in zip("AB", found, strict=True)
    ]
    official = found["AB".index(instance.official)] if instance.asked else None
    digits = [0 if digit is None else digit for digit in (*found, official)]
    answers = [*digits, (instance.digit + 1) % 10]
    searches = [f"<search>{name}</search>" for name in "AB"]
    texts = [*searches, "<scripts>who</scripts>", *(f"<answer>{digit}</answer>" for digit in answers), "hm"]
    return f"{seen} {instance.disagree} {instance.asked}", texts


WRONG = 6
"""Place of the wrong answer in the menu of `sources`."""


def shown_by(kind: str, answers: str) -> Callable[[str, int], np.ndarray]:
    """Logits as after imitation of 200 episodes of a player, which are kept by their answers."""
    environment, counts, kept = Sources(player=kind), dict[str, np.ndarray](), 0  # type: ignore[arg-type]

    async def one(number: int) -> int:
        name = f"shown {number}"
        own: Any = environment.instance(Task(key=name, prompt=""), Random(name).random)
        own.begin()
        rows = []
        for _ in range(8):
            text = await own.solution()
            state, texts = of_sources(own, "")
            official = own.asked and text == texts[5]
            place = 5 if official else texts.index(text) if text in texts else WRONG
            rows.append((state, place, len(texts)))
            if (await own.step(text)).done:
                break
        if answers == "right" and not own.verdict().solved:
            return 0
        for state, action, size in rows:
            counts.setdefault(state, np.zeros(size))[action] += 1
        return 1

    number = 0
    while kept < 200:
        kept, number = kept + asyncio.run(one(number)), number + 1
    return lambda state, size: np.log(counts.get(state, np.zeros(size)) + 0.5)


def arms(what: str) -> dict[str, Arm]:
    """The arms of an experiment."""
    if what == "tickets":
        base = Arm(environment=Tickets(), menu=of_tickets, prior=asking, steps=80)
        kinds = [("sum", "equalized"), ("mean", "equalized"), ("r2g", "equalized"), ("r2g", "r2g"), ("r2g", "em")]
        return {"before": replace(base, steps=0)} | {
            f"score {score}, credit {credit}": replace(base, advantage=TurnCredit(score=score, credit=credit))  # type: ignore[arg-type]
            for score, credit in kinds
        }
    if what == "moods":
        hard = Moods(gain=2, loss=9)
        base = Arm(environment=Moods(), menu=of_moods, prior=formed, steps=60)
        ppo = GAE(gamma=1.0, lam=0.95)
        return {
            "before": replace(base, steps=0),
            "solved or not (PPO)": replace(base, advantage=ppo),
            "mood (RLVER, PPO)": replace(base, reward=Mood(), advantage=ppo),
            "mood (GRPO)": replace(base, reward=Mood()),
            "mood (RLVER, PPO), +2 and -9": replace(base, environment=hard, reward=Mood(), advantage=ppo),
        }
    if what == "briefs":
        base = Arm(environment=Briefs(), menu=of_briefs, prior=at_random, steps=60)
        kinds = ["answered", "binary", "count", "graded"]
        return {"before": replace(base, steps=0)} | {
            f"{kind}{' (ungated)' if kind == 'answered' else ''}": replace(base, environment=Briefs(process=kind))  # type: ignore[arg-type]
            for kind in kinds
        }
    if what == "sources":
        base = Arm(environment=Sources(), menu=of_sources, advantage=ByEpisode(), steps=150)
        sets = {
            "four behaviours, wrong": ("careful_wrong", "any"),
            "four behaviours, right": ("careful", "any"),
            "first digit found, right": ("hasty", "right"),
            "any action": ("random", "any"),
        }
        found = {name: replace(base, prior=shown_by(*own)) for name, own in sets.items()}
        return {f"{name}, before": replace(arm, steps=0) for name, arm in found.items()} | found
    if what == "tools":
        base = Arm(environment=Shown(), menu=of_tools, prior=as_worked, steps=60, task=question)
        return {
            "before": replace(base, steps=0, reward=ToolUse()),
            "no bonus": replace(base, reward=ToolUse(bonus=0.0)),
            "bonus for executed calls (Tool-Star)": replace(base, reward=ToolUse()),
            "bonus for closing tags, as released": replace(base, reward=ToolUse(bonus_for="text")),
            "executed calls, tags are often typed": replace(base, prior=as_typed, reward=ToolUse()),
            "closing tags, tags are often typed": replace(base, prior=as_typed, reward=ToolUse(bonus_for="text")),
        }
    base = Arm(environment=Clinic(), menu=of_clinic, prior=formed, steps=60, rate=12.0)
    return {
        "before": replace(base, steps=0),
        "diagnosis only (GRPO)": base,
        "+1 an answer (DoctorAgent-RL)": replace(base, environment=Clinic(process="answered")),
        "the same, repeats are free": replace(base, environment=Clinic(process="answered", repeated=0.0)),
        "information": replace(base, environment=Clinic(process="gain")),
    }


def said(values: Sequence[float]) -> str:
    """A mean with its 95 % interval."""
    found = mean(np.array(values))
    return f"{found.value:.2f} [{found.interval.low:.2f}, {found.interval.high:.2f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["tickets", "moods", "clinic", "briefs", "tools", "sources"])
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    table, columns, episodes = [], list[str](), []
    for name, arm in arms(given.what).items():
        found = [asyncio.run(learnt(arm, seed)) for seed in range(given.seeds)]
        columns = columns_of(given.what, found[0])
        table.append([name, *(said([one[key] for one in found]) for key in columns)])
        episodes.append(episode_row(name, [{**one, "success": one["solved"]} for one in found]))
    print(json.dumps({"columns": ["arm", *columns], "table": table, "episodes": episodes}, indent=1))


if __name__ == "__main__":
    main()
