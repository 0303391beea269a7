"""The arithmetic that limits are made of, by hand."""

import pytest
import torch

from posttrain.policies._shape import Shape
from posttrain.policies.decoder import Decoder
from posttrain.policies.folder import new_folder
from posttrain.runs.speed.sizes import CPU_SIZES, CUDA_SIZES, SIZES, Size

# A layer of 4 x 4 products: qkv 4x(4+2+2), o 4x4, gate and up 4x12, down 6x4; the head is 4x10.
TINY = Size(name="tiny", layers=1, width=4, heads=2, kv_heads=1, mlp_width=6, vocabulary=10)


def test_weights_by_hand() -> None:
    assert TINY.products == {"qkv": (4, 8), "o": (4, 4), "gate_up": (4, 12), "down": (6, 4), "head": (4, 10)}
    assert TINY.layer_weights == 32 + 16 + 48 + 24 == 120
    assert TINY.head_weights == 40
    assert TINY.kv_entries == 2 * 1 * 1 * 2


def test_sampling_by_hand() -> None:
    # A prompt of 3 tokens, once, and its one set of logits; 3 keys and queries make 6 pairs of 4 * 4 operations.
    prompt = 2 * (120 * 3 + 40) + 6 * 16
    # 2 new tokens: one is read again, and reads 3 + 1 tokens. 1 new token: nothing is read again.
    two, one = 2 * 160 + 4 * 16, 0
    assert TINY.sampling_flops([3], [[2, 1]]) == prompt + two + one
    assert TINY.sampling_flops([3, 3], [[2, 1], [2, 1]]) == 2 * TINY.sampling_flops([3], [[2, 1]])


def test_learning_by_hand() -> None:
    # 3 + 2 tokens: the last is not read; logits for 2; 4 tokens make 10 pairs. Backward is twice forward.
    assert TINY.learning_flops([3], [[2]]) == 3 * (2 * (120 * 4 + 40 * 2) + 10 * 16)
    # A second completion of the prompt: one token more is read, two are written, and 4 pairs are inspected.
    assert TINY.learning_flops([3], [[2, 2]]) == 3 * (2 * (120 * 5 + 40 * 4) + 14 * 16)


def test_bytes_by_hand() -> None:
    # 3 steps read 160 weights each. 3 new tokens: the first costs no step, the others read at 3 + 1 and 3 + 2 tokens.
    assert TINY.sampling_bytes([3], [[3]], steps=3, width=2) == 2 * (3 * 160 + (4 + 5) * 4)


@pytest.mark.parametrize("name", CPU_SIZES)
def test_the_weights_are_those_of_the_model(name: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    size = SIZES[name]
    if size.weights > 1e6:
        shape = {"layers": size.layers, "width": size.width, "heads": size.heads, "kv_heads": size.kv_heads}
        assert size.weights == pytest.approx({"3.2M": 3.2e6, "25M": 25.3e6}[name], rel=0.01), shape
        return
    new_folder(tmp_path / "m", layers=2, width=96, heads=4, kv_heads=2, mlp_width=288)
    import json

    with torch.device("meta"):
        body = Decoder(Shape.from_config(json.loads((tmp_path / "m" / "config.json").read_text())))
    assert size.weights == sum(p.numel() for p in body.parameters() if p.dim() == 2)


def test_published_sizes() -> None:
    """Qwen2.5 model cards: 0.49 and 1.54 billion parameters."""
    half, more = (SIZES[name] for name in CUDA_SIZES)
    assert half.weights == pytest.approx(0.49e9, rel=0.02)
    assert more.weights == pytest.approx(1.54e9, rel=0.02)
