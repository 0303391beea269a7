"""One NVIDIA GPU: the same laws as on a CPU, as far as its arithmetic keeps them. Skipped where there is none."""

import copy
import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from posttrain.policies import Packed, load_policy
from posttrain.policies._attention import variable_attention
from posttrain.policies.folder import new_folder
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.recipe import Model
from posttrain.recipe_files import find_recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from tests.policies.made_models import pack, random_sequences, sampled_states

DEVICE = torch.device("cuda")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no NVIDIA GPU on this machine")
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.1}
"""On log-probabilities of some nats; products on a GPU are summed in other orders than on a CPU."""

DTYPES = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
LENGTHS = (40, 5, 129, 17, 300, 33)


def load_on_gpu(path: Path, dtype: str) -> LanguageModelPolicy:
    sizes = {"layers": 2, "width": 256, "heads": 4, "kv_heads": 2, "head_dim": 64, "mlp_width": 512}
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
