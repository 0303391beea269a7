"""Moments and masters in files: the bits of a run without, and no memory between updates."""

from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.reducers.tokens import Tokens
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.training.learner import Learner, Loss
from posttrain.training.settings import Learning
from tests.cluster.test_sums import examples

LOSS = Loss(per_token=PPOClip(), reducer=Tokens())


def learner_of(folder: Path, dtype: Any, **settings: Any) -> Learner:
    torch.manual_seed(0)
    model = Model(source=str(folder), trained=True, dtype=dtype)
    return Learner(load_policy("policy", model, {}, torch.device("cpu")), Learning(**settings), seed=0, num_steps=4)


def bits(learner: Learner) -> dict[str, bytes]:
    tensors = {**dict(learner.policy.named_parameters()), **learner.state()[1]}
    return {n: t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for n, t in tensors.items()}


def resident(folder: Path) -> int:
    """Bytes of this process's memory that are maps of files in a folder."""
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0]:
            inside = str(folder) in line
        elif inside and line.startswith("Rss:"):
            found += int(line.split()[1]) << 10
    return found


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="pages are read from /proc")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_changes_no_bit_and_takes_no_memory_between_updates(dtype: str, tmp_path: Path) -> None:
    folder, disk = new_folder(tmp_path / "tiny", layers=2, width=36, heads=2, kv_heads=1), tmp_path / "disk"
    disk.mkdir()
    plain, moved = learner_of(folder, dtype), learner_of(folder, dtype, offload=str(disk))
    for _ in range(2):
        for learner in (plain, moved):
            learner.step(examples(), LOSS, progress=0.0)
        assert moved.own.files is not None and resident(disk) == 0
    numbers = sum(p.numel() for p in moved.policy.parameters())
    assert moved.own.files.bytes == numbers * (8 if dtype == "float32" else 12)
    assert bits(moved) == bits(plain)
    assert resident(disk) > 0, "they were read"
    state = moved.state()
    again = learner_of(folder, dtype, offload=str(disk))
    with torch.no_grad():
        for new, old in zip(again.policy.parameters(), moved.policy.parameters(), strict=True):
            new.copy_(old)
    again.load_state(*state)
    for learner in (plain, again):
        learner.step(examples(), LOSS, progress=0.5)
    assert bits(again) == bits(plain)
    assert not list(disk.iterdir())


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1)
    with pytest.raises(UserError, match=r"learner\.offload=.*none is no folder; give one on a disk"):
        learner_of(folder, "float32", offload=str(tmp_path / "none"))


def test_a_disk_without_room_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("posttrain.training.offloading.os.posix_fallocate", full)
    folder = new_folder(tmp_path / "tiny", layers=2, width=36, heads=2, kv_heads=1)
    with pytest.raises(UserError, match="has no room for moments: No space left on device"):
        learner_of(folder, "float32", offload=str(tmp_path)).step(examples(), LOSS, progress=0.0)
