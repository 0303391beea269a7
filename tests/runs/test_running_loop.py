"""A run that is begun where an event loop runs already, as in a notebook, is the run that the command makes."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from posttrain.policies.folder import new_folder
from posttrain.recipes.files import find_recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView

SMALL = (
    "tasks.size=60",
    "evaluation.holdout=4",
    "evaluation.samples=1",
    "steps=2",
    "prompts=2",
    "rollout.n=3",
    "rollout.sampling.max_tokens=8",
    "threads=1",
)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def record(run: Path) -> dict[str, bytes]:
    """Everything that a run leaves that no clock is in."""
    files = [*run.glob("*/*.parquet"), run / "metrics.jsonl", run / "events.jsonl", *run.glob("model/*.safetensors")]
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


@pytest.mark.slow
def test_it_is_the_same_run_bit_for_bit(tmp_path: Path) -> None:
    model = new_folder(tmp_path / "tiny", layers=1, width=32, heads=2, kv_heads=1, context=64)

    def run(root: str) -> Path:
        recipe = find_recipe("grpo", [f"model={model}", *SMALL])
        return start(recipe, tmp_path / root, LiveView(lines=True))[0]

    async def cell(work: Callable[[], Path]) -> Path:
        return work()

    plain, inside = run("plain"), asyncio.run(cell(lambda: run("inside")))
    assert len(record(plain)) == 7
    assert record(plain) == record(inside)
