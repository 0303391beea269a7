"""How much the last token attends to each."""

import asyncio

import numpy as np
import pytest
import torch

from posttrain.engines import Attending
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies import Body, Packed
from posttrain.policies.decoder import Decoder
from posttrain.policies.loading import load_policy

IDS = np.array([1, 5, 9, 7, 5, 5, 30], np.int64)


def test_attention_is_that_of_the_first_layers_by_hand() -> None:
    policy = load_policy("policy", Model(source="pebble"), {}, torch.device("cpu"))
    body = policy.body
    assert isinstance(body, Decoder)
    sampler = Native().serve(policy, 0).bind("test")
    assert isinstance(sampler, Attending) and sampler.attends
    first = asyncio.run(sampler.attention(IDS, share=1e-9))
    assert first.shape == (7,) and first.sum() == pytest.approx(1.0, abs=1e-5) and (first > 0).all()
    layer, shape = body.model.layers[0], body.shape
    x_LD = layer.input_layernorm(body.model.embed_tokens(torch.from_numpy(IDS))).detach()
    heads: list[torch.Tensor] = []
    for project, norm in (
        (layer.self_attn.q_proj, layer.self_attn.q_norm),
        (layer.self_attn.k_proj, layer.self_attn.k_norm),
    ):
        x_LHd = norm(project(x_LD).unflatten(1, (-1, shape.head_dim))).detach()
        cosine, sine = (table[: len(IDS), None] for table in body.rotations(len(IDS), torch.device("cpu")))
        a, b = x_LHd.chunk(2, -1)
        heads.append(torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1))
    query, key = heads
    key = key.repeat_interleave(shape.heads // shape.kv_heads, 1)
    logit_HL = torch.einsum("hd,lhd->hl", query[-1], key) / shape.head_dim**0.5
    assert np.allclose(first, logit_HL.softmax(-1).mean(0).numpy(), atol=1e-5)
    if shape.layers > 1:
        assert not np.allclose(first, asyncio.run(sampler.attention(IDS, share=1.0)), atol=1e-4)


def test_a_body_that_does_not_show_it_is_refused() -> None:
    policy = load_policy("policy", Model(source="pebble"), {}, torch.device("cpu"))
    sampler = Native().serve(policy, 0).bind("test")
    assert isinstance(sampler, Attending)
    policy.body = Body()
    policy.body.vocabulary_size, policy.body.context = 100, 100
    with pytest.raises(UserError, match="only models that run natively"):
        asyncio.run(sampler.attention(IDS))
    with pytest.raises(NotImplementedError):
        policy.body.attention(Packed(token_ids_L=torch.from_numpy(IDS), starts=(0, 7)), 0.5)
