"""Two roles on one set of weights, with adapters of their own: nothing of one acts on the other, whatever happens."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from posttrain.errors import UserError
from posttrain.methods.reward_models.lora_judge import lora_judge
from posttrain.models import LoRA, Model
from posttrain.policies.folder import new_folder
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.policies.loading import load_policy
from posttrain.recipes.overrides import override
from posttrain.runs.launch import resume, start
from posttrain.runs.live import LiveView
from posttrain.settings.arithmetic import arithmetic
from tests.policies.made_models import CPU, load, pack, packed_logits, random_sequences

SEQUENCES = random_sequences(9, 40, 3)
JUDGE = Model(source="role:policy", lora=LoRA(rank=2, alpha=8.0), trained=True, shared=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_folder(tmp_path_factory.mktemp("tiny"), layers=2, width=32, heads=2, kv_heads=1, context=512)


def changed(policy: LanguageModelPolicy, seed: int) -> LanguageModelPolicy:
    """The same with other adapters."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in policy.parameters():
        if parameter.requires_grad:
            parameter.data.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return policy


def shared(policy: LanguageModelPolicy, model: Model = JUDGE, role: str = "judge") -> LanguageModelPolicy:
    made = load_policy(role, model, {"policy": policy}, CPU)
    assert isinstance(made, LanguageModelPolicy)
    return made


def both(folder: Path) -> tuple[LanguageModelPolicy, LanguageModelPolicy]:
    policy = changed(load(folder, trained=True, lora=LoRA(rank=3)), 1)
    return policy, changed(shared(policy), 2)


def logits(policy: LanguageModelPolicy) -> Tensor:
    return packed_logits(policy.body, SEQUENCES)


def test_there_is_one_set_of_weights_and_each_role_has_its_adapters(folder: Path) -> None:
    policy, judge = both(folder)
    own = {id(p) for p in policy.parameters()}
    alone = {name for name, p in judge.named_parameters() if id(p) not in own}
    assert alone and all("lora_" in name for name in alone)
    assert {name for name, p in judge.named_parameters() if p.requires_grad} == alone
    plain = load(folder, trained=True, lora=LoRA(rank=2, alpha=8.0))
    assert torch.equal(logits(changed(plain, 2)), logits(judge)), "the policy's adapters are not in it"
    reference = shared(policy, Model(source="role:policy", shared=True), "reference")
    assert torch.equal(logits(reference), logits(load(folder)))
    assert all(id(p) in own for p in reference.parameters())


def test_scores_and_training_of_the_judge_leave_the_policy_as_it_was(folder: Path) -> None:
    policy, judge = both(folder)
    before = logits(policy)
    for _ in range(2):
        assert not torch.equal(logits(judge), before)
        assert torch.equal(logits(policy), before), "to the bit, in turns"
    optimizer = torch.optim.AdamW([p for p in judge.parameters() if p.requires_grad], lr=0.1)
    judge.body.hidden(pack(SEQUENCES)).sum().backward()
    optimizer.step()
    assert torch.equal(logits(policy), before)
    assert all(p.grad is None for p in policy.parameters())


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_nor_does_a_judge_that_fails_in_the_middle(folder: Path, error: type[BaseException]) -> None:
    policy, judge = both(folder)
    before, judged = logits(policy), logits(judge)

    def fail(*_: object) -> None:
        raise error

    layer: Any = judge.body.model.layers[1]  # type: ignore[union-attr,index]
    hook = layer.register_forward_hook(fail)
    with pytest.raises(error):
        logits(judge)
    assert torch.equal(logits(policy), before)
    hook.remove()
    assert torch.equal(logits(judge), judged) and torch.equal(logits(policy), before)


def test_weights_that_a_role_trains_or_has_in_another_type_are_refused(folder: Path) -> None:
    with pytest.raises(UserError, match="shared with the role 'policy', which trains them; give that role adapters"):
        shared(load(folder, trained=True))
    with pytest.raises(UserError, match="dtype is bfloat16"):
        shared(load(folder), Model(source="role:policy", shared=True, dtype="bfloat16"))
    with pytest.raises(ValueError, match="set source: role:NAME"):
        Model(source="pebble", shared=True)
    with pytest.raises(ValueError, match="give adapters"):
        Model(source="role:policy", shared=True, trained=True)


@pytest.mark.slow
def test_a_run_with_a_judge_on_the_base_of_the_policy_resumes_to_the_bit(tmp_path: Path) -> None:
    base = new_folder(tmp_path / "base", layers=1, width=32, heads=2, kv_heads=1, context=512)
    pairs = tmp_path / "pairs.jsonl"
    rows = ({"prompt": f"{i}+1=", "chosen": str(i + 1), "rejected": "0", "notes": ["right", "wrong"]} for i in range(8))
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    setting = override(arithmetic(), [f"model={base}", "models.policy.lora.rank=2", "tasks.size=40", "threads=1"])
    changes = [f"judge.tasks.tasks={pairs}", "judge.max_steps=2", "judge.batch=2", "rl.steps=2", "rl.prompts=2"]
    changes += ["rl.rollout.n=2", "rl.rollout.sampling.max_tokens=4", "rl.reward.sampling.max_tokens=4", "alarms={}"]
    changes += ["evaluation.by=none", "checkpoints.every_steps=1", "checkpoints.keep=9", "rl.audit.most_fooled=1"]
    recipe = override(lora_judge(setting), changes)
    assert recipe.models["judge"].shared
    run, models = start(recipe, tmp_path / "runs", LiveView(lines=True))
    assert models is not None
    kept = sorted((run / "checkpoints").iterdir())
    last = {path.name: path.read_bytes() for path in kept[-1].glob("*.safetensors")}
    for path in (kept[-1], run / "summary.json", run / "report.html"):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    resume(run, LiveView(lines=True))
    assert {path.name: path.read_bytes() for path in kept[-1].glob("*.safetensors")} == last
    judge = _names(kept[-1] / "weights-judge.safetensors")
    assert judge and all("lora_" in name for name in judge)


def _names(path: Path) -> list[str]:
    from safetensors import safe_open

    with safe_open(str(path), framework="np") as file:
        assert all(np.isfinite(file.get_tensor(name)).all() for name in file.keys())  # noqa: SIM118
        return list(file.keys())
