"""Completions that go on after a change of weights with the keys and values that are there."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from posttrain.engines import Keeping, Sampling
from posttrain.errors import UserError
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.types import Completion
from tests.engines.scripted import serve
from tests.policies.made_models import load, make_folder, pack

KINDS: dict[str, tuple[str, dict[str, Any], torch.dtype]] = {
    "native": ("Qwen3Config", {"head_dim": 16}, torch.float32),
    "native bfloat16": ("LlamaConfig", {}, torch.bfloat16),
    "transformers": ("GPT2Config", {"n_embd": 48, "n_layer": 2, "n_head": 4}, torch.float32),
}
PROMPTS = [np.arange(40, 45), np.arange(60, 99), np.arange(65, 68)]
PIECES = [6, 9, 4]


def change(policy: LanguageModelPolicy, seed: int) -> None:
    """Other weights, as after an update."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.dim() > 1:
                noise = torch.randn(parameter.shape, generator=generator)
                parameter += (0.05 * noise).to(parameter.dtype)
    policy.version += 1


def in_pieces(policy: LanguageModelPolicy, prompts: list[np.ndarray], kept: bool = True) -> list[list[Completion]]:
    """By prompt, its pieces, each by other weights."""

    async def run() -> list[list[Completion]]:
        server = serve(policy, slots=8)
        found: list[list[Completion]] = [[] for _ in prompts]
        for number, size in enumerate(PIECES):
            if number:
                change(policy, number)

            async def write(i: int, number: int = number, size: int = size) -> None:
                sampler = server.bind(int(prompts[i][0]), "piece", number)
                so_far = np.concatenate([prompts[i], *(piece.token_ids for piece in found[i])])
                sampling = Sampling(max_tokens=size, top_k=200)
                assert isinstance(sampler, Keeping)
                stored = found[i][-1].cache if number and kept else None
                found[i] += await sampler.go_on(so_far, 1, sampling, stored=stored)

            await asyncio.gather(*(write(i) for i in range(len(prompts)) if not done(found[i])))
        return found

    return asyncio.run(run())


def done(pieces: list[Completion]) -> bool:
    return bool(pieces) and pieces[-1].stop_reason == "stop"


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_numbers_are_of_what_was_computed(kind: str, tmp_path: Path) -> None:
    """By hand: a cache in which each token is read with the weights that draw the next one. Tokens of the first weights
    stay what they were; computed anew, the numbers are others.
    """
    config, settings, dtype = KINDS[kind]
    folder = make_folder(tmp_path, config, settings, dtype=dtype)
    found = in_pieces(load(folder), PROMPTS)
    assert sum(len(pieces) == len(PIECES) for pieces in found) >= 2
    policy = load(folder)
    caches = [policy.body.new_cache(1, 100) for _ in PROMPTS]
    new = [torch.from_numpy(prompt) for prompt in PROMPTS]
    for number in range(len(PIECES)):
        if number:
            change(policy, number)
        for i, pieces in enumerate(found):
            if len(pieces) <= number:
                continue
            assert pieces[number].version == policy.version
            for token, logp in zip(pieces[number].token_ids, pieces[number].logp, strict=True):
                with torch.no_grad():
                    hidden = policy.body.extend(caches[i], [0], pack([new[i]]))
                    expected = policy.body.logits(hidden).float().log_softmax(-1)[0, token]
                assert float(expected) == pytest.approx(logp, abs=1e-5 if dtype == torch.float32 else 0.05)
                new[i] = torch.tensor([token])
    renewed = in_pieces(load(folder), PROMPTS, kept=False)
    assert any(
        not np.array_equal(one.token_ids, other.token_ids) or np.abs(one.logp - other.logp).max() > 1e-3
        for ours, theirs in zip(found, renewed, strict=True)
        for one, other in zip(ours[1:], theirs[1:], strict=False)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_they_do_not_depend_on_what_else_is_sampled(kind: str, tmp_path: Path) -> None:
    config, settings, dtype = KINDS[kind]
    folder = make_folder(tmp_path, config, settings, dtype=dtype)
    together = in_pieces(load(folder), PROMPTS)
    for i, prompt in enumerate(PROMPTS):
        [alone] = in_pieces(load(folder), [prompt])
        for one, other in zip(alone, together[i], strict=True):
            assert one.token_ids.tolist() == other.token_ids.tolist()
            assert one.logp.tolist() == other.logp.tolist()


def test_a_model_that_keeps_more_is_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "MambaConfig", {"max_position_embeddings": 512})
    with pytest.raises(UserError, match=r"keeps more than keys and values.*; take schedule.caches=renewed"):
        in_pieces(load(folder), PROMPTS)
