"""Memory of a step of GRPO: where its peak is, and what it consists of.

Sampling and learning take turns in one process, as in a run, and the system's peak of the process is read after each.
Parts are counted from the tensors themselves; what they do not explain is the rest: temporary results, and what the C
library has not given back.
"""

import time
from collections.abc import Callable
from typing import Any

from posttrain.kernels.memory import forget_peak, peak_memory, resident_memory
from posttrain.policies import Policy
from posttrain.recipes.changes import rl_of
from posttrain.recipes.tree import Recipe
from posttrain.runs.speed._cases import LearningCase, SamplingCase


class MemoryCase:
    """A turn samples the workload, then learns from as many tokens."""

    def __init__(self, recipe: Recipe, load: Callable[[], Policy], make: Callable[[Policy], Any]) -> None:
        """`make` gives a sampling case and a learning case for the policy that `load` gives."""
        self._program = resident_memory()
        self._policy = load()
        both: tuple[SamplingCase, LearningCase] = make(self._policy)
        self._sampling, self._learning = both
        self._settings = rl_of(recipe).learner

    def turn(self) -> dict[str, Any]:
        """Bytes at the peak of sampling and of learning, with their parts."""
        begun = time.perf_counter()
        peaks = {}
        for name, case in (("sampling", self._sampling), ("learning", self._learning)):
            self._policy.give_back_memory()
            forget_peak()
            case.turn()
            peaks[name] = peak_memory()
        parts = {"sampling": self._while_sampling(), "learning": self._while_learning()}
        for name, peak in peaks.items():
            parts[name]["rest"] = peak - sum(parts[name].values())
        return {"seconds": time.perf_counter() - begun, "peaks": peaks, "parts": parts}

    def _both(self) -> dict[str, int]:
        """What is there all the time."""
        weights = sum(p.nbytes for p in self._policy.parameters())
        optimizer = sum(tensor.nbytes for tensor in self._learning.learner.state(copied=False)[1].values())
        return {"program": self._program, "weights": weights, "optimizer": optimizer}

    def _while_sampling(self) -> dict[str, int]:
        body, requested = self._policy.body, self._sampling.workload
        token = self._sampling.size.kv_entries * next(body.parameters()).element_size()
        cached = sum(map(sum, requested.lengths)) + sum(requested.prompt_lengths)
        if body.cached_tokens is not None:
            cached = min(cached, body.cached_tokens)
        return {**self._both(), "decoding copy": body.decoding_bytes, "keys and values": cached * token}

    def _while_learning(self) -> dict[str, int]:
        tokens = min(self._settings.tokens_for(self._policy), self._learning.tokens)
        width = next(self._policy.parameters()).element_size()
        written = sum(example.num_trained for example in self._learning.examples)
        return {
            **self._both(),
            "gradients": 4 * sum(p.numel() for p in self._policy.parameters() if p.requires_grad),
            "activations": tokens * (self._policy.kept_bytes or 0),
            "logits": min(tokens, written) * self._policy.body.vocabulary_size * width,
        }
