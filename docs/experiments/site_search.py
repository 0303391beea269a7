"""Imitation, preferences of whole rollouts and of single actions, on a site of four pages, with a table as the policy.

    python docs/experiments/site_search.py --seeds 5

The table starts as after imitation of random links and of a player who is wrong on two letters of five. A wrong link
leads back to its page, four times at most, so that many successes have wrong links. Five rounds of 8 sites, and as
many rollouts of each site for every arm (32, where no other number is given): imitated successes (RFT), DPO on all
pairs of a success and a failure, and DPO on the actions of a tree search (Agent Q). Rollouts, search and environment
are those of the package; only the model is a table. Each arm has the best of three step sizes by its mean over rounds
and seeds. Success of sampled links is exact: letters are equally likely. ``episodes`` has their success, turns and
regret after the last round, as exact.
"""

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
from episodes import episode_row

from posttrain.components.environments import Episode
from posttrain.components.environments.site import LETTERS, Site, right_link
from posttrain.components.rollouts.step_search import StepSearch, TreeSettings
from posttrain.components.rollouts.turns import Turns
from posttrain.engines import Sampling
from posttrain.statistics.intervals import mean
from posttrain.types import Completion, Group, Score, Segment, Task, Trajectory

PAGES, SPARE, ROUNDS, SITES, EPOCHS, BETA, GAP = 4, 4, 5, 8, 4, 0.1, 0.2
SHOWN = (1, 2, 5)


def started() -> np.ndarray:
    """[pages, letters, links] logits: half random, half a player who is wrong on d and e."""
    p = np.full((PAGES, 5, 5), 0.1)
    for page in range(PAGES):
        for i, letter in enumerate(LETTERS):
            link = LETTERS.index(right_link(page, letter))
            p[page, i, (link + (letter in "de")) % 5] += 0.5
    return np.asarray(np.log(p))


def softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def ends(logits: np.ndarray) -> tuple[float, float]:
    """Probability of a right link on each page with at most `SPARE` wrong ones, and expected links of a rollout.

    A wrong link leads back to its page, one more than `SPARE` ends the rollout.
    """
    p, turns = softmax(logits), 0.0
    wrong = np.eye(1, SPARE + 1)[0]  # distribution of the number of wrong links so far
    for page in range(PAGES):
        right = np.array([p[page, i, LETTERS.index(right_link(page, c))] for i, c in enumerate(LETTERS)])
        # a link of this page is followed if all before it were wrong, and these are not too many
        turns += sum(
            chance * np.mean((1 - right) ** k) for done, chance in enumerate(wrong) for k in range(SPARE - done + 1)
        )
        here = np.array([np.mean(right * (1 - right) ** k) for k in range(SPARE + 1)])
        wrong = np.convolve(wrong, here)[: SPARE + 1]
    return float(wrong.sum()), float(turns)


def place(text: str) -> tuple[int, int]:
    """Page and letter that a history ends with."""
    page, letter = [*text.strip().rsplit("\n", 1)[-1]]
    return int(page), LETTERS.index(letter)


class TableSampler:
    """A model that draws links by a table, or a critic that names the right link with a chance."""

    context = 4096

    def __init__(self, p: np.ndarray, chance: float, *key: int | str) -> None:
        self.p, self.chance, self.key = p, chance, key
        self.rng = Random(repr(key))

    def bind(self, *key: int | str) -> "TableSampler":
        """With an extended key."""
        return TableSampler(self.p, self.chance, *self.key, *key)

    def uniform(self) -> float:
        """A draw."""
        return self.rng.random()

    def encode(self, prompt: Any) -> np.ndarray:
        """Bytes."""
        return np.frombuffer(prompt.encode(), np.uint8).astype(np.int64)

    def encode_reply(self, prompt: Any, turn: np.ndarray, reply: Any) -> np.ndarray:
        """Bytes."""
        return self.encode(reply["content"])

    def decode(self, token_ids: np.ndarray) -> str:
        """Text of bytes."""
        return bytes(token_ids.astype(np.uint8)).decode()

    async def sample(self, token_ids: np.ndarray, n: int, sampling: Any, vectors: Any = None) -> list[Completion]:
        """Links."""
        p = self.p[place(self.decode(token_ids[-4:]))]
        made = []
        for link in self.rng.choices(range(5), weights=p.tolist(), k=n):
            text, logp = LETTERS[link], np.log(p[[link]]).astype(np.float32)
            made.append(Completion(token_ids=self.encode(text), logp=logp, stop_reason="stop", version=0, text=text))
        return made

    async def write(self, prompt: Any, n: int, sampling: Any) -> list[str]:
        """The number of the right link with a chance, else of any."""
        text = prompt[0]["content"]
        history, rest = text.split("\n\nWhich", 1)
        links = re.findall(r"^\d+\. (\w)$", rest, re.MULTILINE)
        page, letter = place(history)
        right = right_link(page, LETTERS[letter])
        if right in links and self.rng.random() < self.chance:
            return [str(links.index(right) + 1)]
        return [str(self.rng.randrange(len(links)) + 1)]


async def by_verdict(group: Group) -> Group:
    """Scored by the environment."""

    def of(t: Trajectory) -> Score:
        episode = t.fact(Episode)
        assert episode is not None and episode.verdict is not None
        return Score(value=episode.verdict.value, status="ok" if episode.verdict.solved else "wrong")

    return replace(group, trajectories=tuple(t.scored(of(t)) for t in group))


@dataclass(frozen=True)
class Arm:
    """What is compared."""

    what: str
    """``rft``, ``whole`` or ``step``."""
    search: TreeSettings = field(default_factory=TreeSettings)
    rates: tuple[float, ...] = (30.0, 100.0, 300.0)


def steps_of(segments: Sequence[Segment], text: str = "") -> list[tuple[int, int, int]]:
    """Page, letter and link of each action."""
    found = []
    for segment in segments:
        if segment.actor == "policy":
            found.append((*place(text), LETTERS.index(segment.text)))
        text += segment.text
    return found


def pairs_of(arm: Arm, groups: Sequence[Group]) -> list[list[tuple[Any, Any]]]:
    """Of each group the pairs of better and worse action lists; for RFT a success and nothing."""
    found = list[list[tuple[Any, Any]]]()
    for group in groups:
        rows = [(t.score.value, steps_of(t.segments)) for t in group if t.score is not None]
        if arm.what == "rft":
            found.append([(steps, []) for value, steps in rows if value == 1.0])
        else:
            gap = GAP if arm.what == "step" else 0.0
            found.append([(a, b) for v, a in rows for w, b in rows if v - w > gap])
    return [pairs for pairs in found if pairs]


def updated(arm: Arm, logits: np.ndarray, pairs: Sequence[Sequence[tuple[Any, Any]]], rate: float) -> np.ndarray:
    """The logits after the epochs; each group counts the same."""
    logged = np.log(softmax(logits))
    for _ in range(EPOCHS):
        p = softmax(logits)
        gain = np.log(p) - logged
        change = np.zeros_like(logits)
        for group in pairs:
            for better, worse in group:
                weight = 1.0
                if arm.what != "rft":
                    h = sum(gain[s] for s in better) - sum(gain[s] for s in worse)
                    weight = BETA / (1.0 + np.exp(BETA * h))
                for sign, steps in ((1.0, better), (-1.0, worse)):
                    for page, letter, link in steps:
                        change[page, letter] -= sign * weight / len(group) * p[page, letter]
                        change[page, letter, link] += sign * weight / len(group)
        logits = logits + rate * change / max(len(pairs), 1)
    return logits


def learnt(arm: Arm, rate: float, seed: int) -> list[tuple[float, float]]:
    """Success and turns after each round, of sampled links."""
    logits, found = started(), list[tuple[float, float]]()
    turns = Turns(
        environment=Site(pages=PAGES, spare=SPARE),
        n=arm.search.iterations,
        max_turns=PAGES + SPARE,
        sampling=Sampling(max_tokens=1),
    )
    search = StepSearch(
        environment=Site(pages=PAGES, spare=SPARE),
        n=5,
        max_turns=PAGES + SPARE,
        search=arm.search,
        sampling=turns.sampling,
    )
    for turn in range(ROUNDS):
        samplers: Mapping[str, Any] = {
            "policy": TableSampler(softmax(logits), 0.7, seed, turn),
            "critic": TableSampler(softmax(logits), 0.7, "critic", seed, turn),
        }

        async def sampled(samplers: Mapping[str, Any] = samplers, turn: int = turn) -> list[Group]:
            rollout, groups = search if arm.what == "step" else turns, []
            for i in range(SITES):
                task = Task(key=f"{seed} {turn} {i}", prompt="")
                own = {role: sampler.bind(task.key) for role, sampler in samplers.items()}
                groups += await rollout.collect_scored(task, own, by_verdict)
            return groups

        logits = updated(arm, logits, pairs_of(arm, asyncio.run(sampled())), rate)
        found.append(ends(logits))
    return found


def arms() -> dict[str, Arm]:
    """The arms of both experiments."""
    found = {
        "imitated successes (RFT)": Arm("rft", rates=(1.0, 3.0, 10.0)),
        "DPO, whole rollouts": Arm("whole"),
        "step DPO, order by likelihood, alpha 0.5": Arm("step"),
        "step DPO, returns alone": Arm("step", TreeSettings(alpha=1.0)),
    }
    for iterations in (8, 32):
        for alpha in (0.0, 0.5, 1.0):
            search = TreeSettings(iterations=iterations, alpha=alpha, critic="critic")
            found[f"step DPO, critic right in 70 %, alpha {alpha:g}, {iterations} rollouts"] = Arm("step", search)
    return found


def cell(values: Sequence[float]) -> str:
    """A mean with its 95 % interval."""
    found = mean(np.array(values))
    return f"{found.value:.2f} [{found.interval.low:.2f}, {found.interval.high:.2f}]"


def held_out(name: str, seeds: Sequence[Sequence[float]]) -> list[str]:
    """The line of an arm in the table of episodes."""
    return episode_row(name, [{"success": own, "turns": turns, "regret": 1.0 - own} for own, turns in seeds])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--arm", type=int, default=None, help="number of one arm")
    given = parser.parse_args()
    before = ends(started())
    table = [["before", *[f"{before[0]:.2f}"] * len(SHOWN), ""]]
    episodes = [held_out("before", [before] * given.seeds)]
    for number, (name, arm) in enumerate(arms().items()):
        if given.arm not in (None, number):
            continue
        both = {rate: np.array([learnt(arm, rate, seed) for seed in range(given.seeds)]) for rate in arm.rates}
        tried = {rate: own[:, :, 0] for rate, own in both.items()}
        rate = max(tried, key=lambda r: float(tried[r].mean()))
        table.append([name, *(cell(tried[rate][:, shown - 1].tolist()) for shown in SHOWN), f"{rate:g}"])
        episodes.append(held_out(name, both[rate][:, -1].tolist()))
        print(name, {r: tried[r].mean(0).round(2).tolist() for r in tried}, file=sys.stderr)
    columns = ["arm", *(f"after {shown} rounds" for shown in SHOWN), "step size"]
    print(json.dumps({"columns": columns, "table": table, "episodes": episodes}, indent=1))


if __name__ == "__main__":
    main()
