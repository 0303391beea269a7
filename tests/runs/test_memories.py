"""The memory of a reward: checkpoints add what has changed, and any of them gives back the whole, bit for bit."""

import json
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from posttrain.errors import UserError
from posttrain.runs import memories
from posttrain.runs.memories import Memories, memories_of
from posttrain.runs.store import MEMORY, RunStore
from posttrain.stages.memory import applied, difference


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ([1, 2], [1, 2, 3], {"list": [0, [3]]}),
        ([1, 2, 3], [3, 4], {"list": [2, [4]]}),
        ([1, 2], [3], {"set": [3]}),
        ([1], [1.0], {"set": [1.0]}),
        ({"a": [1], "b": 2}, {"a": [1, 2], "c": 3}, {"dict": [["b"], {"a": {"list": [0, [2]]}}, [["c", 3]]]}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"set": {"b": 2, "a": 1}}),
        (None, {"a": 1}, {"set": {"a": 1}}),
        ({"a": 1}, {"a": True}, {"dict": [[], {"a": {"set": True}}, []]}),
        ([1], [1], None),
    ],
)
def test_differences_by_hand(old: Any, new: Any, change: Any) -> None:
    assert json.dumps(difference(old, new)) == json.dumps(change)
    if change is not None:
        assert json.dumps(applied(old, change)) == json.dumps(new)


def test_differences_of_random_memories() -> None:
    rng = Random(1)
    memory: dict[str, Any] = {}
    for _ in range(300):
        old = json.loads(json.dumps(memory))
        for _ in range(rng.randint(0, 4)):
            values = memory.setdefault(f"q{rng.randint(0, 20)}", [])
            values.append(rng.choice(("text", 1, 1.0, float("nan"), None, {"a": [rng.random()]})))
            del values[: -rng.randint(3, 6)]
            if len(memory) > 12:
                del memory[next(iter(memory))]
        change = difference(old, memory)
        found = old if change is None else applied(old, json.loads(json.dumps(change)))
        assert json.dumps(found) == json.dumps(memory), "the order of keys as well"
    with pytest.raises(ValueError, match="kind list"):
        applied({}, {"list": [0, []]})


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    monkeypatch.setattr(memories, "INLINE", 1000)
    return RunStore.create(tmp_path, "run", {"name": "x"})


def grown(count: int) -> dict[str, Any]:
    return {
        "success": {f"q{i}": [f"thought {i} " * 5] for i in range(count)},
        "distances": [i / 7 for i in range(count)],
    }


def test_a_checkpoint_adds_what_is_new(store: RunStore) -> None:
    kept = Memories(store)
    assert kept.keep(1, grown(2)) == grown(2) and not (store.folder / MEMORY).exists(), "small ones are in it"
    sizes, found = [], []
    for step in range(2, 8):
        found.append((kept.keep(step, grown(50 * step)), store.position()[MEMORY]))
        sizes.append(store.position()[MEMORY])
    added = [b - a for a, b in pairwise(sizes)]
    assert max(added) < 1.2 * min(added) < len(json.dumps(grown(350))) / 5, "not the whole"
    for step, (own, size) in enumerate(found, start=2):
        assert json.dumps(Memories(store).find(own, size)) == json.dumps(grown(50 * step))
    assert kept.keep(9, grown(350)) == found[-1][0] and store.position()[MEMORY] == sizes[-1], "nothing new, no line"
    store.close()


def test_a_kill_in_the_middle_of_an_append_costs_nothing(store: RunStore) -> None:
    """The run goes on from its last checkpoint, and its file is that of a run that was not killed."""
    first = memories_of(store).keep(1, grown(50))
    position = store.position()
    memories_of(store).keep(2, grown(100))
    memories_of(store).keep(3, grown(150))
    whole = (store.folder / MEMORY).read_bytes()
    store.close()
    for size in (position[MEMORY], position[MEMORY] + 1, position[MEMORY] + 500, len(whole) - 1):
        (store.folder / MEMORY).write_bytes(whole[:size])  # cut at any place of the two lines after the checkpoint
        with RunStore.open(store.folder) as again:
            assert json.dumps(memories_of(again).find(first, position[MEMORY])) == json.dumps(grown(50))
            again.rewind(position)
            memories_of(again).keep(2, grown(100))
            memories_of(again).keep(3, grown(150))
            assert (store.folder / MEMORY).read_bytes() == whole


def test_an_edited_file_is_refused(store: RunStore) -> None:
    own = memories_of(store).keep(1, grown(50))
    size = store.position()[MEMORY]
    path = store.folder / MEMORY
    path.write_bytes(path.read_bytes().replace(b"thought 7 ", b"thought 8 "))
    with pytest.raises(UserError, match="does not lead to the memory of the checkpoint"):
        Memories(store).find(own, size)
    path.write_bytes(b"{}\n" * 9)
    with pytest.raises(UserError, match="a line of it is no change"):
        Memories(store).find(own, 27)
    store.close()
