"""Sizes of benchmarked models, and the arithmetic that they need. Standard library only."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Size:
    """The shape of a decoder, with random weights."""

    name: str
    family: str = "qwen3"
    layers: int
    width: int
    heads: int
    kv_heads: int
    mlp_width: int
    vocabulary: int = 261
    """Tokens: 261 are those of the byte-level tokenizer."""

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.width // self.heads

    @property
    def products(self) -> dict[str, tuple[int, int]]:
        """The matrices of a layer, (inputs, outputs) each, and the head: what a token is multiplied by."""
        heads, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "qkv": (self.width, heads + 2 * kv),
            "o": (heads, self.width),
            "gate_up": (self.width, 2 * self.mlp_width),
            "down": (self.mlp_width, self.width),
            "head": (self.width, self.vocabulary),
        }

    @property
    def layer_weights(self) -> int:
        """Entries of the matrices of all layers."""
        return self.layers * sum(i * o for name, (i, o) in self.products.items() if name != "head")

    @property
    def head_weights(self) -> int:
        """Entries of the output projection (the embedding, which is tied to it)."""
        return self.width * self.vocabulary

    @property
    def weights(self) -> int:
        """Entries of all matrices."""
        return self.layer_weights + self.head_weights

    @property
    def kv_entries(self) -> int:
        """Numbers that the cache holds for a token."""
        return 2 * self.layers * self.kv_heads * self.head_dim

    def sampling_flops(self, prompts: Sequence[int], lengths: Sequence[Sequence[int]]) -> float:
        """Operations to sample completions: 2 a weight and token, attention counted, each prompt computed once.

        `lengths` are the completions' lengths by prompt. The last token of a completion is written, not read.
        """
        total = 0.0
        for prompt, written in zip(prompts, lengths, strict=True):
            total += 2 * (self.layer_weights * prompt + self.head_weights) + self._attention(0, prompt)
            total += sum(2 * self.weights * (n - 1) + self._attention(prompt, n - 1) for n in written)
        return total

    def learning_flops(self, prompts: Sequence[int], lengths: Sequence[Sequence[int]]) -> float:
        """Operations of a forward and a backward pass: three times those of the forward, each prompt computed once.

        `lengths` are the completions' lengths by prompt. The output projection is needed for their tokens only, the
        layers for all tokens but the last of each.
        """
        forward = 0.0
        for prompt, written in zip(prompts, lengths, strict=True):
            forward += 2 * self.layer_weights * prompt + self._attention(0, prompt)
            for n in written:
                forward += 2 * (self.layer_weights * (n - 1) + self.head_weights * n) + self._attention(prompt, n - 1)
        return 3 * forward

    def sampling_bytes(
        self, prompts: Sequence[int], lengths: Sequence[Sequence[int]], *, steps: int, width: int
    ) -> float:
        """Bytes that decoding must read: every weight once a step, and the keys and values that each token attends to.

        `steps` decoding steps, `width` bytes a number.
        """
        attended = sum(
            (n - 1) * prompt + n * (n - 1) / 2
            for prompt, written in zip(prompts, lengths, strict=True)
            for n in written
        )
        return width * (steps * self.weights + attended * self.kv_entries)

    def _attention(self, past: int, new: int) -> float:
        """Operations of scores and weighted sums when `new` tokens follow `past` ones."""
        pairs = new * past + new * (new + 1) / 2
        return 4.0 * self.layers * self.heads * self.head_dim * pairs


SIZES = {
    size.name: size
    for size in (
        Size(name="0.2M", layers=2, width=96, heads=4, kv_heads=2, mlp_width=288),
        Size(name="3.2M", layers=4, width=256, heads=4, kv_heads=2, mlp_width=768),
        Size(name="25M", layers=8, width=512, heads=8, kv_heads=4, mlp_width=1536),
        Size(
            name="135M",  # SmolLM2-135M
            family="llama",
            layers=30,
            width=576,
            heads=9,
            kv_heads=3,
            mlp_width=1536,
            vocabulary=49_152,
        ),
        Size(
            name="qwen2.5-0.5b",
            family="qwen2",
            layers=24,
            width=896,
            heads=14,
            kv_heads=2,
            mlp_width=4864,
            vocabulary=151_936,
        ),
        Size(
            name="qwen2.5-1.5b",
            family="qwen2",
            layers=28,
            width=1536,
            heads=12,
            kv_heads=2,
            mlp_width=8960,
            vocabulary=151_936,
        ),
    )
}
CPU_SIZES = ("0.2M", "3.2M", "25M")
CUDA_SIZES = ("qwen2.5-0.5b", "qwen2.5-1.5b")
BY_KERNEL = "by the kernel"
"""In the name of a product that the learner's own kernel makes."""
ITEM_BYTES = {"float32": 4, "bfloat16": 2}
