"""Q-learning of the order of subtasks: what is done next, by what the text is and what was found so far.

A state is the text of an instance with the answers found so far; an action is a subtask that is not done yet; the
episode ends when all are done. A frozen worker carries out subtasks, so that it is a part of the environment. Q of a
state and an action is a small network on hashed words of both and of their pairs. B examples, D features.
"""

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import permutations
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from posttrain.components.diagnostics._order_learning import OrderLearning

HASHED: Final = 1024
"""D."""
HIDDEN: Final = 64
TOGETHER: Final = 16
"""Episodes that are played with the same weights."""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A text with subtasks."""

    text: str
    gold: Mapping[str, str]
    """Reference answer of each subtask, in their order in the data."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A subtask for the worker."""

    instance: Instance
    found: tuple[tuple[str, str], ...]
    """Names and answers of the subtasks done so far, sorted by name."""
    subtask: str


Worker = Callable[[Sequence[Request]], Sequence[str]]


class Cached:
    """Sends each request to the worker once; its decoding is greedy."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._answers: dict[tuple[str, tuple[tuple[str, str], ...], str], str] = {}
        self.asked = 0
        """Requests in all, those that were answered from the cache included."""

    @property
    def calls(self) -> int:
        """Requests that the worker carried out."""
        return len(self._answers)

    def __call__(self, requests: Sequence[Request]) -> list[str]:
        """The answers, in order."""
        self.asked += len(requests)
        new = {self._key(r): r for r in requests if self._key(r) not in self._answers}
        self._answers.update(zip(new, self._worker(list(new.values())) if new else (), strict=True))
        return [self._answers[self._key(r)] for r in requests]

    def _key(self, request: Request) -> tuple[str, tuple[tuple[str, str], ...], str]:
        return request.instance.text, request.found, request.subtask


def is_right(answer: str, gold: str) -> bool:
    """Whether they are the same words, in any case."""
    return answer.lower().split() == gold.lower().split()


@dataclass(frozen=True, kw_only=True)
class Step:
    """A transition of the replay."""

    seen_D: NDArray[np.float32]
    """Of the state and the action."""
    reward: float
    returned: float
    """Discounted rewards to the end."""
    next_AD: NDArray[np.float32]
    """[A, D] of the next state and each of its A actions; none at the end."""


@dataclass(kw_only=True)
class Episode:
    """One instance in play."""

    instance: Instance
    found: dict[str, str] = field(default_factory=dict)
    right: list[bool] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    seen: list[NDArray[np.float32]] = field(default_factory=list)

    @property
    def left(self) -> list[str]:
        """Subtasks that are not done."""
        return [name for name in self.instance.gold if name not in self.found]

    def request(self, subtask: str) -> Request:
        """This subtask for the worker."""
        return Request(instance=self.instance, found=tuple(sorted(self.found.items())), subtask=subtask)

    def options(self) -> NDArray[np.float32]:
        """[A, D] features of the actions."""
        return np.stack([features(self.instance.text, self.found, name) for name in self.left])

    def do(self, subtask: str, answer: str) -> None:
        """Take an answer."""
        self.found[subtask] = answer
        self.right.append(is_right(answer, self.instance.gold[subtask]))
        self.order.append(subtask)


def features(text: str, found: Iterable[str], subtask: str) -> NDArray[np.float32]:
    """[D] hashed words of the text and names that were found, each alone and with the action; of unit length."""
    return _features(text, tuple(sorted(found)), subtask)


@lru_cache(maxsize=65536)
def _features(text: str, found: tuple[str, ...], subtask: str) -> NDArray[np.float32]:
    words = [*text.lower().split(), *(f"found:{name}" for name in found)]
    marks = [f"do:{subtask}", *words, *(f"{word}&do:{subtask}" for word in words)]
    counts = np.zeros(HASHED, np.float32)
    for mark in marks:
        counts[zlib.crc32(mark.encode()) % HASHED] += 1.0
    return counts / np.float32(np.linalg.norm(counts))


class Actor:
    """Q and its slow copy, with the replay."""

    def __init__(self, settings: OrderLearning, seed: int) -> None:
        self.settings, self.rng = settings, np.random.default_rng(seed)
        generator = torch.Generator().manual_seed(seed)
        layers = torch.nn.Linear(HASHED, HIDDEN), torch.nn.Linear(HIDDEN, 1)
        self.net: Any = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1])
        with torch.no_grad():
            for layer in layers:
                layer.weight.uniform_(-(layer.in_features**-0.5), layer.in_features**-0.5, generator=generator)
                layer.bias.zero_()
        self.slow = deepcopy(self.net)
        self.steps: deque[Step] = deque(maxlen=settings.replay)
        self.updates = 0
        self._optimizer = torch.optim.Adam(self.net.parameters(), settings.rate)

    def q(self, seen_BD: NDArray[np.float32], *, slow: bool = False) -> NDArray[np.float64]:
        """[B] values."""
        with torch.no_grad():
            out = (self.slow if slow else self.net)(torch.from_numpy(seen_BD))
        return np.asarray(out[:, 0].double().numpy())

    def choose(self, episode: Episode, share: float) -> str:
        """The subtask with the highest Q, the first of equals; a random one with this probability."""
        left = episode.left
        if share and self.rng.random() < share:
            return left[int(self.rng.integers(len(left)))]
        return left[int(self.q(episode.options()).argmax())]

    def targets(self, steps: Sequence[Step]) -> NDArray[np.float32]:
        """[B] what Q of each step is regressed on."""
        if self.settings.targets == "returns":
            return np.array([step.returned for step in steps], np.float32)
        target_B = np.array([step.reward for step in steps], np.float32)
        going_on = [i for i, step in enumerate(steps) if len(step.next_AD)]
        if going_on:
            options = np.concatenate([steps[i].next_AD for i in going_on])
            fast, slow, start = self.q(options), self.q(options, slow=True), 0
            for i in going_on:
                end = start + len(steps[i].next_AD)
                target_B[i] += self.settings.gamma * slow[start + int(fast[start:end].argmax())]
                start = end
        return target_B

    def update(self) -> float:
        """One update on a batch of the replay; returns the loss, half the mean squared error."""
        chosen = [self.steps[int(i)] for i in self.rng.integers(len(self.steps), size=self.settings.batch)]
        target_B = torch.from_numpy(self.targets(chosen))
        loss = 0.5 * (self.net(torch.from_numpy(np.stack([s.seen_D for s in chosen])))[:, 0] - target_B).square().mean()
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        self.updates += 1
        if self.updates % self.settings.copy_every == 0:
            self.slow.load_state_dict(self.net.state_dict())
        return float(loss.detach())


def rewards(episode: Episode, *, final: bool) -> list[float]:
    """1 for each right answer, or at the end alone for all being right."""
    if not final:
        return [float(right) for right in episode.right]
    return [0.0] * (len(episode.right) - 1) + [float(all(episode.right))]


def remember(actor: Actor, episode: Episode, *, final: bool) -> None:
    """Add the steps of an episode to the replay."""
    given, returned = rewards(episode, final=final), 0.0
    steps, found = list[Step](), dict(episode.found)
    for place in reversed(range(len(given))):
        returned = given[place] + actor.settings.gamma * returned
        later = [name for name in episode.instance.gold if name not in found]
        options = [features(episode.instance.text, found, name) for name in later]
        next_AD = np.stack(options) if options else np.zeros((0, HASHED), np.float32)
        del found[episode.order[place]]
        steps.append(Step(seen_D=episode.seen[place], reward=given[place], returned=returned, next_AD=next_AD))
    actor.steps.extend(reversed(steps))


def play(actor: Actor, instances: Sequence[Instance], worker: Cached, share: float) -> list[Episode]:
    """Episodes with this share of random actions."""
    episodes = [Episode(instance=instance) for instance in instances]
    while open_ones := [e for e in episodes if e.left]:
        chosen = [actor.choose(e, share) for e in open_ones]
        for e, name in zip(open_ones, chosen, strict=True):
            e.seen.append(features(e.instance.text, e.found, name))
        answers = worker([e.request(name) for e, name in zip(open_ones, chosen, strict=True)])
        for e, name, answer in zip(open_ones, chosen, answers, strict=True):
            e.do(name, answer)
    return episodes


def learn(actor: Actor, instances: Sequence[Instance], worker: Cached, episodes: int, *, final: bool) -> None:
    """Play and update, one update per step that was played."""
    first, last = actor.settings.explore
    for done in range(0, episodes, TOGETHER):
        count = min(TOGETHER, episodes - done)
        own = [instances[int(i)] for i in actor.rng.integers(len(instances), size=count)]
        played = play(actor, own, worker, first + (last - first) * done / max(episodes - 1, 1))
        for episode in played:
            remember(actor, episode, final=final)
        for _ in range(sum(len(episode.order) for episode in played)):
            actor.update()


def in_order(instances: Sequence[Instance], order: Sequence[str], worker: Cached) -> NDArray[np.bool_]:
    """[instances, subtasks] whether each answer is right in a fixed order, and True for subtasks that it lacks."""
    episodes = [Episode(instance=instance) for instance in instances]
    for name in order:
        own = [e for e in episodes if name in e.instance.gold]
        for e, answer in zip(own, worker([e.request(name) for e in own]), strict=True):
            e.do(name, answer)
    return np.array([[*e.right, *[True] * (len(order) - len(e.right))] for e in episodes])


def orders(names: Sequence[str]) -> list[tuple[str, ...]]:
    """All orders."""
    return list(permutations(names))
