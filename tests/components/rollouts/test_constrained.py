"""Probabilities among allowed tokens, in the engine and in the learner."""

import asyncio
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from posttrain.components.rollouts.constrained import Constrained
from posttrain.datasets.tool_chains import fault, follow, tools_of
from posttrain.engines import Sampling
from posttrain.engines._pieces import Pieces, one_of
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.signals import ENTROPY, LOGP
from posttrain.training.learner import evaluate_examples
from posttrain.training.packing import example_of
from posttrain.types import Segment, Task, Trajectory


def plans(n: int = 6) -> tuple[list[Trajectory], object]:
    policy = load_policy("policy", Model(source="pebble"), {}, torch.device("cpu"))
    sampler = Native().serve(policy, 0).bind("x")
    rollout = Constrained(n=n, sampling=Sampling(max_tokens=64, temperature=1.3))
    [group] = asyncio.run(rollout.collect(Task(key="t", prompt="Plan:"), {"policy": sampler}))
    return [*group], policy


def test_plans_are_valid_and_the_learner_has_the_log_probabilities_of_the_sampler() -> None:
    own, policy = plans()
    for t in own:
        assert t.stop_reason == "stop" and fault(tools_of(t.completion), "any").startswith(
            ("gives", "spell takes", "double takes", "next takes")
        )
    found = evaluate_examples(
        policy,
        [example_of(t, {}) for t in own],
        frozenset({ENTROPY}),
        max_tokens=512,
        temperature=1.3,  # type: ignore[arg-type]
    )
    for t, signals in zip(own, found, strict=True):
        assert np.allclose(signals[LOGP], t.behavior_logp, atol=2e-4)
        entropy = t.segments[1].entropy
        assert entropy is not None and np.allclose(signals[ENTROPY], entropy, atol=2e-3)
        alone = [s for s, n in zip(signals[LOGP], t.segments[1].allowed, strict=False) if n == 1]  # type: ignore[arg-type]
        assert alone and np.allclose(alone, 0.0, atol=1e-5), "a token without an alternative is certain"


def test_probabilities_of_all_choices_add_up_to_one() -> None:
    policy = load_policy("policy", Model(source="pebble"), {}, torch.device("cpu"))
    sampler = Native().serve_text(policy, 0).bind("x")
    texts = ("4", "42", "5")
    pieces = Pieces.of(one_of(texts), sampler)
    prompt = sampler.prompt(Task(key="t", prompt="Q: 2+2\nA: "))
    examples = []
    for text, end in product(texts, pieces.ends):
        ids = np.array([*text.encode(), end], np.int64)
        own = Segment(actor="policy", token_ids=ids, trained=True, text=text, allowed=pieces.allowed_of(ids))
        trajectory = Trajectory(task=Task(key="t", prompt=""), segments=(prompt, own), stop_reason="stop")
        examples.append(example_of(trajectory, {}))
    found = evaluate_examples(policy, examples, frozenset(), max_tokens=512)
    assert sum(float(np.exp(s[LOGP].sum())) for s in found) == pytest.approx(1.0, abs=1e-4)


def test_tools_are_chained_by_type_and_none_is_used_twice() -> None:
    assert " count" in follow("") and len(follow("")) == 8
    assert follow(" count") == ["", " > double", " > next", " > spell"]
    assert follow(" count > next") == ["", " > double", " > spell"]
    assert fault(["count", "upper"], "text") == "upper takes a text, not a number"
    assert fault(["count"], "text") == "gives a number, not a text" and not fault(["count", "spell"], "text")
    assert fault(["counts"], "number") == "there is no tool 'counts'" and "twice" in fault(["upper", "upper"], "text")


def test_choices_of_a_task_and_what_is_refused() -> None:
    rollout = Constrained(choices="texts")
    rollout.check([Task(key="t", prompt="x", fields={"texts": ["a"]})])
    with pytest.raises(UserError, match="no list of texts in its column 'texts'"):
        rollout.check([Task(key="t", prompt="x", fields={"texts": []})])


def test_epsilon_falls_and_held_out_tasks_draw_under_the_constraint() -> None:
    rollout = Constrained(epsilon=(1.0, 0.25))
    assert rollout.at(0.5).epsilon[0] == pytest.approx(0.5) and rollout.follows_progress
    assert replace(rollout, epsilon=(1.0, 1.0)).at(0.5).epsilon == (1.0, 1.0)
    held = rollout.held_out(1, Sampling(temperature=0.0))
    assert held.epsilon == (1.0, 1.0) and held.sampling.temperature == 0.0
