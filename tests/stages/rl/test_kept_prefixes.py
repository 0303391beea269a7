"""Runs of several turns: prefixes that stay computed change nothing but the record of timing."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from posttrain.methods.credit.gigpo import gigpo
from posttrain.policies.decoder import Decoder
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from tests.methods.test_gigpo import SMALL
from tests.stages.resuming import cut_off_and_resumed

Train = Callable[[Recipe], tuple[Models, RunStore]]


def recipe(*changes: str) -> Recipe:
    return override(gigpo(), [*SMALL, "checkpoints.every_steps=1", *changes])


def same(one: tuple[Models, RunStore], other: tuple[Models, RunStore]) -> None:
    (models, store), (others, again) = one, other
    for (name, a), (_, b) in zip(models["policy"].named_parameters(), others["policy"].named_parameters(), strict=True):
        assert torch.equal(a, b), name
    for name in ("metrics.jsonl", "events.jsonl", "evals.jsonl"):
        assert (store.folder / name).read_bytes() == (again.folder / name).read_bytes()
    for kind in ("rollouts", "evals"):
        mine, their = (sorted((s.folder / kind).iterdir()) for s in (store, again))
        assert [p.name for p in mine] == [p.name for p in their]
        assert all(a.read_bytes() == b.read_bytes() for a, b in zip(mine, their, strict=True))


def reused(store: RunStore) -> float:
    return sum(row.get("prefix_tokens_reused", 0.0) for row in store.timing())


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> tuple[Models, RunStore]:
    """A run that was also cut off and resumed."""
    return cut_off_and_resumed(recipe("engine.prefix_bytes=0"), tmp_path_factory.mktemp("without"), at=6)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["", "engine.prefix_bytes=10000"], ids=["default", "little"])
def test_a_run_is_the_same(train: Train, without: tuple[Models, RunStore], change: str) -> None:
    done = train(recipe(*filter(None, [change])))
    assert reused(without[1]) == 0
    body = done[0]["policy"].body
    assert isinstance(body, Decoder)
    if body.prefix_stamp is not None:
        assert reused(done[1]) > 0
    same(done, without)


@pytest.mark.slow
def test_a_resumed_run_is_the_same(tmp_path: Path, without: tuple[Models, RunStore]) -> None:
    same(cut_off_and_resumed(recipe(), tmp_path, at=5), without)
