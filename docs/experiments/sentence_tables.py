"""Rewards at the ends of sentences by a table: are they faster, with less variance, and does a weight move the length?

    python docs/experiments/sentence_tables.py --seeds 5

Sheet of row 216 (arXiv:2306.01693). A text has up to six sentences. A table draws for each place one of eight words,
of which one is unwanted, and whether the text goes on. Values and their places are those of `segments`; a critic is a
table by place and unwanted words so far, and advantages are GAE's with gamma 1 and lambda 0.95. 64 texts a step, rates
of 1 for the policy and 0.2 for the critic.

The first table: four sentences, -1 for each with the unwanted word, at its end or all at the end of the text, 60 steps.
Reported are unwanted words of a text over all steps, the first step with at most a fifth of those at first (60 where
none has), and the standard deviation of advantages over the first ten steps.

The second: the sentence at place i (from 0) has the unwanted word with probability i / 6, whatever is learned. 0.5 for
each sentence of the text stands for completeness; a sentence with the word loses a weight of 0, 0.5, 1, 2 or 4.
Reported is the number of sentences in the last ten of 150 steps.
"""

import argparse
import asyncio
import json
from functools import cache

import numpy as np

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.segments import Segments
from posttrain.statistics.intervals import mean
from posttrain.types import Group, Segment, Task, Trajectory

PLACES, WORDS, BATCH, RATE, CRITIC, LAM = 6, 8, 64, 1.0, 0.2, 0.95
TASK = Task(key="t", prompt="Write.")


@cache
def rewards(reward: Segments, words: tuple[int, ...]) -> tuple[float, ...]:
    """The reward at the end of each sentence."""
    texts = ["unwanted." if word == 0 else f"word{word}." for word in words]
    segment = Segment(actor="policy", token_ids=np.zeros(1, np.int64), trained=True, text=" ".join(texts))
    rollout = Trajectory(task=TASK, segments=(segment,), stop_reason="stop", sample=0)
    [score] = asyncio.run(reward.score(Group(key="g", trajectories=(rollout,)), RewardContext()))  # type: ignore[arg-type]
    if not score.spans:
        return (*[0.0] * (len(words) - 1), score.value)
    assert len(score.spans) == len(words), "a reward for each sentence"
    return tuple(value for _, _, value, _ in score.spans)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities along the last axis."""
    p: np.ndarray = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return p


class Writer:
    """A table of words and ends, and its critic."""

    def __init__(self, seed: int, *, ends: bool) -> None:
        self.rng = np.random.default_rng([seed, 216])
        self.words, self.on, self.ends = np.zeros((PLACES, WORDS)), np.zeros((PLACES, 2)), ends
        self.values = np.zeros((PLACES + 1, PLACES + 1))

    def text(self, length: int) -> list[int]:
        """The words of a text: of the unwanted one a fixed share where only ends are learned."""
        found: list[int] = []
        for place in range(length):
            if self.ends:
                found.append(0 if self.rng.random() < place / PLACES else 1)
                if place + 1 < length and self.rng.random() > softmax(self.on[place])[0]:
                    break
            else:
                found.append(int(self.rng.choice(WORDS, p=softmax(self.words[place]))))
        return found

    def learn(self, texts: list[list[int]], values: list[tuple[float, ...]], length: int) -> float:
        """A step; the standard deviation of advantages."""
        advantages, steps = [], {"words": np.zeros_like(self.words), "on": np.zeros_like(self.on)}
        moved = np.zeros_like(self.values)
        for text, own in zip(texts, values, strict=True):
            bad = [sum(word == 0 for word in text[:i]) for i in range(len(text) + 1)]
            known = [self.values[i, bad[i]] for i in range(len(text))] + [0.0]
            ahead, advantage = 0.0, [0.0] * len(text)
            for i in reversed(range(len(text))):
                ahead = own[i] + known[i + 1] - known[i] + LAM * ahead
                advantage[i] = ahead
                moved[i, bad[i]] += advantage[i] / len(texts)
            for i, word in enumerate(text):
                steps["words"][i] += advantage[i] * (np.eye(WORDS)[word] - softmax(self.words[i])) / len(texts)
                if i + 1 < length:
                    # What the choice to go on, or to end, leads to: the rewards after this sentence.
                    later = advantage[i + 1] + known[i + 1] if i + 1 < len(text) else 0.0
                    gain = later - softmax(self.on[i])[0] * self.values[i + 1, bad[i + 1]]
                    goes = np.eye(2)[int(i + 1 == len(text))]
                    steps["on"][i] += gain * (goes - softmax(self.on[i])) / len(texts)
            advantages += advantage
        self.values += CRITIC * len(texts) * moved / np.maximum(1, len(texts) / 4)
        self.words, self.on = self.words + RATE * steps["words"], self.on + RATE * steps["on"]
        return float(np.std(advantages))


def placed(seed: int, at_ends: bool) -> tuple[float, float, float]:
    """Unwanted words over all steps, the step with a fifth of them, the standard deviation of advantages."""
    reward = Segments(of=Regex(pattern="unwanted"), faults=True, right=0.0, wrong=-1.0, placed=at_ends)
    writer, bad, spread = Writer(seed, ends=False), [], []
    for _ in range(60):
        texts = [writer.text(4) for _ in range(BATCH)]
        bad.append(float(np.mean([text.count(0) for text in texts])))
        spread.append(writer.learn(texts, [rewards(reward, tuple(text)) for text in texts], 4))
    fifth = next((float(step) for step, own in enumerate(bad) if own <= 4 / WORDS / 5), 60.0)
    return float(np.mean(bad)), fifth, float(np.mean(spread[:10]))


def length(seed: int, weight: float) -> float:
    """Sentences of a text at the end."""
    reward = Segments(of=Regex(pattern="unwanted"), faults=True, right=0.5, wrong=0.5 - weight)
    writer, sizes = Writer(seed, ends=True), []
    for _ in range(150):
        texts = [writer.text(PLACES) for _ in range(BATCH)]
        writer.learn(texts, [rewards(reward, tuple(text)) for text in texts], PLACES)
        sizes.append(float(np.mean([len(text) for text in texts])))
    return float(np.mean(sizes[-10:]))


def shown(values: list[float], digits: int) -> str:
    """A mean with its 95 % interval."""
    own = mean(values)
    return f"{own.value:.{digits}f} [{own.interval.low:.{digits}f}, {own.interval.high:.{digits}f}]"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    found = {name: [placed(seed, at) for seed in seeds] for name, at in (("sentence", True), ("text", False))}
    found["difference"] = [
        tuple(a - b for a, b in zip(one, two, strict=True))  # type: ignore[misc]
        for one, two in zip(found["sentence"], found["text"], strict=True)
    ]
    table = [[name, *(shown(list(own), 4) for own in zip(*rows, strict=True))] for name, rows in found.items()]
    columns = ["at the end of the", "unwanted words", "a fifth, step", "std of advantages"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))
    rows = [[f"{weight:g}", shown([length(seed, weight) for seed in seeds], 2)] for weight in (0.0, 0.5, 1.0, 2.0, 4.0)]
    print(json.dumps({"columns": ["weight of a bad sentence", "sentences"], "table": rows}, indent=1))


if __name__ == "__main__":
    main()
