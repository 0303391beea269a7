"""Benchmark workloads: prompts and completion lengths, drawn from a seed.

    fixed    prompts of 32 tokens, 64 new tokens each
    ragged   prompts of 16 to 128 tokens, lengths geometric with mean 48, cut at 256

The model ends by itself: `end_probability` is that of its end token at every position. So every program that samples
it has the same work. Lengths that are drawn here (`Workload.lengths`) are those of synthetic completions to learn from.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

Name = Literal["fixed", "ragged"]
NAMES: tuple[Name, ...] = ("fixed", "ragged")
GROUP = 8
"""Completions of a prompt."""
MEAN, CUT = 48, 256


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Prompts, and the lengths of their completions."""

    name: Name
    prompts: tuple[tuple[int, ...], ...]
    """Token ids."""
    lengths: tuple[tuple[int, ...], ...]
    """New tokens, by prompt, of completions to learn from."""

    @property
    def prompt_lengths(self) -> list[int]:
        """Tokens of each prompt."""
        return [len(prompt) for prompt in self.prompts]

    @property
    def limit(self) -> int:
        """Largest number of new tokens of a completion."""
        return most_tokens(self.name)


def workload(name: Name, samples: int, seed: int = 0) -> Workload:
    """A workload of `samples` completions, eight per prompt. Prompts are printable characters."""
    rng = np.random.Generator(np.random.Philox(key=[seed, NAMES.index(name)]))
    groups = -(-samples // GROUP)
    prompt_lengths = np.full(groups, 32) if name == "fixed" else rng.integers(16, 129, groups)
    # Letters without digits: the reward is the share of digits, and prompts should not show any.
    prompts = tuple(tuple(int(i) for i in rng.integers(ord("a"), ord("z") + 1, n)) for n in prompt_lengths)
    drawn = np.full((groups, GROUP), 64) if name == "fixed" else rng.geometric(1 / MEAN, (groups, GROUP)).clip(max=CUT)
    lengths = tuple(tuple(int(n) for n in row) for row in drawn)
    return Workload(name=name, prompts=prompts, lengths=lengths)


def most_tokens(name: Name) -> int:
    """New tokens after which a completion is cut."""
    return 64 if name == "fixed" else CUT


def end_probability(name: Name) -> float:
    """Probability of the end token at every position; 0 for a model that never ends."""
    return 0.0 if name == "fixed" else 1 / MEAN


def learning_rate(name: Name, model: str | Path) -> float:
    """Learning rate of the measured runs: 1e-4 for 4 layers of width 256, less for a folder with a larger model.

    At 1e-4 a random model of 135M may write the same token forever after one step, and then curves say nothing. Tiny
    where the model ends by itself, so that lengths do not change.
    """
    if name == "ragged":
        return 1e-6
    config = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
    return float(1e-4 * min(1.0, 4 * 256 / (config["num_hidden_layers"] * config["hidden_size"])))


def text_of(token_ids: Sequence[int]) -> str:
    """The text of a prompt: one character per token."""
    return bytes(token_ids).decode("ascii")


def share_of_digits(completion: str) -> float:
    """The reward of the measured runs: inexpensive, and learnable by a random model."""
    return sum(character in "0123456789" for character in completion) / max(len(completion), 1)
