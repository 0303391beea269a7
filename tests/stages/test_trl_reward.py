"""The loss and the gradient of a reward model are those of TRL's trainer, on the same weights."""

from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from posttrain.components.rankings.bradley_terry import BradleyTerry
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.signals import SCORE
from posttrain.stages.pairs import pair_examples
from posttrain.stages.reward_model import bradley_terry
from posttrain.training.learner import Learner, Loss
from posttrain.training.settings import Learning
from tests.stages.conftest import tiny_folder

__all__ = ["tiny_folder"]
pytestmark = pytest.mark.slow


def test_the_loss_is_trls_on_the_same_weights(tiny_folder: Path) -> None:
    pytest.importorskip("trl")
    transformers: Any = pytest.importorskip("transformers")
    from safetensors.torch import load_file
    from trl.trainer.reward_trainer import RewardTrainer  # type: ignore[import-not-found, unused-ignore]

    head = torch.linspace(-1, 1, 32)[None]
    own = load_policy("reward", Model(source=str(tiny_folder), head="reward", trained=True), {}, torch.device("cpu"))
    with torch.no_grad():
        own.get_parameter("value_head.weight").copy_(head)
    tasks = WorkedSolutions(size=6).load()
    examples = [e for i, task in enumerate(tasks) for e in pair_examples(own, task, task.preferences[0], i)]
    loss = Loss(per_token=bradley_terry, reducer=Sequences(), needs=frozenset({SCORE}), whole_groups=True)
    ours, _ = Learner(own, Learning(), seed=0, num_steps=1).accumulate(examples, loss, 0.0)

    config = transformers.AutoConfig.from_pretrained(tiny_folder, num_labels=1)
    theirs = transformers.AutoModelForSequenceClassification.from_config(config)
    missing = theirs.load_state_dict(load_file(tiny_folder / "model.safetensors"), strict=False)
    assert missing.missing_keys == ["score.weight"] and not missing.unexpected_keys
    with torch.no_grad():
        theirs.score.weight.copy_(head)
    # A pair's chosen completion is the one with the larger advantage; TRL has all chosen ones first.
    pairs = [examples[2 * i : 2 * i + 2] for i in range(len(tasks))]
    ids = [[list(map(int, e.token_ids)) for e in pair] for pair in pairs]
    rows = [both[0] for both in ids] + [both[1] for both in ids]
    width = max(map(len, rows))
    inputs = {
        "input_ids": torch.tensor([row + [config.pad_token_id] * (width - len(row)) for row in rows]),
        "attention_mask": torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows]),
    }
    gathered = SimpleNamespace(gather=lambda x: x, gather_for_metrics=lambda x: x)
    settings = SimpleNamespace(center_rewards_coefficient=None)
    trainer = SimpleNamespace(
        model=SimpleNamespace(training=False),
        accelerator=gathered,
        args=settings,
        _metrics=defaultdict(lambda: defaultdict(list)),
        _total_train_tokens=0,
    )
    expected = RewardTrainer.compute_loss(trainer, theirs, dict(inputs))
    expected.backward()
    assert ours == pytest.approx(float(expected.detach()), rel=1e-6)
    gradient = own.get_parameter("value_head.weight").grad
    assert gradient is not None
    torch.testing.assert_close(gradient, theirs.score.weight.grad, rtol=1e-4, atol=1e-6)
    norms = [torch.cat([p.grad.flatten() for p in m.parameters() if p.grad is not None]).norm() for m in (own, theirs)]
    assert float(norms[0]) == pytest.approx(float(norms[1]), rel=1e-4) and float(norms[0]) > 1e-3
    with torch.no_grad():
        score_N = theirs(**inputs).logits[:, 0].double()
    gap_P = score_N[: len(pairs)] - score_N[len(pairs) :]
    margin = torch.full((len(rows) // 2,), 0.7)
    with_margin = RewardTrainer.compute_loss(trainer, theirs, {**inputs, "margin": margin})
    assert BradleyTerry(margin=0.7)(gap_P, {}).mean().item() == pytest.approx(float(with_margin.detach()), rel=1e-6)
