"""Completions of given pieces, and probabilities among allowed tokens, in the engine and in the learner."""

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
from posttrain.policies._signals import Compared, token_signals
from posttrain.policies.loading import load_policy
from posttrain.signals import ENTROPY, LOGP, Signal
from posttrain.training.learner import evaluate_examples
from posttrain.training.packing import example_of
from posttrain.types import Segment, Task, Trajectory

TOKENS = [b"", b"a", b"ab", b"b > c", b" > ", b"c", b"d"]


def after(text: str) -> list[str]:
    """``ab`` or ``abd`` first; after ``ab`` ``` > c``` or the end, and then the end."""
    return {"": ["ab", "abd"], "ab": [" > c", ""]}.get(text, [""])


def allowed(*token_ids: int) -> list[int]:
    matcher = Pieces(after, TOKENS, frozenset({0})).matcher()
    for token_id in token_ids:
        assert matcher.allowed()[token_id]
        matcher.push(token_id)
    return np.flatnonzero(matcher.allowed()).tolist()


def test_tokens_across_pieces_and_pieces_with_a_common_start() -> None:
    assert allowed() == [1, 2]
    assert allowed(1) == [3], "the rest of one piece and all of the next, in one token"
    assert allowed(2) == [0, 4, 6], "the piece may end here, or be the longer one"
    assert allowed(2, 6) == [0] and allowed(2, 4) == [5] and allowed(1, 3) == [0]


def test_the_allowed_tokens_of_a_completion() -> None:
    made = Pieces(after, TOKENS, frozenset({0}))
    assert made.allowed_of(np.array([2, 4, 5, 0])).tolist() == [2, 3, 1, 1, 1, 2, 0, 4, 6, 5, 0]


def test_a_text_that_nothing_may_follow_is_refused() -> None:
    with pytest.raises(UserError, match="no token may follow ''"):
        Pieces(lambda text: [], TOKENS, frozenset({0})).matcher().allowed()


def test_signals_among_allowed_tokens_by_hand_and_by_differences() -> None:
    """Logits 0, log 2, log 3 with the last one denied: probabilities 1/3 and 2/3."""
    weight = torch.tensor([[0.0], [2.0], [3.0]], dtype=torch.float64).log()
    weight[0] = 0.0
    ids, place = torch.tensor([0, 1]), torch.tensor([0, 0])
    other = Compared(
        logits_of=lambda h: h.new_zeros(len(h), 3),
        hidden_TD=torch.zeros(2, 1, dtype=torch.float64),
        needs=frozenset({Signal("reverse_kl", of="base"), Signal("forward_kl", of="base")}),
    )

    def signals(hidden_TD: torch.Tensor) -> dict[Signal, torch.Tensor]:
        return token_signals(
            lambda h: h @ weight.T,
            hidden_TD,
            torch.tensor([1, 2]),
            vocabulary_size=3,
            temperature=1.0,
            needs=frozenset({ENTROPY}) | other.needs,
            others=(other,),
            allowed=(ids, place),
        )

    one = torch.ones(2, 1, dtype=torch.float64)
    found = signals(one)
    assert found[LOGP].exp().tolist() == pytest.approx([2 / 3, 1 / 2], abs=1e-6), "the second token may be every one"
    h = -(np.log(1 / 3) / 3 + 2 * np.log(2 / 3) / 3)
    assert found[ENTROPY][0].item() == pytest.approx(h, abs=1e-6)
    assert found[Signal("reverse_kl", of="base")][0].item() == pytest.approx(np.log(2) - h, abs=1e-6)
    assert found[Signal("forward_kl", of="base")][0].item() == pytest.approx(
        -np.log(2) - (np.log(1 / 3) + np.log(2 / 3)) / 2, abs=1e-6
    )
    given = one.requires_grad_()
    found = signals(given)
    found[LOGP][0].backward()
    assert given.grad is not None and given.grad[0].item() == pytest.approx(np.log(2) / 3, abs=1e-5), "d log p(1) / dh"


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
