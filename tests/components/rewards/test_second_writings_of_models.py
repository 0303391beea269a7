"""Rewards that read a model, labels or syntax against a second writing of each formula, on 3,000 random cases."""

import asyncio
import json
import math
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from posttrain.components.advantages.fixed_baseline import FixedBaseline
from posttrain.components.advantages.immediate import Immediate
from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.captions import Captions
from posttrain.components.rewards.increments import Increments
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.refactored import Refactored
from posttrain.components.rewards.teaching import Teaching
from posttrain.components.rewards.text_similarity import TextSimilarity
from posttrain.grading.text_pieces import embedded
from posttrain.stages.rl.credit import batch_of
from posttrain.stages.rl.spans import with_span_rewards
from posttrain.types import Group, Segment, Task, Trajectory
from tests.builders import ScriptedSampler
from tests.components.rewards.judging import attempt, score_all

CASES = 3000
pytestmark = pytest.mark.slow


def test_refactored_functions() -> None:
    """Row 93: texts are put together from parts, of which it is known what each is for the three checks."""
    rng = Random(93)
    reward, wrong = Refactored(), 0
    for _ in range(CASES // 100):
        c = rng.randint(2, 9)
        source = f"def h(x):\n return x\ndef f(a):\n b = a * {c}\n d = b + {c}\n return d - a"
        task = Task(key="t", prompt="t", fields={"source": source})
        made = [_refactored(rng, c) for _ in range(100)]
        scores = score_all(reward, *(attempt(text, task) for text, _ in made))
        for (text, points), score in zip(made, scores, strict=True):
            assert score.value == sum(points), text
            found = [score.parts[name].value for name in ("syntax", "names", "extraction")]
            assert found == [float(own) for own in points], text
            wrong += sum(points) < 3
    assert CASES // 10 < wrong < CASES - CASES // 10


def _refactored(rng: Random, c: int) -> tuple[str, tuple[bool, bool, bool]]:
    """A text, and whether it parses, compiles by itself, and has an extracted function."""
    new, moved, called = (rng.random() < 0.8 for _ in range(3))
    parses, resolves, fits, present = (rng.random() < 0.9 for _ in range(4))
    name = rng.choice(("g", "h"))  # h was there before
    block = [f" b = a * {c}", f" d = b + {c}"]
    body = [" return d"] if moved else []
    inner = f"def {name}(a):\n" + "\n".join([*(block if moved else [f" return a + {c + 1}"]), *body])
    lines = [f" d = {name}({'a' if fits else 'a, a, a'})"] if called else ([" d = a"] if moved else block)
    end = " return d - a" if resolves else " return d - missing"
    function = "\n".join([f"def {'f' if present else 'k'}(a):", *(lines if new else block), end])
    text = f"{inner}\n{function}" if new else function
    text = text if parses else text.replace("(a):", "(a)", 1)
    if not parses:
        return text, (False, False, False)
    lost = called or moved  # the block is not in f any more
    extracted = new and name == "g" and called and moved and lost and present
    return text, (True, resolves and present and (fits or not (new and called)), extracted)


class Values(ScriptedSampler):
    """A value of a text by its own number."""

    async def score(self, token_ids: np.ndarray, *, vectors: np.ndarray | None = None) -> float:
        return math.sin(len(token_ids) * 1.7 + float(token_ids.sum()))


def test_increments_of_values() -> None:
    """Row 100: token t has V(..t) - V(..t-1) to 4 decimals and no more, the end token 0."""
    rng, sampler = Random(100), Values("value")
    advantage, models = Immediate(advantage=FixedBaseline()), {"policy": _tokenizer(sampler)}
    for _ in range(CASES // 30):
        texts = ["".join(rng.choices("abc =+", k=rng.randint(0, 6))) for _ in range(30)]
        task = Task(key="t", prompt="x", answer="ab")
        rows = []
        for text in texts:
            ids = sampler.encode_completion("", text)
            own = Segment(actor="policy", token_ids=ids, trained=True, text=text, logp=np.zeros(len(ids), np.float32))
            rows.append(Trajectory(task=task, segments=(sampler.prompt(task), own), stop_reason="stop"))
        scores = score_all(Increments(correct=TextSimilarity()), *rows, context=_asking(value=sampler))
        scored = [row.scored(score) for row, score in zip(rows, scores, strict=True)]
        placed = with_span_rewards([Group(key="t", trajectories=tuple(scored))], models)
        _, credit = advantage(advantage.start(), batch_of(placed, {}, {}, 0.0))
        for row, score, found_T in zip(rows, scores, credit.advantages, strict=True):
            ids = row.token_ids
            start = len(ids) - len(row.completion_ids)
            value = [asyncio.run(sampler.score(ids[:n])) for n in range(start, len(ids))]
            wanted = [round(b - a, 4) for a, b in pairwise(value)]
            assert found_T == pytest.approx([*wanted, 0.0], abs=1e-5)
            assert score.value == pytest.approx(value[-1] - value[0], abs=5e-5 * len(ids))


def _tokenizer(sampler: ScriptedSampler) -> Any:
    return type(
        "Model", (), {"tokenizer": type("Bytes", (), {"token_bytes": lambda _, i: bytes([i] if i > 1 else [])})()}
    )()


def _asking(**samplers: ScriptedSampler) -> RewardContext:
    return RewardContext(samplers=samplers)


class Student(ScriptedSampler):
    """The log-probability of a byte depends on the one before it."""

    async def logp(
        self, token_ids: np.ndarray, *, temperature: float = 1.0, vectors: np.ndarray | None = None
    ) -> np.ndarray:
        assert temperature == 0.7
        return np.array([nats(a, b) for a, b in pairwise(token_ids)], np.float32)


def nats(before: int, byte: int) -> float:
    return -((int(before) * 7 + int(byte) * 13) % 31) / 10


def test_explanations_for_a_student() -> None:
    """Row 313: mean + .01 min of l, less 3 mean + .03 max of signed d, and -1 without the closing tag."""
    rng, student, reward = Random(313), Student("student"), Teaching(closing=".", between="|")
    for _ in range(CASES // 30):
        question, solution = ("".join(rng.choices("qrs", k=rng.randint(0, 4))) for _ in range(2))
        task = Task(key="q", prompt="?", fields={"question": question, "solution": solution})
        rows, wanted = [], []
        for _ in range(30):
            thought, closed = "".join(rng.choices("abc", k=rng.randint(0, 5))), rng.random() < 0.7
            text = thought + "." * closed + rng.choice(("", "cab")) * closed
            ids = np.array([*text.encode(), *([0] if rng.random() < 0.5 else [])], np.int64)
            own_T = -np.array([rng.expovariate(1) for _ in ids])
            own = Segment(actor="policy", token_ids=ids, trained=True, logp=own_T.astype(np.float32), text=text)
            prompt = Segment(actor="prompt", token_ids=np.arange(1, 5), text="?")
            rows.append(Trajectory(task=task, segments=(prompt, own), stop_reason="stop"))
            read = [1, *question.encode(), *thought.encode(), *b".|", *solution.encode()]
            last = len(read) - len(solution)
            l_S = [nats(read[i - 1], read[i]) for i in range(last, len(read))] or [-1.0]
            start = 1 + len(question)
            d_T = [float(own_T[j]) - nats(read[start + j - 1], read[start + j]) for j in range(len(thought))] or [1.0]
            solved = sum(l_S) / len(l_S) + 0.01 * min(l_S)
            wanted.append(solved - 3 * sum(d_T) / len(d_T) - 0.03 * max(d_T) - (0.0 if closed else 1.0))
        scores = score_all(reward, *rows, context=_asking(student=student))
        assert [score.value for score in scores] == pytest.approx(wanted, abs=1e-4)


def _played(captions: list[str], won: bool) -> Trajectory:
    segments = [Segment(actor="prompt", token_ids=np.arange(1, 4), text="go ")]
    for text in captions:
        own = Segment(actor="policy", token_ids=np.arange(2), trained=True, logp=np.zeros(2, np.float32), text="a\n")
        segments += [own, Segment(actor="environment", token_ids=np.arange(2), text=f"{text}\nmore\n")]
    last = Segment(actor="policy", token_ids=np.arange(2), trained=True, logp=np.zeros(2, np.float32), text="xy"[won])
    return Trajectory(task=Task(key="q", prompt="go ", answer="y"), segments=(*segments, last), stop_reason="stop")


CAPTIONS = [f"you {verb} the {thing}" for verb in ("take", "see", "drop") for thing in ("key", "door", "cup", "")]


class Labels:
    """What is known of captions, and how it is learned, written by torch."""

    def __init__(self, kind: str) -> None:
        self.kind, self.weights = kind, torch.zeros(257, dtype=torch.float64)
        self.labels: list[Any] = []
        self.values: list[float] = []
        self.trained = False

    def rows(self, place: int) -> torch.Tensor:
        return torch.tensor(np.stack([np.append(embedded(own[place]), 1.0) for own in self.labels]))

    def arrived(self, new: list[Any]) -> None:
        self.labels += new
        if not new or self.kind == "table":
            return
        target, w = torch.tensor([own[-1] for own in self.labels], dtype=torch.float64), self.weights
        for _ in range(32):
            w = w.detach().requires_grad_()
            if self.kind == "classifier":
                loss = torch.nn.functional.binary_cross_entropy_with_logits(self.rows(0) @ w, target)
            else:
                both = torch.stack([self.rows(0) @ w, self.rows(1) @ w], 1)
                loss = -(torch.stack([target, 1 - target], 1) * both.log_softmax(1)).sum(1).mean()
            [slope] = torch.autograd.grad(loss, w)
            w = w - 10.0 * slope
        self.weights, self.trained = w.detach(), True

    def raw(self, caption: str) -> float:
        return float(self.weights @ torch.tensor(np.append(embedded(caption), 1.0)))

    def reward(self, caption: str) -> float:
        if self.kind == "table":
            return float(dict(self.labels).get(caption, 0.0))
        if not self.trained:
            return 0.0
        if self.kind == "classifier":
            return float(1 / (1 + math.exp(-self.raw(caption))) > 0.5)
        spread = float(np.std(self.values)) if len(self.values) > 1 else 0.0
        z = (self.raw(caption) - float(np.mean(self.values))) / spread if spread > 1e-9 else 0.0
        return z if z > -0.5 else 0.0


@pytest.mark.parametrize("kind", ["table", "classifier", "ranking"])
def test_captions_with_late_labels(kind: Any) -> None:
    """Row 208: extrinsic r + weight reward(caption) / N^exponent, with labels `delay` steps after their request."""
    rng, steps = Random(208), 10
    for _ in range(CASES // 3 // steps // 5):
        delay, exponent = rng.randint(1, 3), rng.choice((0.0, 1.0, 3.0))
        reward = Captions(of=Match(), model=kind, helpful=("take",), delay=delay, exponent=exponent, per_step=4)
        state: dict[str, Any] = {}
        mine, under_way, seen_before = Labels(kind), dict[int, list[Any]](), list[str]()
        for step in range(steps):
            episodes = [
                ([rng.choice(CAPTIONS) for _ in range(rng.randint(0, 6))], rng.random() < 0.5) for _ in range(5)
            ]
            context = RewardContext(learning=True, step=step, state=state)
            rows = [_played(*own) for own in episodes]
            found = list(asyncio.run(reward.score(Group(key="q", trajectories=tuple(rows)), context)))
            mine.arrived(under_way.pop(step, []))
            if kind == "ranking" and mine.trained:
                mine.values += [mine.raw(own) for own in seen_before]
            under_way[step + delay] = _requested(kind, state, step + delay)
            for (captions, won), score in zip(episodes, found, strict=True):
                total = 0.0
                for number, own in enumerate(captions):
                    times = captions[: number + 1].count(own)
                    total += 0.4 * mine.reward(own) / times**exponent
                assert score.value == pytest.approx(10.0 * won + total, abs=1e-6)
            seen_before = [own for captions, _ in episodes for own in captions]
            state = json.loads(json.dumps(state))


def _requested(kind: str, state: dict[str, Any], due: int) -> list[Any]:
    """What was requested in this step, labelled anew by the rule; each is under way once, and has no label yet."""
    own = [tuple(row[1:-1]) for row in state["pending"] if row[0] == due]
    others = [tuple(row[1:-1]) for row in state["pending"] if row[0] != due]
    known = [tuple(row[:-1]) for row in state["labels"]]
    distinct = [frozenset(row) for row in (*own, *others, *known)]
    assert len(own) <= 4 and len(set(distinct)) == len(distinct)
    helps = [[float("take" in text) for text in row] for row in own]
    if kind == "ranking":
        return [(*row, 0.5 + 0.5 * (a - b)) for row, (a, b) in zip(own, helps, strict=True)]
    return [(*row, a) for row, [a] in zip(own, helps, strict=True)]
