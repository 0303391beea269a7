"""Input embeddings that are mixed with the model's own choices."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from posttrain.models import Model
from posttrain.policies import Packed
from posttrain.policies.folder import new_folder
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.policies.loading import load_policy
from posttrain.signals import LOGP

IDS = [5, 60, 70, 80, 90, 4, 50, 61, 71]
STARTS = (0, 5, 9)
POSITIONS = torch.tensor([2, 3, 4, 7, 8])


@pytest.fixture
def policy(tmp_path: Path) -> LanguageModelPolicy:
    folder = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=32)
    loaded = load_policy("policy", Model(source=str(folder), trained=True), {}, torch.device("cpu")).double()
    assert isinstance(loaded, LanguageModelPolicy)
    return loaded


def packed(ids: list[int]) -> Packed:
    return Packed(token_ids_L=torch.tensor(ids), starts=STARTS)


def choices(policy: LanguageModelPolicy) -> torch.Tensor:
    """The ids with the most likely token in each of the positions, from the true tokens before it."""
    with torch.no_grad():
        logits_LV = policy.body.logits(policy.body.hidden(packed(IDS)))
    ids = torch.tensor(IDS)
    ids[POSITIONS] = logits_LV[POSITIONS - 1].argmax(-1)
    return ids


def test_with_a_share_of_1_the_inputs_are_the_choices_and_the_labels_stay(policy: LanguageModelPolicy) -> None:
    ids = choices(policy)
    assert (ids != torch.tensor(IDS)).any()
    found = policy.evaluate(packed(IDS), POSITIONS, foresight=1.0)[LOGP]
    hidden = policy.body.hidden(packed(ids.tolist()))
    logp_TV = policy.body.logits(hidden[POSITIONS - 1]).log_softmax(-1)
    expected = logp_TV.gather(1, torch.tensor(IDS)[POSITIONS][:, None]).flatten()
    torch.testing.assert_close(found, expected)


def test_without_a_share_nothing_changes(policy: LanguageModelPolicy) -> None:
    plain = policy.evaluate(packed(IDS), POSITIONS)[LOGP]
    assert torch.equal(policy.evaluate(packed(IDS), POSITIONS, foresight=0.0)[LOGP], plain)
    first_of_each = policy.evaluate(packed(IDS), POSITIONS, foresight=0.3)[LOGP][[0, 3]]
    torch.testing.assert_close(first_of_each, plain[[0, 3]], msg="nothing that is trained stands before them")


def test_both_embeddings_have_a_gradient(policy: LanguageModelPolicy) -> None:
    """Against central differences in an entry of a chosen token's embedding; the body's own head is not tied here."""
    ids, body = choices(policy), policy.body
    weight = body.model.embed_tokens.weight  # type: ignore[union-attr]
    guessed = replace(packed(IDS), guessed_L=ids, foresight=0.3)

    def loss() -> torch.Tensor:
        logp_TV = body.logits(body.hidden(guessed)[POSITIONS - 1]).log_softmax(-1)
        return logp_TV.gather(1, torch.tensor(IDS)[POSITIONS][:, None]).sum()

    [gradient] = torch.autograd.grad(loss(), [weight])
    for token in (int(ids[2]), IDS[2]):
        with torch.no_grad():
            weight[token, 1] += 1e-5
            above = float(loss())
            weight[token, 1] -= 2e-5
            below = float(loss())
            weight[token, 1] += 1e-5
        assert float(gradient[token, 1]) == pytest.approx((above - below) / 2e-5, rel=1e-4, abs=1e-8)


def test_shared_prompts_and_sequences_by_themselves_agree(policy: LanguageModelPolicy) -> None:
    ids = torch.tensor(IDS)
    together = policy.evaluate(packed(IDS), POSITIONS, foresight=0.5)[LOGP]
    alone = Packed(token_ids_L=ids[:5], starts=(0, 5))
    torch.testing.assert_close(policy.evaluate(alone, POSITIONS[:3], foresight=0.5)[LOGP], together[:3])
    shared = Packed(token_ids_L=torch.tensor([5, 60, 70, 80, 90]), starts=(0, 2, 5), after=(-1, 0))
    torch.testing.assert_close(policy.evaluate(shared, POSITIONS[:3], foresight=0.5)[LOGP], together[:3])
