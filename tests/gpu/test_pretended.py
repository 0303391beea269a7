"""What a GPU would refuse, found without one: tensors of the host that meet the GPU's, and needless waiting.

The policy's tensors say that they are on a GPU (`tests.gpu.pretended`), and everything else is as it runs there but for
the kernels: attention of packed sequences in bfloat16 as flash attention is asked for it, optimizers, masters, graphs.
"""

import asyncio
import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.optimizers.muon import Muon
from posttrain.components.reducers.sequences import Sequences
from posttrain.engines import Sampling
from posttrain.engines._continuous import ContinuousServer
from posttrain.kernels import PAGE
from posttrain.policies import _cache, _signals
from posttrain.policies._attention import variable_attention
from posttrain.policies._graphs import decode_with, no_capture
from posttrain.policies.folder import new_folder
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.recipes.files import find_recipe
from posttrain.runs import launch
from posttrain.runs.live import LiveView
from posttrain.signals import ADVANTAGE, BEHAVIOR_LOGP, ENTROPY, LOGIT, LOGP, OLD_LOGP, Signal
from posttrain.training.learner import Learner, Loss, evaluate_examples
from posttrain.training.packing import Example
from posttrain.training.settings import Learning
from posttrain.types import Completion
from tests.gpu.pretended import GPU, Far, Pretended, send
from tests.policies.made_models import load, random_sequences

CHOOSING = "engines/_truncation.py invert"
"""Looks whether rounding lost a token."""


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there is one, whose kernels would be given tensors of the host."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def policy_of(path: Path, dtype: str = "float32") -> LanguageModelPolicy:
    sizes = {"layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "head_dim": 16, "mlp_width": 64, "context": 256}
    return load(new_folder(path, **sizes), trained=True, dtype=dtype)  # type: ignore[arg-type]


def examples_of(groups: int = 3) -> list[Example]:
    """Three completions of each of some prompts, which they begin with."""
    rng = np.random.default_rng(0)
    made = []
    for group in range(groups):
        prompt = rng.integers(0, 256, 9 + 7 * group)
        for length in (1, 6, 20):
            names = {BEHAVIOR_LOGP: -5.5, OLD_LOGP: -5.5, ADVANTAGE: 0.0}
            columns = {name: rng.normal(mean, 0.3, length).astype(np.float32) for name, mean in names.items()}
            ids, positions = np.concatenate([prompt, rng.integers(0, 256, length)]), len(prompt) + np.arange(length)
            turns = np.zeros(length, np.int64)
            made.append(Example(token_ids=ids, positions=positions, columns=columns, turn_T=turns, group=group))
    return made


def test_tensors_of_both_sides_do_not_meet() -> None:
    """That what follows could fail."""
    with Pretended() as pretended:
        far, near = torch.arange(4.0, device=GPU), torch.arange(4)
        assert isinstance(far, Far) and far.device == GPU and not pretended.waits
        for meet in (lambda: far + near, lambda: near[far.long()], lambda: torch.cat([far, near])):
            with pytest.raises(AssertionError, match="on the host"):
                meet()
        assert torch.equal((far[near] * torch.tensor(2.0)).cpu(), 2.0 * near) and float(far.sum()) == 6.0
        assert sum(pretended.waits.values()) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "optimizer"), [("float32", AdamW()), ("bfloat16", AdamW()), ("bfloat16", Muon())])
def test_an_update_is_that_of_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, optimizer: AdamW | Muon
) -> None:
    """Packed, with prompts in common where attention shares them, the loss in chunks, in several micro-batches; and
    saved and taken up again.
    """
    monkeypatch.setattr(_signals.token_signals, "__kwdefaults__", {"chunk_logits": 16 * 261})
    settings = Learning(optimizer=replace(optimizer, lr=1e-2), micro_batch_tokens=80, minibatches=2)
    loss = Loss(per_token=PPOClip(), reducer=Sequences(), needs=frozenset({ENTROPY}))
    here = policy_of(tmp_path, dtype)
    far, begun = copy.deepcopy(here), [p.detach().clone() for p in here.parameters()]
    examples = examples_of()
    learner = Learner(here, settings, seed=0, num_steps=2)
    expected = [learner.step(examples, loss, progress=0.0) for _ in range(2)]
    with Pretended():
        send(far)
        assert far.shares_prompts == (dtype == "bfloat16" and variable_attention() is not None)
        learner = Learner(far, settings, seed=0, num_steps=2)
        assert learner.tokens_at_a_time == 80 and learner.device == GPU
        found = [learner.step(examples, loss, progress=0.0)]
        numbers, tensors = learner.state()
        again = Learner(far, settings, seed=0, num_steps=2)
        again.load_state(numbers, {name: tensor.cpu() for name, tensor in tensors.items()})
        found.append(again.step(examples, loss, progress=0.0))
        weights = [parameter.cpu() for parameter in far.parameters()]
    exact = dtype == "float32"
    for one, other in zip(found, expected, strict=True):
        for name, value in other.metrics.items():
            near = {"atol": 1e-4, "rtol": 1e-3} if exact else {"atol": 0.03, "rtol": 0.05}
            np.testing.assert_allclose(one.metrics[name], value, err_msg=name, **near)
    now, then = (torch.cat([p.detach().float().flatten() for p in each]) for each in (here.parameters(), begun))
    given = torch.cat([p.float().flatten() for p in weights])
    # Adam makes a full step of a gradient that is only rounding, so that a few weights differ by all of it.
    assert (given - now).norm() < (0.02 if exact else 0.4) * (now - then).norm()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_scoring_is_that_of_the_cpu(tmp_path: Path, dtype: str) -> None:
    here, examples = policy_of(tmp_path, dtype), examples_of()
    far, needs = copy.deepcopy(here), frozenset({LOGP, ENTROPY})
    expected = evaluate_examples(here, examples, needs, max_tokens=100)
    with Pretended():
        send(far)
        found = evaluate_examples(far, examples, needs, max_tokens=100)
        itself = frozenset({Signal("forward_kl", of="itself"), Signal("reverse_kl", of="itself"), LOGIT})
        apart = evaluate_examples(far, examples, itself, max_tokens=100, others={"itself": far})
    for one, other, kl in zip(found, expected, apart, strict=True):
        assert max(abs(kl[name]).max() for name in itself - {LOGIT}) < 1e-6
        for name in needs:
            np.testing.assert_allclose(one[name], other[name], atol=1e-5 if dtype == "float32" else 0.05)


def written(policy: LanguageModelPolicy, sampling: Sampling) -> list[Completion]:
    server = ContinuousServer(policy, 0, slots=6, prefill_tokens=64)

    async def all_of_them() -> list[list[Completion]]:
        prompts = random_sequences(30, 5, 16)
        return list(
            await asyncio.gather(*(server.bind(i).sample(p.numpy(), 3, sampling) for i, p in enumerate(prompts)))
        )

    return [completion for group in asyncio.run(all_of_them()) for completion in group]


@pytest.mark.slow
@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("rules", [{}, {"top_k": 20, "top_p": 0.9, "min_p": 0.01}, {"temperature": 0}], ids=str)
def test_sampling_is_that_of_the_cpu_and_waits_little(tmp_path: Path, graphs: bool, rules: dict[str, float]) -> None:
    here, sampling = policy_of(tmp_path), Sampling(max_tokens=20, **rules)  # type: ignore[arg-type]
    far = copy.deepcopy(here)
    expected = written(here, sampling)
    with Pretended() as pretended:
        send(far)
        if graphs:
            decode_with(far.body, lambda: no_capture)  # type: ignore[arg-type]
        found = written(far, sampling)
    assert [c.token_ids.tolist() for c in found] == [c.token_ids.tolist() for c in expected]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.logp, other.logp, atol=1e-4)
    waits = pretended.waits
    in_plain_attention = [where for where in waits if where.startswith(("kernels/paged.py", "policies/_attention.py"))]
    steps = waits["engines/_slots.py _on_host"]
    assert 20 <= steps <= 50
    assert waits[CHOOSING] == (steps if rules.get("temperature") != 0 else 0)
    assert set(waits) <= {"engines/_slots.py _on_host", CHOOSING, *in_plain_attention}, waits


def test_a_cache_takes_a_share_of_what_is_free_and_no_more_than_it_can_use(monkeypatch: pytest.MonkeyPatch) -> None:
    page_bytes = 2 * 3 * PAGE * 2 * 8 * 4

    def first_pages(free: int, capacity: int) -> int:
        monkeypatch.setattr(_cache, "_free_bytes", lambda device: free)
        with Pretended():
            sizes = {"layers": 3, "heads": 2, "width": 8, "dtype": torch.float32, "device": GPU}
            cache = _cache.KeyValueCache(slots=4, capacity=capacity, **sizes)  # type: ignore[arg-type]
            cache.reserve([0], [1])
        assert all(isinstance(pages, Far) for pages in (*cache.keys, *cache.values))
        return len(cache.keys[0])

    free = 8 * 500 * page_bytes
    assert first_pages(free, capacity=10_000) == 500, "an eighth of it"
    assert first_pages(free, capacity=1_000) == 4 * 63, "four sequences of 1,000 tokens"
    assert first_pages(0, capacity=10_000) == _cache.FIRST_PAGES


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    """Evaluation, sampling, learning, checkpoints, the record: everything that touches a tensor of the policy."""
    monkeypatch.setattr(launch, "find_device", lambda wanted: GPU)
    changes = ["steps=2", "prompts=3", "rollout.n=4", "evaluation.holdout=6", f"models.policy.dtype={dtype}"]
    with Pretended():
        folder, _ = launch.start(find_recipe("grpo", changes), tmp_path / "runs", LiveView(lines=True))
    told = json.loads((folder / "environment.json").read_text())
    assert told["device"] == str(GPU) and told["gpu_kernels"].startswith("plain: ")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if "loss" in row]
    assert len(steps) == 2 and all(row["sampler_gap"] < 1e-3 for row in steps)
