"""Several tokens of each sequence in one call: the same bits as step by step."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from posttrain.engines._random import uniform
from posttrain.kernels import Drawing
from posttrain.kernels import choose as chosen_by_kernel
from posttrain.models import LoRA
from posttrain.policies import Body, Cache, _decoding
from posttrain.policies.folder import new_folder
from posttrain.policies.lora import adapters, merge_adapters
from tests.kernels import needs_kernels
from tests.policies.made_models import load, pack, random_sequences

pytestmark = needs_kernels


def drawing_of(rows: list[int], written: int) -> Drawing:
    """Each row has its own key and temperature; some are greedy."""
    return Drawing(
        temperature_B=torch.tensor([(0.0, 1.0, 0.7)[row % 3] for row in rows], dtype=torch.float64),
        key_B=torch.from_numpy(np.array([(row + 1) * 0x9E3779B97F4A7C15 % 2**64 for row in rows], np.uint64)),
        counter_B=torch.from_numpy(np.full(len(rows), written, np.uint64)),
    )


def step_by_step(body: Body, cache: Cache, rows: list[int], last_B: Tensor, steps: int) -> tuple[Tensor, ...]:
    tokens, numbers = [last_B], []
    for written in range(steps):
        hidden_BD = body.extend(cache, rows, pack([token[None] for token in tokens[-1]]))
        drawing = drawing_of(rows, written)
        draw_B = torch.from_numpy(uniform(drawing.key_B.numpy(), drawing.counter_B.numpy()))
        token_B, *found_B = chosen_by_kernel(body.next_logits(cache, hidden_BD), drawing.temperature_B, draw_B)
        tokens.append(token_B)
        numbers.append(found_B)
    return torch.stack(tokens[1:], 1), *(torch.stack(kind, 1) for kind in zip(*numbers, strict=True))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("architecture", ["qwen3", "qwen2", "llama"])
def test_what_is_written_in_one_go_is_what_single_steps_write(tmp_path: Path, architecture: str, dtype: str) -> None:
    """Rows shared among threads and apart, alone and beside others, across the ends of pages, tied heads and not."""
    sizes = {"width": 72, "heads": 3, "kv_heads": 1, "head_dim": 24, "mlp_width": 100}
    new_folder(tmp_path / "m", architecture=architecture, **sizes)  # type: ignore[arg-type]
    body = load(tmp_path / "m", dtype=dtype).body
    prompts, first = random_sequences(*range(3, 43)), torch.arange(40)
    threads, steps, found = torch.get_num_threads(), 23, []
    try:
        for count, rows, parts in ((1, [*range(40)], [1] * 23), (2, [*range(40)], [23]), (3, [20, 1, 7], [8, 8, 7])):
            torch.set_num_threads(1)  # without wide vectors a prompt's products are torch's, which round by the threads
            cache = body.new_cache(40, 128)
            body.extend(cache, rows, pack([prompts[row] for row in rows]))
            torch.set_num_threads(count)
            if parts == [1] * steps:
                drawn_BN = step_by_step(body, cache, rows, first[rows], steps)
            else:
                last_B, written, done = first[rows], 0, []
                for part in parts:
                    drawn = body.write(cache, rows, last_B, drawing_of(rows, written), part)
                    assert drawn is not None
                    done.append(drawn)
                    last_B, written = drawn[0][:, -1], written + part
                drawn_BN = tuple(torch.cat(kind, 1) for kind in zip(*done, strict=True))
            assert cache.lengths[rows].tolist() == [len(prompts[row]) + steps for row in rows]
            found.append({row: tuple(kind[i].tolist() for kind in drawn_BN) for i, row in enumerate(rows)})
    finally:
        torch.set_num_threads(threads)
    assert all(other[row] == found[0][row] for other in found[1:] for row in other)
    assert len({tuple(tokens) for tokens, _, _ in found[0].values()}) == 40
    assert np.isfinite([numbers for _, *numbers in found[0].values()]).all()


def test_bodies_that_only_take_single_steps_say_so_and_do_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = load(new_folder(tmp_path / "m")).body
    monkeypatch.setattr(_decoding, "HEAD_BYTES", 0)
    cache = body.new_cache(1, 64)
    hidden_BD = body.extend(cache, [0], pack(random_sequences(7)))
    assert body.write(cache, [0], torch.tensor([1]), drawing_of([0], 0), 4) is None
    assert cache.lengths.tolist() == [7]
    assert torch.equal(body.next_logits(cache, hidden_BD), body.logits(hidden_BD))


def test_an_adapted_body_writes_what_the_merged_one_does(tmp_path: Path) -> None:
    adapted = load(new_folder(tmp_path / "m"), trained=True, lora=LoRA(rank=2)).body
    with torch.no_grad():
        for layer in adapters(adapted).values():
            layer.lora_B.normal_(0, 0.2, generator=torch.Generator().manual_seed(0))
    merged = copy.deepcopy(adapted)
    merge_adapters(merged)
    found = []
    for body in (adapted, merged, load(tmp_path / "m").body):
        cache = body.new_cache(1, 64)
        body.extend(cache, [0], pack(random_sequences(7)))
        drawn = body.write(cache, [0], torch.tensor([1]), drawing_of([0], 0), 4)
        assert drawn is not None
        found.append(drawn[1])
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=1e-5)
    assert (found[0] - found[2]).abs().max() > 1e-3, "the adapters are in use"


@pytest.mark.parametrize("token", [-1, 261])
def test_ids_beyond_the_embedding_are_refused(tmp_path: Path, token: int) -> None:
    body = load(new_folder(tmp_path / "m")).body
    cache = body.new_cache(1, 64)
    body.extend(cache, [0], pack(random_sequences(7)))
    with pytest.raises(AssertionError, match="callers check ids"):
        body.extend(cache, [0], pack([torch.tensor([token])]))
    with pytest.raises(AssertionError, match="callers check ids"):
        body.write(cache, [0], torch.tensor([token]), drawing_of([0], 0), 4)
    assert cache.lengths.tolist() == [7]


def test_logits_to_draw_from_are_the_logits(tmp_path: Path) -> None:
    new_folder(tmp_path / "m", width=64)
    body = load(tmp_path / "m").body
    cache = body.new_cache(40, 64)
    hidden_BD = body.extend(cache, [*range(40)], pack(random_sequences(*range(3, 43))))
    logits_BV = body.next_logits(cache, hidden_BD)
    torch.testing.assert_close(logits_BV, body.logits(hidden_BD), atol=1e-5, rtol=1e-5)
    assert torch.equal(body.next_logits(cache, hidden_BD[17:18])[0], logits_BV[17])
