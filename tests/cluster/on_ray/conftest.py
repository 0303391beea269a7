"""A Ray with two samplers and two learners, for all files of this folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.cluster.ray import Ray
from posttrain.engines.native import Native
from posttrain.policies.folder import new_folder


@pytest.fixture(scope="package")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_folder(tmp_path_factory.mktemp("models") / "tiny", layers=2, width=16, heads=2, kv_heads=1, context=512)


@pytest.fixture(scope="package")
def session() -> Iterator[Any]:
    from posttrain.cluster._opened import opened

    torch.set_num_threads(1)
    with opened(Ray(samplers=2, learners=2, cpus=0.5, timeout=60.0), Native(slots=16), 0) as session:
        yield session
