"""A language model: a Qwen3- or Llama-shaped decoder with the byte-level tokenizer."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.shapes import Shape, VisionShape


@frozen
class Decoder(Shape):
    """Sizes of a decoder."""

    architecture: Literal["qwen3", "llama"] = "qwen3"
    """Architecture of the decoder, by its name in Hugging Face configs."""
    layers: PositiveInt = 4
    """Transformer layers."""
    width: PositiveInt = 128
    """Size of the hidden states."""
    heads: PositiveInt = 4
    """Attention heads, each of size width / heads."""
    kv_heads: PositiveInt = 2
    """Heads of keys and values, each shared by heads / kv_heads attention heads."""
    mlp_width: PositiveInt = 384
    """Size of the hidden layer of an MLP."""
    context: PositiveInt = 512
    """Longest sequence in tokens."""
    words: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Texts that are one token each, besides the bytes."""
    vision: VisionShape | None = None
    """Image input; None for a text model."""
    seed: NonNegativeInt = 0
    """Which random weights."""

    def make(self, path: Path) -> Path:
        """Write a Hugging Face folder."""
        from posttrain.policies.folder import new_folder

        return new_folder(
            path,
            architecture=self.architecture,
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            kv_heads=self.kv_heads,
            mlp_width=self.mlp_width,
            context=self.context,
            words=self.words,
            vision=self.vision,
            seed=self.seed,
        )
