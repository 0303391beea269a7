"""Streaming with keys and values that are kept over changes of the weights: versions, journal, resume."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.component.user_code import allowing
from posttrain.components.timetables.streaming import Streaming
from posttrain.policies.folder import new_folder
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.runs.replaying import different_files, replay
from posttrain.runs.store import RunStore
from tests.conformance.test_methods import run
from tests.stages.resuming import cut_off_and_resumed
from tests.stages.rl.test_stream import same, streamed


def schedule(caches: Any) -> Streaming:
    return Streaming(eta=2, piece=2, learning=1, caches=caches)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The model, and the runs with keys and values of either kind."""
    root = tmp_path_factory.mktemp("caches")
    tiny = new_folder(root / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=256)
    found = {"tiny": tiny}
    for caches in ("kept", "renewed"):
        recipe = streamed(schedule(caches), tiny, root)
        found[caches] = start(recipe, root / caches, LiveView(lines=True))[0]
    return found


@pytest.mark.slow
def test_the_journal_has_the_version_of_each_token_and_gives_the_same_weights(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    """By completion, the steps whose weights drew its tokens, place by place: they never go back, and some change."""
    versions: dict[tuple[int, str, int], list[int]] = {}
    for step, line in enumerate((folders["kept"] / "stream.jsonl").read_text().splitlines()):
        for group, name, tokens in json.loads(line)["pieces"]:
            request, first, begun = name.rpartition(" at ")[0].rpartition(" ")[0], *_place(name)
            for i, count in enumerate(tokens):
                own = versions.setdefault((group, request, first + i), [])
                assert len(own) == begun, "pieces follow one another"
                own += [step] * count
    assert all(own == sorted(own) for own in versions.values())
    assert any(len(set(own)) > 1 for own in versions.values())
    with allowing(trust=True):
        new, _ = replay(folders["kept"], tmp_path, LiveView(lines=True))
    assert different_files(folders["kept"] / "model", new / "model") == []


def _place(name: str) -> tuple[int, int]:
    """Of a piece: the number of its first completion, and how many tokens that had."""
    asked, begun = name.rsplit(" at ", 1)
    return int(asked.rsplit(" ", 1)[1].split("+")[0]), int(begun)


def test_kept_ones_are_not_those_of_the_weights_of_now(folders: dict[str, Path]) -> None:
    """The first step is the same, since its tokens have one version; a later one is not."""
    tables = []
    for caches in ("kept", "renewed"):
        with RunStore.open(folders[caches], reading=True) as store:
            tables.append([store.rollouts(step) for step in store.rollout_steps()])
    assert tables[0][0] == tables[1][0]
    assert tables[0] != tables[1]


@pytest.mark.slow
def test_a_run_with_kept_ones_resumes_to_the_bit(folders: dict[str, Path], tmp_path: Path) -> None:
    """They are in the checkpoint: its process has no other weights than those of the checkpoint."""
    recipe = streamed(schedule("kept"), folders["tiny"], tmp_path)
    models, one = run(recipe, tmp_path / "whole")
    resumed, again = cut_off_and_resumed(recipe, tmp_path / "cut", at=3)
    assert again.metrics() == one.metrics()
    assert again.stream() == one.stream()
    assert same(models, resumed)
    assert all(torch.isfinite(tensor).all() for tensor in models["policy"].state_dict().values())
