"""Logits and whole divergences, beside their definitions in float64; entropy is in test_language_model."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from posttrain.components.penalties.exact_kl import ExactKL
from posttrain.components.reducers.sequences import Sequences
from posttrain.errors import UserError
from posttrain.policies import Policy
from posttrain.policies._signals import Compared, token_signals
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.signals import ADVANTAGE, CERTAINTY, ENTROPY, LOGIT, LOGP, SELF_CERTAINTY, Signal
from posttrain.training.learner import Learner, Loss
from posttrain.training.packing import Example
from posttrain.training.settings import Learning
from tests.kernels import needs_kernels
from tests.policies.made_models import load, make_folder, pack, random_sequences

SEQUENCES = random_sequences(12, 40, 5)
POSITIONS = torch.tensor([1, 4, 11, 13, 51, 53, 56])
FORWARD, REVERSE = Signal("forward_kl", of="base"), Signal("reverse_kl", of="base")
OWN = frozenset({ENTROPY, CERTAINTY, SELF_CERTAINTY, LOGIT})
NEEDS = OWN | {FORWARD, REVERSE}
NAMES = (LOGP, ENTROPY, CERTAINTY, SELF_CERTAINTY, LOGIT, FORWARD, REVERSE)
LN2, LN3 = math.log(2.0), math.log(3.0)


def definition(logits_TV: Tensor, other_TV: Tensor, token_T: Tensor, temperature: float) -> dict[Signal, Tensor]:
    """Every signal as it is written down, from probabilities."""
    scaled_TV = logits_TV / temperature
    p_TV = scaled_TV.exp() / scaled_TV.exp().sum(1, keepdim=True)
    q_TV = (other_TV / temperature).softmax(1)
    return {
        LOGP: p_TV.gather(1, token_T[:, None])[:, 0].log(),
        ENTROPY: -(p_TV * p_TV.log()).sum(1),
        CERTAINTY: (p_TV * (p_TV * p_TV.shape[1]).log()).sum(1),
        SELF_CERTAINTY: -(p_TV * p_TV.shape[1]).log().mean(1),
        LOGIT: scaled_TV.gather(1, token_T[:, None])[:, 0],
        FORWARD: (q_TV * (q_TV / p_TV).log()).sum(1),
        REVERSE: (p_TV * (p_TV / q_TV).log()).sum(1),
    }


def made(
    hidden_TD: Tensor,
    weight_VD: Tensor,
    other_TD: Tensor,
    token_T: Tensor,
    temperature: float,
    chunk_logits: int,
    watch: Callable[[int], None] = lambda _: None,
) -> dict[Signal, Tensor]:
    """The signals of a head that is one matrix, and of another model that has the same one."""

    def logits(h: Tensor) -> Tensor:
        watch(h.shape[0])
        return h @ weight_VD.T

    other = Compared(logits_of=logits, hidden_TD=other_TD, needs=frozenset({FORWARD, REVERSE}))
    return token_signals(
        logits,
        hidden_TD,
        token_T,
        vocabulary_size=len(weight_VD),
        temperature=temperature,
        needs=OWN,
        others=(other,),
        chunk_logits=chunk_logits,
    )


def drawn(tokens: int, vocabulary: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(tokens)
    hidden, weight, other = (torch.randn(n, 8, generator=rng, dtype=dtype) for n in (tokens, vocabulary, tokens))
    return hidden, weight, other, torch.randint(vocabulary, (tokens,), generator=rng)


def test_two_tokens_by_hand() -> None:
    """Logits 0 and ln 3 are a quarter and three quarters; the other model is undecided."""
    logits = torch.tensor([[0.0, LN3]], dtype=torch.float64, requires_grad=True)
    other = torch.zeros(1, 2, dtype=torch.float64)
    eye = torch.eye(2, dtype=torch.float64)
    found = made(logits, eye, other, torch.tensor([1]), 1.0, 10**9)
    assert found[LOGIT].item() == pytest.approx(LN3)
    assert (found[LOGIT] - found[LOGP]).item() == pytest.approx(2 * LN2), "ln (1 + 3)"
    assert found[FORWARD].item() == pytest.approx(0.5 * (2 * LN2 - LN3))
    assert found[REVERSE].item() == pytest.approx(0.75 * LN3 - LN2)
    # from uniform, which the other model is
    assert found[CERTAINTY].item() == pytest.approx(0.75 * LN3 - LN2)
    assert found[SELF_CERTAINTY].item() == pytest.approx(0.5 * (2 * LN2 - LN3))
    slopes = {name: torch.autograd.grad(found[name], logits, retain_graph=True)[0][0] for name in found}
    assert slopes[FORWARD].tolist() == pytest.approx([-0.25, 0.25]), "p - q"
    assert slopes[REVERSE].tolist() == pytest.approx([-0.75 * 0.25 * LN3, 0.75 * 0.25 * LN3])
    assert (slopes[LOGIT] - slopes[LOGP]).tolist() == pytest.approx([0.25, 0.75]), "of the log-sum-exp it is p"


def test_certainty_leaves_out_impossible_tokens() -> None:
    logits = torch.tensor([[0.0, LN3, -math.inf], [0.0, 0.0, 0.0]], dtype=torch.float64)
    found = token_signals(
        lambda h: h, logits, torch.tensor([1, 1]), vocabulary_size=3, temperature=1.0, needs=frozenset(OWN - {LOGIT})
    )
    assert found[CERTAINTY].tolist() == pytest.approx([0.75 * LN3 - LN2, 0.0])
    assert found[SELF_CERTAINTY].tolist() == pytest.approx([0.5 * (2 * LN2 - LN3), 0.0])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_gradient_by_finite_differences(name: Signal, temperature: float) -> None:
    hidden, weight, other, token = drawn(5, 7, torch.float64)

    def signal(h: Tensor) -> Tensor:
        return made(h, weight, other, token, temperature, 10**9)[name]

    assert torch.autograd.gradcheck(signal, (hidden.requires_grad_(),))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("chunk_logits", [10**9, 60 * 50, 1])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-11), pytest.param(torch.float32, 2e-5, marks=needs_kernels)]
)
def test_chunks_and_kernels_give_the_definition(
    dtype: torch.dtype, tolerance: float, chunk_logits: int, temperature: float
) -> None:
    """All signals together, so that the kernel's gradient, which takes the place of the logits, meets the others."""
    hidden, weight, other, token = drawn(100, 50, dtype)
    credit = torch.randn(len(NAMES), 100, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    held: list[int] = []
    leaves = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
    found = made(leaves[0], leaves[1], other, token, temperature, chunk_logits, held.append)
    sum((found[name] * w.to(dtype)).sum() for name, w in zip(NAMES, credit, strict=True)).backward()  # type: ignore[union-attr]
    exact = [hidden.double().requires_grad_(), weight.double().requires_grad_()]
    other_TV = (other.double() @ weight.double().T).detach()
    truth = definition(exact[0] @ exact[1].T, other_TV, token, temperature)
    sum((truth[name] * w).sum() for name, w in zip(NAMES, credit, strict=True)).backward()  # type: ignore[union-attr]
    for name in NAMES:
        torch.testing.assert_close(found[name].double(), truth[name], atol=tolerance, rtol=tolerance)
    for leaf, true in zip(leaves, exact, strict=True):
        assert leaf.grad is not None
        torch.testing.assert_close(leaf.grad.double(), true.grad, atol=10 * tolerance, rtol=10 * tolerance)
    most = {10**9: 100, 60 * 50: 30, 1: 16}[chunk_logits]
    assert max(held) == most, "two models' logits share the room of one"


def test_the_same_distribution_is_no_distance_away_to_the_bit() -> None:
    hidden, weight, _, token = drawn(40, 50, torch.float32)
    found = made(hidden, weight, hidden, token, 0.7, 1)
    assert not found[FORWARD].any() and not found[REVERSE].any()


def test_far_apart_it_is_finite() -> None:
    logits = torch.tensor([[0.0, 200.0], [0.0, -200.0]], requires_grad=True)
    found = made(logits, torch.eye(2), -logits.detach(), torch.tensor([0, 0]), 1.0, 10**9)
    assert found[FORWARD].tolist() == found[REVERSE].tolist() == [200.0, 200.0]
    (found[FORWARD] + found[REVERSE]).sum().backward()
    assert logits.grad is not None and logits.grad.isfinite().all()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = {"head_dim": 16, "tie_word_embeddings": True}
    return make_folder(tmp_path_factory.mktemp("qwen3"), "Qwen3Config", settings)


def two(folder: Path) -> tuple[LanguageModelPolicy, LanguageModelPolicy]:
    """A model, and another one whose weights lie around its own."""
    policy, base = load(folder, trained=True), load(folder, trained=True)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in base.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return policy, base


def test_a_policy_gives_what_is_requested_and_needs_no_other_model_for_the_rest(folder: Path) -> None:
    policy, base = (model.double() for model in two(folder))
    packed, others = pack(SEQUENCES), {"base": base}
    assert policy.evaluate(packed, POSITIONS, others=others).keys() == {LOGP}
    assert policy.evaluate(packed, POSITIONS, frozenset({REVERSE}), others=others).keys() == {
        LOGP,
        REVERSE,
    }
    found = policy.evaluate(packed, POSITIONS, NEEDS, temperature=0.8, others=others)
    logits, other = (m.body.logits(m.body.hidden(packed))[POSITIONS - 1] for m in (policy, base))
    truth = definition(logits, other, packed.token_ids_L[POSITIONS], 0.8)
    for name, value in found.items():
        true_T = truth[name]
        torch.testing.assert_close(value, true_T, atol=1e-9, rtol=1e-9)
        assert (value.abs() > 1e-4).all(), name
    found[FORWARD].sum().backward()
    assert any(p.grad is not None for p in policy.parameters())
    assert all(p.grad is None for p in base.parameters())
    base.body.hidden = None  # type: ignore[assignment, method-assign]
    assert policy.evaluate(packed, POSITIONS, frozenset({LOGIT}), others=others).keys() == {LOGP, LOGIT}


def test_gradient_in_the_weights_by_finite_differences(folder: Path) -> None:
    policy, base = (model.double() for model in two(folder))
    packed, parameter = pack(SEQUENCES), policy.body.get_parameter("model.layers.1.mlp.gate_proj.weight")

    def loss() -> Tensor:
        signals = policy.evaluate(packed, POSITIONS, NEEDS, temperature=0.8, others={"base": base})
        return sum((i + 1) * signals[name].square().sum() for i, name in enumerate(sorted(NEEDS)))  # type: ignore[return-value]

    (gradient,) = torch.autograd.grad(loss(), parameter)
    direction = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    step = 1e-6
    with torch.no_grad():
        parameter.add_(step * direction)
        above = loss()
        parameter.sub_(2 * step * direction)
        below = loss()
    torch.testing.assert_close((gradient * direction).sum(), (above - below) / (2 * step), rtol=1e-6, atol=1e-5)


def test_micro_batches_change_nothing(folder: Path) -> None:
    """Prompts in common are shared where they can be, with the other model too."""
    policy, base = two(folder)
    rng = np.random.default_rng(0)
    prompt = rng.integers(0, 90, 12)
    examples = []
    for n in (3, 8, 5, 2):
        ids = np.concatenate([prompt, rng.integers(0, 90, n)])
        columns = {ADVANTAGE: np.zeros(n, np.float32)}
        turns = np.zeros(n, np.int64)
        examples.append(Example(token_ids=ids, positions=np.arange(12, 12 + n), columns=columns, turn_T=turns))
    penalty = ExactKL(coefficient=1.0, role="base")
    loss = Loss(per_token=penalty.in_loss, reducer=Sequences(), needs=penalty.needs, others={"base": base})
    found = []
    for tokens in (1, 35, 1000):
        policy.zero_grad()
        learner = Learner(policy, Learning(micro_batch_tokens=tokens), seed=0, num_steps=1)
        total, _ = learner.accumulate(examples, loss, 0.0)
        found.append((total, torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])))
    for total, gradient in found[1:]:
        assert total == pytest.approx(found[0][0], rel=1e-5) and total > 0.1
        assert (gradient - found[0][1]).norm() < 1e-5 * gradient.norm()


def test_what_cannot_be_compared_is_refused(folder: Path, tmp_path: Path) -> None:
    policy, packed = load(folder), pack(SEQUENCES)

    def ask(**others: Policy) -> object:
        return policy.evaluate(packed, POSITIONS, frozenset({FORWARD}), others=others)

    with pytest.raises(UserError, match=r"it gives certainty and entropy .*, not forward_kl to 'base'"):
        ask()
    with pytest.raises(UserError, match="the role 'base' gives no probabilities of text"):
        ask(base=load(folder, head="value"))
    larger = load(make_folder(tmp_path, "Qwen3Config", {"head_dim": 16, "vocab_size": 300}))
    with pytest.raises(UserError, match=f"'policy' has {policy.body.vocabulary_size} and 'base' 300"):
        ask(base=larger)
