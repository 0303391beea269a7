"""A tiny policy and random training examples for it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from posttrain.models import Model
from posttrain.policies import Policy
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.signals import ADVANTAGE, BEHAVIOR_LOGP, OLD_LOGP
from posttrain.training.packing import Example


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    new_folder(folder, layers=2, width=32, heads=2, kv_heads=1, head_dim=16, mlp_width=64, context=128)
    return folder


@pytest.fixture
def policy(tiny_folder: Path) -> Policy:
    return load_policy("policy", Model(source=str(tiny_folder), trained=True), {}, torch.device("cpu"))


@pytest.fixture
def examples_of() -> Callable[..., list[Example]]:
    def make(count: int, *, seed: int = 0, longest: int = 40) -> list[Example]:
        rng = np.random.default_rng(seed)
        made = []
        for index in range(count):
            length = int(rng.integers(4, longest))
            prompt = int(rng.integers(1, length))
            trained = length - prompt
            made.append(
                Example(
                    token_ids=rng.integers(0, 256, length),
                    positions=np.arange(prompt, length),
                    columns={
                        BEHAVIOR_LOGP: rng.normal(-5.5, 0.1, trained).astype(np.float32),
                        OLD_LOGP: rng.normal(-5.5, 0.1, trained).astype(np.float32),
                        ADVANTAGE: np.full(trained, rng.normal(), np.float32),
                    },
                    turn_T=np.zeros(trained, np.int64),
                    group=index // 4,
                    reward=float(rng.random()),
                )
            )
        return made

    return make


@pytest.fixture
def tiny_policy(tiny_folder: Path) -> Callable[[], Policy]:
    def load() -> Policy:
        return load_policy("policy", Model(source=str(tiny_folder), trained=True), {}, torch.device("cpu"))

    return load
