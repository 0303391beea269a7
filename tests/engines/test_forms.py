"""Completions of a fixed form."""

import asyncio
import json
import re

import numpy as np
import pytest
import torch

from posttrain.engines import Sampling, Watch
from posttrain.engines._forms import Fixed, Form, Free, OneOf
from posttrain.engines.native import Native
from posttrain.models import Model
from posttrain.policies.loading import load_policy

PARTS = (Fixed('{"why": "'), Free(most=4), Fixed('", "score": '), OneOf(("1", "2", "10")), Fixed("}"))
TOKENS = [b"", b'{"why": "', b"ab", b'c", "sc', b'ore": 1', b"0", b"}", b'ore": ', b"x", b'"', b"0}", b"2"]


def form() -> Form:
    return Form(PARTS, TOKENS, frozenset({0}))


def allowed(*token_ids: int) -> list[int]:
    made = form()
    matcher = made.matcher()
    for token_id in token_ids:
        assert matcher.allowed()[token_id]
        matcher.push(token_id)
    return np.flatnonzero(matcher.allowed()).tolist()


def test_tokens_across_parts_and_choices_with_a_common_start() -> None:
    assert allowed() == [1]
    assert allowed(1) == [2, 3, 5, 6, 8, 9, 10, 11], "free text, or the end of an empty one, or both in one token"
    assert allowed(1, 2, 2) == [9], "four bytes are the most"
    assert allowed(1, 2, 3) == [4, 7]
    assert allowed(1, 3, 4) == [5, 6, 10], "1 may go on as 10"
    assert allowed(1, 3, 7) == [11] and allowed(1, 3, 7, 11) == [6]
    assert allowed(1, 3, 4, 10) == [0], "only the end is left"


def test_what_the_model_would_have_written_without_a_mask() -> None:
    logp = np.log([0.5, 0.1, 0.5, 0.25, 1.0], dtype=np.float64)
    # The second token is free: most of the vocabulary is allowed there. .5 x .5 x .25 x 1
    assert form().own_share(np.array([1, 3, 4, 6, 0]), logp) == pytest.approx(0.0625)


@pytest.mark.slow
def test_a_model_that_writes_no_json_gives_a_verdict() -> None:
    policy = load_policy("judge", Model(source="pebble"), {}, torch.device("cpu"))
    sampler = Native().serve_text(policy, 0).bind("x")
    made = Form.of(PARTS, sampler)
    work = sampler.watched(sampler.encode("Q: 1+1\nA:"), 3, Sampling(max_tokens=60), Watch(matcher=made.matcher))
    for completion in asyncio.run(work):
        assert completion.stop_reason == "stop" and re.fullmatch(
            r'\{"why": "[^"]{0,4}", "score": \d+\}', completion.text
        )
        assert json.loads(completion.text)["score"] in (1, 2, 10)
        assert made.own_share(completion.token_ids, completion.logp) < 1e-6, "the form is the mask's, not the model's"
