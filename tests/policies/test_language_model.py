import itertools
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from posttrain.errors import UserError
from posttrain.models import LoRA, Model
from posttrain.policies import Packed
from posttrain.policies._signals import token_signals
from posttrain.policies.folder import new_folder
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.policies.loading import load_policy
from posttrain.policies.lora import adapters
from posttrain.signals import ENTROPY, LOGP, SCORE, VALUE, Signal
from tests.policies.made_models import CPU, load, make_folder, pack, random_sequences

SEQUENCES = random_sequences(12, 40, 5, 90)
STARTS = pack(SEQUENCES).starts
POSITIONS = torch.tensor([1, 4, 11, 13, 51, 53, 56, 58, 100, 146])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("qwen3"), "Qwen3Config", {"head_dim": 16, "tie_word_embeddings": True})


def copy_of(policy: LanguageModelPolicy, **settings: object) -> LanguageModelPolicy:
    model = Model(source="role:policy", **settings)  # type: ignore[arg-type]
    made = load_policy("copy", model, {"policy": policy}, CPU)
    assert isinstance(made, LanguageModelPolicy)
    return made


def naive(policy: LanguageModelPolicy, packed: Packed, temperature: float) -> dict[Signal, Tensor]:
    """Signals at `POSITIONS` from all logits, in float64."""
    logits_LV = policy.body.logits(policy.body.hidden(packed)).double() / temperature
    p_LV = logits_LV.exp() / logits_LV.exp().sum(1, keepdim=True)
    before = POSITIONS - 1
    return {
        LOGP: p_LV[before, packed.token_ids_L[POSITIONS]].log(),
        ENTROPY: -(p_LV[before] * p_LV[before].log()).sum(1),
    }


@pytest.mark.parametrize("temperature", [1.0, 0.6, 2.5])
def test_signals_are_those_of_the_full_distribution(folder: Path, temperature: float) -> None:
    policy, packed = load(folder), pack(SEQUENCES)
    signals = policy.evaluate(packed, POSITIONS, frozenset({ENTROPY}), temperature=temperature)
    expected = naive(policy, packed, temperature)
    assert signals.keys() == expected.keys()
    for name, value in signals.items():
        torch.testing.assert_close(value.double(), expected[name], atol=1e-5, rtol=1e-5)
    assert policy.evaluate(packed, POSITIONS).keys() == {LOGP}


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_gradients_are_those_of_the_full_distribution(folder: Path, temperature: float) -> None:
    policy, packed = load(folder, trained=True).double(), pack(SEQUENCES)
    weight_T = torch.linspace(-1, 2, len(POSITIONS)).double()

    def gradients(signals: dict[Signal, Tensor]) -> list[Tensor]:
        loss = (weight_T * signals[LOGP] + 0.3 * signals[ENTROPY]).sum()
        return list(torch.autograd.grad(loss, list(policy.parameters())))

    given = policy.evaluate(packed, POSITIONS, frozenset({ENTROPY}), temperature=temperature)
    for one, other in zip(gradients(dict(given)), gradients(naive(policy, packed, temperature)), strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize(
    "name",
    ["model.embed_tokens.weight", "model.layers.0.self_attn.k_norm.weight", "model.layers.1.mlp.gate_proj.weight"],
)
def test_gradient_by_finite_differences(folder: Path, name: str) -> None:
    policy, packed = load(folder, trained=True).double(), pack(SEQUENCES)
    parameter = policy.body.get_parameter(name)

    def loss() -> Tensor:
        signals = policy.evaluate(packed, POSITIONS, frozenset({ENTROPY}), temperature=0.8)
        return signals[LOGP].square().sum() + signals[ENTROPY].sum()

    (gradient,) = torch.autograd.grad(loss(), parameter)
    generator = torch.Generator().manual_seed(1)
    direction = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    step = 1e-6
    with torch.no_grad():
        parameter.add_(step * direction)
        above = loss()
        parameter.sub_(2 * step * direction)
        below = loss()
    torch.testing.assert_close((gradient * direction).sum(), (above - below) / (2 * step), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_chunks_hold_few_logits_and_change_nothing(dtype: torch.dtype, tolerance: float) -> None:
    """By the plain operations, and by the kernel, whose gradient takes the place of the logits."""
    generator = torch.Generator().manual_seed(0)
    hidden_TD, weight_VD = (torch.randn(n, 8, generator=generator, dtype=dtype) for n in (100, 50))
    token_T = torch.randint(50, (100,), generator=generator)
    most = 0

    def signals(chunk_logits: int) -> tuple[list[Tensor], int]:
        hidden, weight = hidden_TD.clone().requires_grad_(), weight_VD.clone().requires_grad_()
        held = []

        def logits(h: Tensor) -> Tensor:
            held.append(len(h))
            return h @ weight.T

        sizes = {"vocabulary_size": 50, "temperature": 0.7, "needs": frozenset({ENTROPY}), "others": ()}
        made = token_signals(logits, hidden, token_T, chunk_logits=chunk_logits, **sizes)  # type: ignore[arg-type]
        (made[LOGP].square().sum() + made[ENTROPY].sum()).backward()
        assert hidden.grad is not None and weight.grad is not None
        return [made[LOGP], made[ENTROPY], hidden.grad, weight.grad], max(held)

    whole, most = signals(10**9)
    assert most == 100
    for chunk, size in ((50 * 30, 30), (1, 16)):
        parts, most = signals(chunk)
        assert most == size
        for one, other in zip(parts, whole, strict=True):
            torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


def test_packing_order_does_not_matter(folder: Path) -> None:
    policy = load(folder)
    alone = [policy.evaluate(pack([ids]), torch.arange(1, len(ids)))[LOGP] for ids in SEQUENCES]
    for order in itertools.permutations(range(4)):
        packed = pack([SEQUENCES[i] for i in order])
        positions = torch.cat([torch.arange(begin + 1, end) for begin, end in itertools.pairwise(packed.starts)])
        together = policy.evaluate(packed, positions)[LOGP]
        torch.testing.assert_close(together, torch.cat([alone[i] for i in order]), atol=2e-7, rtol=0)


def test_no_positions_give_no_signals(folder: Path) -> None:
    signals = load(folder).evaluate(pack(SEQUENCES), torch.zeros(0, dtype=torch.int64), frozenset({ENTROPY}))
    assert signals[LOGP].shape == signals[ENTROPY].shape == (0,)


def test_a_first_token_has_no_probability(folder: Path) -> None:
    for start in STARTS[:-1]:
        with pytest.raises(AssertionError, match="nothing before it"):
            load(folder).evaluate(pack(SEQUENCES), torch.tensor([start]))


def test_a_value_is_of_the_state_before_the_token(folder: Path, tmp_path: Path) -> None:
    policy = load(folder, head="value", trained=True)
    packed = pack(SEQUENCES)
    assert torch.equal(policy.evaluate(packed, POSITIONS)[VALUE], torch.zeros(len(POSITIONS)))
    assert policy.value_head is not None
    with torch.no_grad():
        policy.value_head.weight.copy_(torch.linspace(-1, 1, policy.body.width)[None])
        policy.value_head.bias.fill_(0.5)
    value_T = policy.evaluate(packed, POSITIONS, frozenset({VALUE}))[VALUE]
    states_TD = policy.body.hidden(packed)[POSITIONS - 1]
    torch.testing.assert_close(value_T, states_TD @ torch.linspace(-1, 1, policy.body.width) + 0.5, atol=1e-5, rtol=0)
    value_T.sum().backward()
    assert policy.value_head.bias.grad == len(POSITIONS)
    embedding = policy.body.get_parameter("model.embed_tokens.weight")
    assert embedding.grad is not None and embedding.grad.abs().sum() > 0
    policy.save(tmp_path)
    assert torch.equal(load(tmp_path, head="value").evaluate(packed, POSITIONS)[VALUE], value_T)
    assert load(tmp_path).evaluate(packed, POSITIONS).keys() == {LOGP}
    save_file({"weight": torch.ones(1, 3), "bias": torch.ones(1)}, tmp_path / "value_head.safetensors")
    with pytest.raises(UserError, match=r"value head .* is damaged or of another model"):
        load(tmp_path, head="value")


def test_a_score_is_of_the_sequence_up_to_and_including_the_token(folder: Path, tmp_path: Path) -> None:
    policy = load(folder, head="reward", trained=True)
    packed, positions_T = pack(SEQUENCES), torch.tensor([STARTS[0], *(start - 1 for start in STARTS[1:])])
    assert policy.value_head is not None
    with torch.no_grad():
        policy.value_head.weight.copy_(torch.linspace(-1, 1, policy.body.width)[None])
    score_T = policy.evaluate(packed, positions_T, frozenset({SCORE}))[SCORE]
    states_TD = policy.body.hidden(packed)[positions_T]
    torch.testing.assert_close(score_T, states_TD @ torch.linspace(-1, 1, policy.body.width), atol=1e-5, rtol=0)
    policy.save(tmp_path)
    assert torch.equal(load(tmp_path, head="reward").evaluate(packed, positions_T)[SCORE], score_T)
    critic = load(tmp_path, head="value")
    assert critic.value_head is not None and not critic.value_head.weight.any(), "a critic has a head of its own"


def test_a_critics_score_is_its_value_of_the_last_state_before_the_end(folder: Path) -> None:
    """After the last token, but before an end token: no state after one was ever learned."""
    policy = load(folder, head="value")
    assert policy.value_head is not None
    with torch.no_grad():
        policy.value_head.weight.copy_(torch.linspace(-1, 1, policy.body.width)[None])
    packed = pack(SEQUENCES)
    positions_T = torch.tensor([0, *(start - 1 for start in STARTS[1:])])
    value_L = policy.body.hidden(packed) @ torch.linspace(-1, 1, policy.body.width)
    policy.tokenizer.end_token_ids = frozenset({int(packed.token_ids_L[positions_T[2]])})
    read = [int(t) - int(int(packed.token_ids_L[t]) in policy.tokenizer.end_token_ids) for t in positions_T]
    assert read[2] == int(positions_T[2]) - 1 and read[:2] == positions_T[:2].tolist()
    score_T = policy.evaluate(packed, positions_T, frozenset({SCORE}))[SCORE]
    torch.testing.assert_close(score_T, value_L[read], atol=1e-5, rtol=0)


def test_a_head_is_asked_for_what_it_gives(folder: Path) -> None:
    with pytest.raises(UserError, match=r"'policy' has a language head: it gives certainty and entropy .*, not value"):
        load(folder).evaluate(pack(SEQUENCES), POSITIONS, frozenset({VALUE}))
    with pytest.raises(UserError, match="'policy' has a value head: it gives score and value, not entropy"):
        load(folder, head="value").evaluate(pack(SEQUENCES), POSITIONS, frozenset({ENTROPY}))


def test_a_copy_of_a_role_stays_as_it_was(folder: Path) -> None:
    policy = load(folder, trained=True)
    with torch.no_grad():
        policy.body.get_parameter("model.norm.weight").mul_(1.1)
    reference = copy_of(policy)
    before = policy.evaluate(pack(SEQUENCES), POSITIONS)[LOGP].detach()
    assert torch.equal(reference.evaluate(pack(SEQUENCES), POSITIONS)[LOGP], before)
    assert not any(p.requires_grad for p in reference.parameters())
    assert all(p.requires_grad for p in policy.parameters())
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.zero_()
    assert torch.equal(reference.evaluate(pack(SEQUENCES), POSITIONS)[LOGP], before)


def test_copies_take_the_settings_of_their_own_role(folder: Path) -> None:
    policy = load(folder, trained=True, lora=LoRA(rank=2))
    for name, parameter in policy.named_parameters():
        if name.endswith("lora_B"):
            parameter.data.normal_(0, 0.02)
    critic = copy_of(policy, head="value", trained=True, context=100)
    assert critic.value_head is not None and critic.body.context == 100
    assert (critic.lora, adapters(critic.body)) == (None, {})
    assert all(p.requires_grad for p in critic.parameters())
    one, other = (p.body.hidden(pack(SEQUENCES)) for p in (critic, policy))
    torch.testing.assert_close(one, other, atol=1e-5, rtol=0)
    with torch.no_grad():
        critic.value_head.bias.fill_(3.0)
    second = load_policy("second", Model(source="role:critic", head="value"), {"critic": critic}, CPU)
    assert second.evaluate(pack(SEQUENCES), POSITIONS)[VALUE].unique().tolist() == [3.0]
    assert copy_of(policy, dtype="bfloat16").body.hidden(pack(SEQUENCES)).dtype == torch.bfloat16


def test_what_is_wrong_with_a_source_is_reported(folder: Path) -> None:
    policy = load(folder)
    with pytest.raises(UserError, match=r"models\.copy: source is 'role:polcy', but .* did you mean 'policy'"):
        load_policy("copy", Model(source="role:polcy"), {"policy": policy}, CPU)
    with pytest.raises(UserError, match=r"models\.copy: context is 1000 tokens, but the model is made for 512"):
        copy_of(policy, context=1000)
    with pytest.raises(UserError, match=r"models\.policy: lora is a way of training the model, but trained is false"):
        load(folder, lora=LoRA())


def test_a_saved_critic_keeps_its_language_model(folder: Path, tmp_path: Path) -> None:
    load(folder, head="value").save(tmp_path)
    ours, theirs = load_file(tmp_path / "model.safetensors"), load_file(folder / "model.safetensors")
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_value_heads_are_float32_whatever_the_body_is(tmp_path: Path) -> None:
    policy = load(new_folder(tmp_path), head="value", dtype="bfloat16", trained=True)
    assert policy.body.hidden(pack(SEQUENCES)).dtype == torch.bfloat16
    assert policy.evaluate(pack(SEQUENCES), POSITIONS)[VALUE].dtype == torch.float32
