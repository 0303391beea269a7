"""Path consistency: residuals by hand, where gradients end, and the tree whose optimum is known."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from posttrain.components.objectives.path_consistency import PathConsistency
from posttrain.signals import OLD_VALUE, VALUE, logp_of
from posttrain.types import Tokens
from tests.builders import gradients, numerical_gradient, random_tokens, tokens

STATES = ["token", "turn", "sequence"]


def two_responses() -> Tokens:
    """Log-ratios (1, 2, -1) in the turns 0, 0, 1, and (3) in the turn 1, which goes on from no other sequence."""
    these = tokens(
        [[-1.0, -2.0, -3.0], [-1.0]],
        reference_logp={"reference": [[-2.0, -4.0, -2.0], [-4.0]]},
        advantage=[[0.5, 0.5, 0.5], [-1.0]],
        value=[[0.5, 0.25, 0.0], [1.0]],
        old_value=[[0.5, 0.25, 0.0], [1.0]],
        value_target=[[1.0, 1.0, 1.0], [0.0]],
    )
    return replace(these, turn_T=torch.tensor([0, 0, 1, 1]))


@pytest.mark.parametrize(
    ("states", "missing"),
    [
        # S = (2, 1, -1) and (3), half of it is (1, 0.5, -0.5) and (1.5); the advantage is taken away
        ("token", [0.5, 0.0, -1.0, 2.5]),
        # states at the first and third token: each stands for 3 / 2 tokens
        ("turn", [0.5, None, -1.0, 2.5]),
        # one state, which stands for 3 tokens
        ("sequence", [0.5, None, None, 2.5]),
    ],
)
def test_the_policys_loss_by_hand(states: str, missing: list[float | None]) -> None:
    weight = {"token": 1.0, "turn": 1.5, "sequence": 3.0}[states]
    result = PathConsistency(beta=0.5, states=states)(two_responses())  # type: ignore[arg-type]
    expected = [0.0 if x is None else x * x for x in missing]
    assert result.loss_T.tolist() == pytest.approx([*(weight * x for x in expected[:3]), expected[3]])
    assert result.metrics["residual"].tolist() == pytest.approx([abs(x) for x in missing if x is not None])


@pytest.mark.parametrize(
    ("states", "slopes"),
    [
        # 2 beta times the residual at the token's own state alone, whatever comes before or after it
        ("token", [0.5, 0.0, -1.0, 2.5]),
        # both tokens of the first turn have the slope of its state, the last token that of the second
        ("turn", [0.75, 0.75, -1.5, 2.5]),
        ("sequence", [1.5, 1.5, 1.5, 2.5]),
    ],
)
def test_no_gradient_goes_through_later_steps(states: str, slopes: list[float]) -> None:
    these = two_responses()
    found = gradients(PathConsistency(beta=0.5, states=states)(these).loss_T.sum(), these)  # type: ignore[arg-type]
    assert found["logp_T"].tolist() == pytest.approx(slopes)
    assert not found[VALUE].any()


@pytest.mark.parametrize(
    ("states", "losses", "slopes"),
    [
        # V + beta S - R: (0.5 + 1 - 1, 0.25 + 0.5 - 1, -0.5 - 1) and (1 + 1.5)
        ("token", [0.25, 0.0625, 2.25, 6.25], [1.0, -0.5, -3.0, 5.0]),
        ("turn", [0.375, 0.0, 3.375, 6.25], [1.5, 0.0, -4.5, 5.0]),
        ("sequence", [0.75, 0.0, 0.0, 6.25], [3.0, 0.0, 0.0, 5.0]),
    ],
)
def test_the_values_loss_by_hand(states: str, losses: list[float], slopes: list[float]) -> None:
    these = two_responses()
    result = PathConsistency(learns="value", beta=0.5, states=states)(these)  # type: ignore[arg-type]
    assert result.loss_T.tolist() == pytest.approx(losses)
    found = gradients(result.loss_T.sum(), these)
    assert found[VALUE].tolist() == pytest.approx(slopes)
    assert not found["logp_T"].any(), "the policy is not differentiated"


def test_the_value_takes_the_policy_as_the_step_found_it() -> None:
    these = two_responses()
    moved = replace(these, logp_T=these.logp_T - 1.0)
    first, then = (PathConsistency(learns="value")(t).loss_T for t in (these, moved))
    assert torch.equal(first, then)
    older = replace(these, old_logp_T=these.old_logp_T - 1.0)
    assert not torch.allclose(first, PathConsistency(learns="value")(older).loss_T)


@pytest.mark.parametrize("states", STATES)
def test_both_sides_miss_the_same(states: str) -> None:
    """With the advantage R - V the two losses are one number, to be differentiated in two ways."""
    these = random_tokens(needs={VALUE, logp_of("reference")})
    assert these[VALUE] is not None and these.value_target_T is not None
    value_T = these[VALUE].detach()
    these = replace(these, old_logp_T=these.logp_T.detach(), advantage_T=these.value_target_T - value_T)
    policy, value = (
        PathConsistency(learns=learns, states=states)(these).loss_T  # type: ignore[arg-type]
        for learns in ("policy", "value")
    )
    torch.testing.assert_close(policy, value)


@pytest.mark.parametrize("states", STATES)
def test_a_mean_over_tokens_is_a_mean_over_states(states: str) -> None:
    """Sequence by sequence, with turns of their own."""
    these = random_tokens(needs={logp_of("reference")}, lengths=(5, 1, 4))
    these = replace(these, turn_T=torch.tensor([0, 0, 1, 1, 1, 1, 0, 1, 2, 2]))
    result = PathConsistency(states=states)(these)  # type: ignore[arg-type]
    begins = {"token": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], "turn": [0, 2, 5, 6, 7, 8], "sequence": [0, 5, 6]}[states]
    squares = dict(zip(begins, (result.metrics["residual"] ** 2).tolist(), strict=True))
    own = [[x for t, x in squares.items() if these.sequence_T[t] == n] for n in range(3)]
    expected = [sum(values) / len(values) for values in own]
    assert these.sequence_mean(result.loss_T).tolist() == pytest.approx(expected)


def test_no_reward_is_a_training_signal_too() -> None:
    """Value 0.4 where nothing comes: 0.5 (0.2 - 0.1) + 0.4 and 0.5 (-0.1) + 0.4 are too much, so both sides go down."""
    these = tokens(
        [[-1.0, -2.0]],
        reference_logp={"reference": [[-1.2, -1.9]]},
        advantage=[[-0.4, -0.4]],
        value=[[0.4, 0.4]],
        value_target=[[0.0, 0.0]],
    )
    for learns, signal, slopes in (("policy", "logp_T", [0.45, 0.35]), ("value", VALUE, [0.9, 0.7])):
        loss_T = PathConsistency(learns=learns, beta=0.5)(these).loss_T  # type: ignore[arg-type]
        assert loss_T.tolist() == pytest.approx([0.45**2, 0.35**2])
        assert gradients(loss_T.sum(), these)[signal].tolist() == pytest.approx(slopes)


def test_finite_differences() -> None:
    """Of the loss with the later log-ratios written out as constants."""
    these = random_tokens(needs={logp_of("reference")}, lengths=(4, 2))
    fixed_T = (these.logp_T - these[logp_of("reference")]).detach()
    later_T = torch.stack([*(fixed_T[t + 1 : 4].sum() for t in range(4)), fixed_T[5], torch.zeros(()).double()])

    def loss(logp_T: Tensor) -> Tensor:
        ratio_T = logp_T - these[logp_of("reference")]
        return ((0.3 * (ratio_T + later_T) - these.advantage_T) ** 2).sum()

    found = gradients(PathConsistency(beta=0.3)(these).loss_T.sum(), these)["logp_T"]
    torch.testing.assert_close(found, numerical_gradient(loss, these.logp_T), atol=1e-7, rtol=1e-6)


def test_sums_of_a_long_micro_batch_are_exact() -> None:
    """In float32, after a hundred thousand tokens of other sequences."""
    far = [[-3.0] * 1000] * 100
    rows = [*far, [-1.0, -1.0]]
    reference = [*([[0.0] * 1000] * 100), [-1.125, -1.25]]
    zeros = [[0.0] * len(row) for row in rows]
    these = tokens(rows, reference_logp={"reference": reference}, advantage=zeros, dtype=torch.float32)
    missing_T = PathConsistency(beta=1.0)(these).metrics["residual"]
    assert missing_T[-2:].tolist() == [0.375, 0.25]
    assert missing_T[0].item() == 3000.0


# The tree: three choices between left and right, a uniform reference, and a reward at each of the eight leaves.

REWARDS = [0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0]
PATHS = list(itertools.product((0, 1), repeat=3))


def node(path: tuple[int, ...]) -> int:
    """Number of the inner node at the end of a path: 0, then 1 and 2, then 3 to 6."""
    return 2 ** len(path) - 1 + int("".join(map(str, path)) or "0", 2)


STATE_PT = torch.tensor([[node(path[:t]) for t in range(3)] for path in PATHS])
CHOICE_PT = torch.tensor(PATHS)


def leaves(logits_SC: Tensor, value_S: Tensor) -> Tokens:
    """The eight paths, once each, as the objectives see them."""
    logp_T = logits_SC.log_softmax(1)[STATE_PT, CHOICE_PT].flatten()
    rewards = [[reward] * 3 for reward in REWARDS]
    uniform = [[-math.log(2.0)] * 3] * 8
    these = tokens(uniform, reference_logp={"reference": uniform}, value_target=rewards)
    value_T, target_T = value_S[STATE_PT].flatten(), these.value_target_T
    assert target_T is not None
    return replace(
        these,
        logp_T=logp_T,
        old_logp_T=logp_T.detach(),
        signals={**these.signals, VALUE: value_T, OLD_VALUE: value_T.detach()},
        advantage_T=target_T - value_T.detach(),
    )


def optimum(beta: float) -> tuple[Tensor, Tensor]:
    """Logits Q / beta and soft values, from the leaves up: V = beta log mean exp(Q / beta)."""
    q_SC, value_S = torch.zeros(7, 2, dtype=torch.float64), torch.zeros(7, dtype=torch.float64)
    for depth in (2, 1, 0):
        for path in itertools.product((0, 1), repeat=depth):
            for choice in (0, 1):
                after = (*path, choice)
                q_SC[node(path), choice] = REWARDS[PATHS.index(after)] if depth == 2 else value_S[node(after)]
            value_S[node(path)] = beta * ((q_SC[node(path)] / beta).exp().mean()).log()
    return q_SC / beta, value_S


@pytest.mark.parametrize("states", STATES)
@pytest.mark.parametrize("beta", [0.5, 0.3])
def test_nothing_is_missing_at_the_optimum(beta: float, states: str) -> None:
    """pi in proportion to reference exp(Q / beta), and so exp(R / beta) at the leaves."""
    logits_SC, value_S = optimum(beta)
    these = leaves(logits_SC, value_S)
    chances = these.sequence_sum(these.logp_T).exp()
    weights = torch.tensor(REWARDS, dtype=torch.float64).div(beta).exp()
    torch.testing.assert_close(chances, weights / weights.sum())
    assert value_S[0].item() == pytest.approx(beta * math.log(weights.mean()))
    for learns in ("policy", "value"):
        missing = PathConsistency(learns=learns, beta=beta, states=states)(these)  # type: ignore[arg-type]
        assert missing.loss_T.max() < 1e-24
    elsewhere = leaves(logits_SC, value_S + 0.1)
    assert PathConsistency(beta=beta)(elsewhere).loss_T.min() > 0.009


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0.5, 0.3])
def test_offline_paths_lead_to_the_optimum(beta: float) -> None:
    """400 paths of the uniform reference, tabular policy and values, 32 paths a step."""
    generator = torch.Generator().manual_seed(0)
    data = torch.randint(8, (400,), generator=generator)
    logits_SC = torch.zeros(7, 2, dtype=torch.float64, requires_grad=True)
    value_S = torch.zeros(7, dtype=torch.float64, requires_grad=True)
    optimizers = [torch.optim.SGD([value_S], lr=1.0), torch.optim.SGD([logits_SC], lr=0.5 / beta**2)]
    sides = [PathConsistency(learns=learns, beta=beta) for learns in ("value", "policy")]  # type: ignore[arg-type]
    wanted_SC, wanted_S = optimum(beta)

    def distance() -> float:
        here, there = (leaves(x, value_S).logp_T.view(8, 3).sum(1).exp() for x in (logits_SC, wanted_SC))
        return 0.5 * (here - there).abs().sum().item()

    start = distance()
    for _ in range(600):
        drawn = data[torch.randint(400, (32,), generator=generator)]
        weight_T = torch.bincount(drawn, minlength=8).repeat_interleave(3) / (32 * 3)
        these = leaves(logits_SC, value_S)
        for side, optimizer in zip(sides, optimizers, strict=True):
            optimizer.zero_grad()
            (side(these).loss_T * weight_T).sum().backward()
            optimizer.step()
    assert start > 0.3
    assert distance() < 1e-6
    assert (value_S.detach() - wanted_S).abs().max() < 1e-6
