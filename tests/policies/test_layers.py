"""States by layer, and replaced ones: by hand, in training and in sampling."""

from pathlib import Path

import pytest
import torch

from posttrain.engines import Sampling, wait_for
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.policies import Packed, _byte_tokenizer
from posttrain.policies.folder import new_folder
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.policies.layers import check_layer, layers_of, replaced, states
from posttrain.signals import LOGP
from tests.policies.made_models import load, make_folder

PACKED = Packed(token_ids_L=torch.arange(40, 61), starts=(0, 9, 21))


@pytest.fixture
def policy(tmp_path: Path) -> LanguageModelPolicy:
    return load(new_folder(tmp_path / "m", layers=3, width=32, heads=2, kv_heads=1, context=64), trained=True)


def test_the_states_are_the_residual_stream(policy: LanguageModelPolicy) -> None:
    """The norm of the last ones is the final hidden state; reading changes nothing and leaves no hook."""
    before = policy.body.hidden(PACKED)
    found = states(policy.body, PACKED, (0, 2))
    assert {layer: tuple(state.shape) for layer, state in found.items()} == {0: (21, 32), 2: (21, 32)}
    norm = policy.body.get_submodule("model.norm")
    assert torch.allclose(norm(found[2]), before, atol=1e-5)
    assert torch.allclose(policy.body.hidden(PACKED), before, atol=0)
    assert not any(layer._forward_hooks for layer in layers_of(policy.body))


def test_a_replaced_state_is_seen_by_what_follows(policy: LanguageModelPolicy) -> None:
    own = states(policy.body, PACKED, (1,))[1].detach()
    with replaced(policy.body, {1: lambda state: torch.ones_like(state)}):
        assert torch.equal(states(policy.body, PACKED, (0, 1, 2))[1], torch.ones_like(own))
        changed = policy.body.hidden(PACKED)
    with replaced(policy.body, {1: lambda state: state}):
        assert torch.allclose(policy.body.hidden(PACKED), policy.body.hidden(PACKED))
    assert not torch.allclose(changed, policy.body.hidden(PACKED), atol=1e-2)


def test_no_gradient_up_to_a_layer_that_is_replaced_without_one(policy: LanguageModelPolicy) -> None:
    with replaced(policy.body, {1: lambda state: state.detach() * 0.9}):
        logp_T = policy.evaluate(PACKED, torch.arange(1, 9))[LOGP]
        logp_T.sum().backward()  # type: ignore[no-untyped-call]
    norms = [
        sum(0.0 if p.grad is None else float(p.grad.abs().sum()) for p in layer.parameters())
        for layer in layers_of(policy.body)
    ]
    assert norms[0] == norms[1] == 0.0 and norms[2] > 0.0


def test_sampling_goes_through_it(policy: LanguageModelPolicy) -> None:
    """Greedy tokens of a hooked model are the likeliest by its own forward pass; without the hook they are others."""

    def written() -> list[int]:
        sampler = Native().serve(policy, 0).bind("test")
        [completion] = wait_for(
            sampler.sample(PACKED.token_ids_L[:9].numpy(), 1, Sampling(temperature=0.0, max_tokens=6))
        )
        return [int(token) for token in completion.token_ids]

    plain = written()
    with replaced(policy.body, {1: lambda state: -state}):
        found = written()
        ids = [*PACKED.token_ids_L[:9].tolist(), *found]
        hidden = policy.body.hidden(Packed(token_ids_L=torch.tensor(ids), starts=(0, len(ids))))
        likeliest = policy.body.logits(hidden).argmax(-1).tolist()
    assert likeliest[8:-1] == found and found != plain and written() == plain


def test_of_transformers_too(tmp_path: Path) -> None:
    sizes = {"n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": _byte_tokenizer.VOCABULARY_SIZE}
    body = load(make_folder(tmp_path / "gpt2", "GPT2Config", sizes)).body
    before = body.hidden(PACKED)
    with replaced(body, {0: lambda state: state}):
        assert torch.equal(body.hidden(PACKED), before)
    with replaced(body, {1: lambda state: 0.0 * state}):
        assert float(body.hidden(PACKED).std(0).max()) == 0.0


def test_a_layer_that_is_not_there(policy: LanguageModelPolicy) -> None:
    check_layer(policy.body, 2)
    with (
        pytest.raises(UserError, match="layer 3 is named, and the model has 3, counted from 0; give 0 to 2"),
        replaced(policy.body, {3: lambda state: state}),
    ):
        pass
