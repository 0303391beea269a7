"""Turns that are drawn among legal actions or values of a schema: what is drawn, how often, and its gradient."""

import asyncio
import json
from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from posttrain.cli.world import _environment, _task
from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome
from posttrain.components.rollouts.constrained import Constrained
from posttrain.components.rollouts.turns import Turns
from posttrain.engines import Sampling, TokenSampler
from posttrain.engines._pieces import Pieces, one_of
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies import Policy
from posttrain.policies.loading import load_policy
from posttrain.signals import LOGP
from posttrain.training.learner import evaluate_examples
from posttrain.training.packing import example_of, pack
from posttrain.types import Segment, Task, Trajectory

TASK = Task(key="t", prompt="Q: 2+2\nA: ")
LEGAL = ("go", "good", "b", "up;")
SCHEMA = {
    "type": "object",
    "properties": {"to": {"enum": ["a", "bb"]}, "n": {"enum": [1, 20]}},
    "required": ["to"],
    "additionalProperties": False,
}


@frozen
class Listing(Environment):
    """Notes what it is given; its actions change with each turn."""

    legal: tuple[tuple[str, ...] | None, ...] = (LEGAL, ("a b", "a c"))

    @property
    def stop(self) -> tuple[str, ...]:
        return (";",)

    def instance(self, task: Task, draw: Draw) -> Instance:
        return _Listed(self.legal)


class _Listed(Instance):
    def __init__(self, legal: Any) -> None:
        self.legal, self.turn = legal, 0

    def begin(self) -> Observation:
        return Observation(text="\n", legal=self.legal[0])

    async def step(self, action: str) -> Outcome:
        self.turn += 1
        over = self.turn == len(self.legal)
        seen = Observation(text="\n", legal=None if over else self.legal[self.turn])
        return Outcome(observation=seen, done=over, valid=action in (self.legal[self.turn - 1] or ()))


@frozen
class Spied(Environment):
    """Another environment; raises where an action is none of those that were listed."""

    inner: Environment

    @property
    def stop(self) -> tuple[str, ...]:
        return self.inner.stop

    def instance(self, task: Task, draw: Draw) -> Instance:
        return _Spied(self.inner.instance(task, draw))


class _Spied(Instance):
    def __init__(self, inner: Instance) -> None:
        self.inner = inner
        self.legal: tuple[str, ...] | None = None

    async def start(self) -> None:
        await self.inner.start()

    def begin(self) -> Observation:
        seen = self.inner.begin()
        self.legal = seen.legal
        return seen

    async def step(self, action: str) -> Outcome:
        assert self.legal and action in self.legal, f"{action!r} is not one of {self.legal}"
        outcome = await self.inner.step(action)
        self.legal = outcome.observation.legal
        return outcome

    async def close(self) -> None:
        await self.inner.close()


def pebble() -> tuple[Policy, TokenSampler]:
    policy = load_policy("policy", Model(source="pebble"), {}, torch.device("cpu"))
    return policy, Native().serve_text(policy, 0).bind("x")  # type: ignore[arg-type]


def sampled(rollout: Turns | Constrained, task: Task = TASK) -> tuple[list[Trajectory], Policy]:
    policy, sampler = pebble()
    [group] = asyncio.run(rollout.collect(task, {"policy": sampler}))
    return [*group], policy


def probabilities() -> tuple[dict[str, float], Policy, list[Any]]:
    """Of each of `LEGAL` after the task, by the learner, with the examples of all their endings."""
    policy, sampler = pebble()
    pieces = Pieces.of(one_of(LEGAL), sampler)
    prompt = Segment(actor="prompt", token_ids=sampler.encode(f"{TASK.prompt}\n"), text="")
    made, texts = [], []
    for text, end in product(LEGAL, [*sorted(pieces.ends)]):
        ids = np.array([*text.encode(), *([] if text.endswith(";") else [end])], np.int64)
        own = Segment(actor="policy", token_ids=ids, trained=True, text=text, allowed=pieces.allowed_of(ids))
        made.append(example_of(Trajectory(task=TASK, segments=(prompt, own), stop_reason="stop"), {}))
        texts.append(text)
        if text.endswith(";"):
            break
    found = evaluate_examples(policy, made, frozenset(), max_tokens=512)
    shares: dict[str, float] = dict.fromkeys(LEGAL, 0.0)
    for text, signals in zip(texts, found, strict=True):
        shares[text] += float(np.exp(signals[LOGP].sum()))
    return shares, policy, made


def test_legal_actions_are_drawn_as_often_as_the_learner_states() -> None:
    shares, *_ = probabilities()
    assert sum(shares.values()) == pytest.approx(1.0, abs=1e-4)
    own, _ = sampled(Turns(environment=Listing(legal=(LEGAL,)), n=600, allowed="legal"))
    counts = Counter(t.segments[1].text for t in own)
    assert set(counts) <= set(LEGAL)
    for text, share in shares.items():
        assert abs(counts[text] / 600 - share) < 4.5 * np.sqrt(share * (1 - share) / 600) + 1e-3


def test_turns_have_the_log_probabilities_of_the_learner() -> None:
    own, policy = sampled(Turns(environment=Listing(), n=12, allowed="legal", sampling=Sampling(temperature=1.3)))
    found = evaluate_examples(policy, [example_of(t, {}) for t in own], frozenset(), max_tokens=512, temperature=1.3)
    for t, signals in zip(own, found, strict=True):
        assert np.allclose(signals[LOGP], t.behavior_logp, atol=2e-4)
        assert t.stop_reason == "environment" and all(t.facts[0].valid_turns)  # type: ignore[attr-defined]


def test_gradients_are_those_of_the_distribution_over_legal_actions() -> None:
    """The mean of grad log p under p is zero, and a step along it changes log p as finite differences do."""
    shares, policy, examples = probabilities()
    weight = max((p for p in policy.parameters() if p.ndim == 2), key=torch.numel).requires_grad_()

    def total(weights: np.ndarray) -> torch.Tensor:
        batch = pack(examples, np.ones(len(examples), np.float32), torch.device("cpu"))
        logp_T = policy.evaluate(batch.packed, batch.positions_T, frozenset())[LOGP]
        ends = np.cumsum([e.num_trained for e in examples])[:-1]
        parts = torch.tensor_split(logp_T, torch.from_numpy(ends))
        return torch.stack([part.sum() for part in parts]) @ torch.tensor(weights, dtype=logp_T.dtype)

    exact = evaluate_examples(policy, examples, frozenset(), max_tokens=512)
    share_N = np.array([np.exp(signals[LOGP].sum()) for signals in exact])
    assert sum(shares.values()) == pytest.approx(share_N.sum())
    first_N = np.eye(len(examples))[0]
    [grad] = torch.autograd.grad(total(first_N), [weight])
    [mean] = torch.autograd.grad(total(share_N), [weight])
    assert float(mean.norm()) < 1e-3 * float(grad.norm())
    step = grad / grad.norm() * 1e-2
    with torch.no_grad():
        weight += step
        above = float(total(first_N))
        weight -= 2 * step
        below = float(total(first_N))
    assert above - below == pytest.approx(2e-2 * float(grad.norm()), rel=0.05)


@pytest.mark.parametrize(
    "kind", ["bandits", "bargain", "calendar", "clinic", "keys", "lock", "rooms", "shop", "sources", "tickets"]
)
def test_no_environment_gets_an_illegal_action(kind: str) -> None:
    """An untrained model writes none of them by itself; a turn that is cut is never performed."""
    rollout = Turns(
        environment=Spied(inner=_environment(kind, ())),
        n=3,
        max_turns=4,
        allowed="legal",
        sampling=Sampling(max_tokens=24),
    )
    own, _ = sampled(rollout, _task(0))
    assert not any(t.failure for t in own)


def test_a_cut_turn_is_not_performed() -> None:
    rollout = Turns(environment=Listing(legal=(("abcdef",),)), n=1, allowed="legal", sampling=Sampling(max_tokens=3))
    [own], _ = sampled(rollout)
    assert (own.segments[-1].text, own.stop_reason, own.failure) == ("abc", "length", "")
    whole, _ = sampled(Turns(environment=Listing(legal=(("abc",),)), n=1, allowed="legal", sampling=rollout.sampling))
    assert whole[0].facts[0].valid_turns == (True,)  # type: ignore[attr-defined]


def test_an_environment_that_lists_nothing_is_refused_and_one_without_an_action_fails() -> None:
    with pytest.raises(UserError, match=r"lists no legal actions for task t; take rollout\.allowed=any"):
        sampled(Turns(environment=Listing(legal=(None,)), n=1, allowed="legal"))
    [own], _ = sampled(Turns(environment=Listing(legal=((),)), n=1, allowed="legal"))
    assert "lists no legal action" in own.failure


@pytest.mark.parametrize("given", [SCHEMA, json.dumps(SCHEMA)])
def test_turns_and_completions_follow_a_schema(given: Any) -> None:
    pytest.importorskip("llguidance")
    task = Task(key="t", prompt="Q: 2+2\nA: ", fields={"form": given})
    sampling = Sampling(max_tokens=64)
    turns = Turns(environment=Listing(legal=((), ())), n=4, allowed="schema:form", sampling=sampling)
    for rollout in (turns, Constrained(n=4, schema="form", sampling=sampling)):
        rollout.check([task])
        own, policy = sampled(rollout, task)
        for t in own:
            for segment in t.segments:
                if segment.trained:
                    value = json.loads(segment.text)
                    assert value["to"] in ("a", "bb") and set(value) <= {"to", "n"}
        found = evaluate_examples(policy, [example_of(t, {}) for t in own], frozenset(), max_tokens=512)
        for t, signals in zip(own, found, strict=True):
            assert np.allclose(signals[LOGP], t.behavior_logp, atol=3e-4)


def test_schemas_that_cannot_be_followed_are_refused() -> None:
    turns = Turns(environment=Listing(), allowed="schema:form")
    for given, message in (
        ([1], "no JSON schema in its column 'form'"),
        ("{", "is no JSON"),
        ({"$ref": "http://x"}, "remote"),
    ):
        with pytest.raises(UserError, match=message):
            turns.check([Task(key="t", prompt="x", fields={"form": given})])
    with pytest.raises(UserError, match=r"rollout\.allowed is 'schema:'; it is any, legal, or schema:NAME"):
        Turns(environment=Listing(), allowed="schema:").check([TASK])
    with pytest.raises(UserError, match="set one of them"):
        Constrained(schema="form", choices="texts").check([TASK])
