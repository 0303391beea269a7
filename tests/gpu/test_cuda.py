"""One NVIDIA GPU: the same laws as on a CPU, as far as its arithmetic keeps them. Skipped where there is none."""

import copy
import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from posttrain import kernels
from posttrain.engines._truncation import Rules, choose
from posttrain.kernels import gpu_signals, paged
from posttrain.models import Model
from posttrain.policies import Packed
from posttrain.policies._attention import variable_attention
from posttrain.policies._cache import KeyValueCache
from posttrain.policies._graphs import captured_decoding_of, decode_with, no_capture
from posttrain.policies.folder import new_folder
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.policies.loading import load_policy
from posttrain.recipes.files import find_recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from tests.kernels.paged_cases import LENGTHS as PAGED_LENGTHS
from tests.kernels.paged_cases import SHAPES, Case
from tests.policies.made_models import pack, random_sequences, sampled_states

DEVICE = torch.device("cuda")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no NVIDIA GPU on this machine")
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.1}
"""On log-probabilities of some nats; products on a GPU are summed in other orders than on a CPU."""

DTYPES = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
LENGTHS = (40, 5, 129, 17, 300, 33)


def load_on_gpu(path: Path, dtype: str) -> LanguageModelPolicy:
    sizes = {"layers": 2, "width": 256, "heads": 4, "kv_heads": 2, "head_dim": 64, "mlp_width": 512, "context": 2048}
    new_folder(path, **sizes)  # type: ignore[arg-type]
    policy = load_policy("policy", Model(source=str(path), dtype=dtype, trained=True), {}, DEVICE)  # type: ignore[arg-type]
    assert isinstance(policy, LanguageModelPolicy)
    return policy


def on_gpu(sequences: list[Tensor]) -> list[Tensor]:
    return [ids.to(DEVICE) for ids in sequences]


def logps(policy: LanguageModelPolicy, states: Tensor) -> Tensor:
    with torch.no_grad():
        return policy.body.logits(states).float().log_softmax(-1).cpu()


@DTYPES
def test_the_learner_sees_what_the_sampler_saw(tmp_path: Path, dtype: str) -> None:
    policy, sequences, prompts = (
        load_on_gpu(tmp_path, dtype),
        on_gpu(random_sequences(*LENGTHS)),
        [30, 1, 64, 16, 270, 32],
    )
    hidden = policy.body.hidden(pack(sequences)).detach().split(list(LENGTHS))
    for states, whole, prompt in zip(sampled_states(policy.body, sequences, prompts), hidden, prompts, strict=True):
        given, expected = logps(policy, states), logps(policy, whole[prompt - 1 :])
        assert (given - expected).abs().max() < TOLERANCE[dtype]


def test_it_computes_what_the_cpu_computes(tmp_path: Path) -> None:
    policy, sequences = load_on_gpu(tmp_path, "float32"), random_sequences(*LENGTHS)
    on_cpu = copy.deepcopy(policy.body).to("cpu")
    expected = on_cpu.logits(on_cpu.hidden(pack(sequences))).detach().log_softmax(-1)
    given = logps(policy, policy.body.hidden(pack(on_gpu(sequences))).detach())
    assert (given - expected).abs().max() < TOLERANCE["float32"]


@DTYPES
def test_a_shared_prompt_gives_each_what_it_gets_alone_gradients_included(tmp_path: Path, dtype: str) -> None:
    policy = load_on_gpu(tmp_path, dtype)
    prompt, one, other = on_gpu(random_sequences(37, 20, 33))
    shared = Packed(token_ids_L=torch.cat([prompt, one, other]), starts=(0, 37, 57, 90), after=(-1, 0, 0))
    alone = pack([torch.cat([prompt, one]), torch.cat([prompt, other])])
    if dtype == "bfloat16" and variable_attention() is not None:
        assert policy.shares_prompts
    rows = [*range(37, 57), *range(57 + 37, 127)]  # of the two alone: what comes after the prompt
    gradients = []
    for packed, kept in ((shared, list(range(37, 90))), (alone, rows)):
        policy.zero_grad()
        states = policy.body.hidden(packed)[kept]
        states.float().square().sum().backward()  # type: ignore[no-untyped-call]
        gradients.append(
            (states.detach(), torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None]))
        )
    (states, gradient), (expected, plain) = gradients
    assert (logps(policy, states) - logps(policy, expected)).abs().max() < TOLERANCE[dtype]
    assert (gradient - plain).norm() < (1e-4 if dtype == "float32" else 0.05) * plain.norm()


@DTYPES
@pytest.mark.slow
def test_grpo_runs_and_its_sampler_and_learner_agree(tmp_path: Path, dtype: str) -> None:
    changes = [f"device={DEVICE}", f"models.policy.dtype={dtype}", "steps=3", "prompts=4", "rollout.n=4"]
    folder, _ = start(find_recipe("grpo", [*changes, "evaluation.holdout=10"]), tmp_path / "runs", LiveView(lines=True))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if "loss" in row]
    assert len(steps) == 3 and all(abs(row["loss"]) < 1e3 for row in steps)
    gaps = [value for row in steps for name, value in row.items() if "gap" in name]
    assert gaps and max(gaps) < TOLERANCE[dtype]


WHY_NOT = paged.why_not(DEVICE)
needs_graphs = pytest.mark.skipif(bool(WHY_NOT), reason=f"decoding is not captured: {WHY_NOT}")


@needs_graphs
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_to_pages_is_that_of_float64(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    """Over the ends of pages and splits, with normed heads; and to the bit whatever a row is beside."""
    case = Case((*PAGED_LENGTHS, 5000), shape, dtype, normed=True)
    case.to(DEVICE)
    rows = [*range(len(PAGED_LENGTHS) + 1), -1]
    expected, expected_pages = case.run(rows, dtype=torch.float64)
    given, pages = case.run(rows)
    assert not given[-1].any()
    near = 1e-5 if dtype == torch.float32 else 0.02
    torch.testing.assert_close(given.double(), expected, atol=near, rtol=near)
    for one, other in zip(pages, expected_pages, strict=True):
        torch.testing.assert_close(one.double(), other, atol=near, rtol=near, equal_nan=True)
    for others in ([7, -1, 2, 0], [3], [6, 6]):
        for row, y in zip(others, case.run(others)[0], strict=True):
            assert row < 0 or torch.equal(y, given[row])


def decoded(policy: LanguageModelPolicy, prompts: list[Tensor], steps: int) -> tuple[Tensor, KeyValueCache]:
    """[T, B, D] states of the prompts' ends and of greedy tokens after them."""
    body, slots = policy.body, list(range(len(prompts)))
    cache = body.new_cache(len(prompts), 1024)
    assert isinstance(cache, KeyValueCache)
    states = [body.extend(cache, slots, pack(on_gpu(prompts)))]
    for _ in range(steps):
        with torch.no_grad():
            token_B = body.logits(states[-1]).argmax(-1)
        states.append(body.extend(cache, slots, pack(list(token_B[:, None].cpu()))))
    return torch.stack(states), cache


@needs_graphs
@DTYPES
def test_captured_steps_are_those_of_the_modules_and_those_without_graphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    policy, prompts = load_on_gpu(tmp_path, dtype), random_sequences(*LENGTHS)
    captured, _ = decoded(policy, prompts, 40)
    decoding = captured_decoding_of(policy.body)  # type: ignore[arg-type]
    assert decoding is not None and 1 <= decoding.captures <= 2
    again, _ = decoded(policy, prompts, 40)
    assert torch.equal(again, captured) and decoding.captures <= 2
    decode_with(policy.body, lambda: no_capture)  # type: ignore[arg-type]
    assert torch.equal(decoded(policy, prompts, 40)[0], captured), "the same kernels, one by one"
    monkeypatch.setattr("posttrain.policies.decoder.decoding_of", lambda body, cache: None)
    plain, _ = decoded(policy, prompts, 1)
    assert (logps(policy, plain[1]) - logps(policy, captured[1])).abs().max() < TOLERANCE[dtype]


@needs_graphs
def test_two_hundred_steps_capture_twice_and_weights_changed_in_place_not_again(tmp_path: Path) -> None:
    policy, prompts = load_on_gpu(tmp_path, "bfloat16"), random_sequences(30, 5, 100)
    first, _ = decoded(policy, prompts, 200)
    decoding = captured_decoding_of(policy.body)  # type: ignore[arg-type]
    assert decoding is not None and decoding.captures == 2, "up to 256 tokens, and up to 512"
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1.05)
    changed, _ = decoded(policy, prompts, 200)
    assert decoding.captures == 2 and not torch.equal(changed, first)
    expected = policy.body.hidden(pack(on_gpu(prompts))).detach()[[29, 34, 134]]
    assert (logps(policy, changed[0]) - logps(policy, expected)).abs().max() < TOLERANCE["bfloat16"]
    for parameter in policy.parameters():
        parameter.data = parameter.data.clone()
    moved, _ = decoded(policy, prompts, 2)
    assert decoding.captures == 3 and torch.equal(moved, changed[:3])


@needs_graphs
def test_a_step_takes_no_more_memory_after_many_tokens_than_after_few(tmp_path: Path) -> None:
    """Pages follow the tokens, and nothing is gathered: keys and values of 900 tokens would be seen here."""
    policy, taken, pages = load_on_gpu(tmp_path, "bfloat16"), [], []
    for length in (520, 1000):
        prompts = random_sequences(*[length] * 16)
        decoded(policy, prompts, 1)  # what is captured is kept
        _, cache = decoded(policy, prompts, 1)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        policy.body.extend(cache, list(range(16)), pack(random_sequences(*[1] * 16)))
        torch.cuda.synchronize()
        taken.append(torch.cuda.max_memory_allocated() - before)
        pages.append(cache.pages)
    assert pages == [16 * 33, 16 * 63] and taken[0] == taken[1] < 1 << 20


@needs_graphs
@DTYPES
def test_tokens_drawn_in_one_go_are_those_of_single_steps(tmp_path: Path, dtype: str) -> None:
    """To the bit, over the ends of pages, greedily and not, with rows of padding."""
    policy, count = load_on_gpu(tmp_path, dtype), 5
    body, slots, prompts = policy.body, list(range(count)), random_sequences(40, 5, 129, 250, 300)

    def drawing(written: int) -> kernels.Drawing:
        return kernels.Drawing(
            temperature_B=torch.tensor([1.0, 0.0, 0.7, 1.0, 0.5], dtype=torch.float64),
            key_B=torch.arange(count).to(torch.uint64),
            counter_B=torch.full((count,), written, dtype=torch.uint64),
        )

    found = []
    for parts in ((1,) * 24, (8, 8, 8), (24,)):
        cache = body.new_cache(count, 1024)
        body.extend(cache, slots, pack(on_gpu(prompts)))
        last_B, done, written = torch.arange(count), [], 0
        for part in parts:
            drawn = body.write(cache, slots, last_B, drawing(written), part)
            assert drawn is not None
            done.append(drawn)
            last_B, written = drawn[0][:, -1].cpu(), written + part
        found.append([torch.cat(kind, 1) for kind in zip(*done, strict=True)])
    assert len(found[0][0].unique()) > 50
    for other in found[1:]:
        assert all(torch.equal(x, y) for x, y in zip(other, found[0], strict=True))


@needs_graphs
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("columns", "temperature"), [(61, 1.0), (9000, 0.7), (151_936, 1.0)])
def test_log_probabilities_and_entropies_are_those_of_float64(
    columns: int, temperature: float, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(33, columns, generator=generator)).to(DEVICE, dtype)
    token_T, credit_T2 = torch.randint(columns, (33,), generator=generator), torch.randn(33, 2, generator=generator)
    token_T, credit_T2 = token_T.to(DEVICE), credit_T2.to(DEVICE)
    exact, given = logits.double().requires_grad_(), logits.clone().requires_grad_()
    logp_TV = (exact / temperature).log_softmax(-1)
    truth = torch.stack((logp_TV.gather(1, token_T[:, None])[:, 0], -(logp_TV.exp() * logp_TV).sum(-1)), -1)
    logp_T, entropy_T = gpu_signals.token_signals(given * 1, token_T, temperature=temperature, entropy=True)
    assert entropy_T is not None
    found = torch.stack((logp_T, entropy_T), -1)
    torch.testing.assert_close(found.double(), truth, atol=1e-5, rtol=3e-6)
    (found * credit_T2).sum().backward()  # type: ignore[no-untyped-call]
    (truth * credit_T2).sum().backward()  # type: ignore[no-untyped-call]
    near = 1e-5 if dtype == torch.float32 else 2**-8
    torch.testing.assert_close(given.grad.double(), exact.grad, atol=near, rtol=near)  # type: ignore[union-attr]
    alone = gpu_signals.token_signals(logits[7:8], token_T[7:8], temperature=temperature, entropy=True)
    assert torch.equal(alone[0][0], logp_T[7]), "a row's numbers depend on the row alone"


@needs_graphs
def test_tokens_are_chosen_as_on_the_host() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(64, 5000, generator=generator)
    draw_B = torch.rand(64, generator=generator, dtype=torch.float64)
    none = torch.zeros(64, dtype=torch.float64)
    for temperature, top_k in ((1.0, 0), (0.7, 50), (0.0, 0)):
        rules = Rules(temperature_B=none + temperature, top_k_B=none.long() + top_k, top_p_B=none + 1.0, min_p_B=none)
        (token, *numbers), (expected, *others) = (choose(x, rules, draw_B) for x in (logits.to(DEVICE), logits))
        assert torch.equal(token.cpu(), expected)
        for own, other in zip(numbers, others, strict=True):
            torch.testing.assert_close(own.cpu(), other, atol=1e-10, rtol=0)
