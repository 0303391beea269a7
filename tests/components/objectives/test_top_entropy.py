import math
from dataclasses import replace

import pytest
import torch

from posttrain.components.objectives.likelihood import Likelihood
from posttrain.components.objectives.policy_gradient import PolicyGradient
from posttrain.components.objectives.top_entropy import TopEntropy
from posttrain.signals import ENTROPY
from posttrain.types import Tokens
from tests.builders import gradients, numerical_gradient, random_tokens, tokens


def kept(share: float, entropy: list[list[float]]) -> list[bool]:
    these = tokens([[-1.0] * len(row) for row in entropy], entropy=entropy)
    result = TopEntropy(objective=Likelihood(), share=share)(these)
    return [bool(x) for x in gradients(result.loss_T.sum(), these)["logp_T"]]


def test_by_hand() -> None:
    entropy = [[0.1, 0.9, 0.5, 0.3, 0.2], [2.0, 1.0]]
    assert kept(0.2, entropy) == [False, True, False, False, False, True, False]
    assert kept(0.4, entropy) == [False, True, True, False, False, True, False]
    assert kept(0.0, entropy) == [False] * 7
    assert kept(1.0, entropy) == [True] * 7


@pytest.mark.parametrize("share", [0.0, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("length", [1, 4, 5, 10, 37])
def test_of_n_tokens_a_share_rounded_up(share: float, length: int) -> None:
    generator = torch.Generator().manual_seed(length)
    entropy = torch.rand(length, generator=generator).tolist()
    chosen = kept(share, [entropy])
    assert sum(chosen) == math.ceil(round(share * length, 6))
    limit = sorted(entropy, reverse=True)[: sum(chosen)]
    assert sorted((e for e, k in zip(entropy, chosen, strict=True) if k), reverse=True) == limit


def test_equal_entropies_keep_the_earlier_tokens() -> None:
    assert kept(0.5, [[1.0, 1.0, 1.0, 1.0]]) == [True, True, False, False]


def test_sequences_without_tokens() -> None:
    these = random_tokens(lengths=(4, 3, 2), needs={ENTROPY})
    without_second = these.only(these.sequence_T != 1)
    result = TopEntropy(objective=Likelihood(), share=0.5)(without_second)
    assert (result.loss_T != 0).tolist().count(True) == 2 + 1


def test_finite_differences() -> None:
    these = random_tokens(needs={ENTROPY})
    member = TopEntropy(objective=PolicyGradient(), share=0.5)

    def loss(logp_T: torch.Tensor) -> torch.Tensor:
        return member(replace(these, logp_T=logp_T)).loss_T.sum()

    found = gradients(loss(these.logp_T), these)
    torch.testing.assert_close(found["logp_T"], numerical_gradient(loss, these.logp_T), atol=1e-8, rtol=1e-6)
    assert not found[ENTROPY].any(), "the entropy only chooses"


def test_nothing_depends_on_what_else_is_in_the_batch() -> None:
    these = random_tokens(lengths=(6, 9, 3), needs={ENTROPY})
    member = TopEntropy(objective=Likelihood(), share=0.3)
    whole_T = member(these).loss_T
    for i in range(3):
        own_T = these.sequence_T == i
        assert torch.equal(member(these.only(own_T)).loss_T, whole_T[own_T])


def test_needs_and_metrics() -> None:
    member = TopEntropy(objective=PolicyGradient())
    assert member.needs == {ENTROPY}
    assert "reinforce" in member.exceptions and not member.whole_groups
    these: Tokens = tokens([[-1.0, -1.0]], entropy=[[0.25, 2.0]])
    assert replace(member, share=0.5)(these).metrics["kept_entropy"].tolist() == [2.0]
