"""The index of a run's rollouts: the same answers with it and without, kept up, rebuilt, and never needed."""

import math
import os
import shutil
from pathlib import Path

import pytest

from posttrain.runs.store import RunStore, rollout_rows
from posttrain.viewer import index as module
from posttrain.viewer import questions, search
from posttrain.viewer.index import FOLDER, Index
from posttrain.viewer.search import ORDERS, Wanted, rollouts
from tests.runs.made_runs import RECIPE, right, trajectory, wrong

pytestmark = pytest.mark.slow  # seconds for many of them


def record(store: RunStore, steps: range) -> None:
    for step in steps:
        made = [
            trajectory(completion=f"{step % 3} {sample}", key=f"task-{step % 2}", sample=sample, score=score)
            for sample, score in enumerate((right("5"), wrong("4", "5")))
        ]
        store.write_rollouts(step, rollout_rows(made, stage="rl", groups=[0, 0]))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of the index for eight and two steps; nothing is built by itself."""
    monkeypatch.setattr(module, "SIZES", (8, 2))
    monkeypatch.setattr(Index, "build_soon", lambda self: None)
    monkeypatch.setattr(search, "SECONDS", math.inf)
    module._indexes.clear()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with RunStore.create(tmp_path, "run", RECIPE) as store:
        record(store, range(1, 15))
        return store.folder


def answers(run: Path) -> list[object]:
    found: list[object] = [rollouts(run, Wanted(order=order), limit=7, offset=3) for order in ORDERS]
    found += [rollouts(run, wanted, limit=50) for wanted in (Wanted(text="^1"), Wanted(first=5, last=11))]
    found += [questions.solved(run, by, most_rows=5, most_columns=4) for by in ("task", "domain")]  # type: ignore[arg-type]
    return [*found, questions.history(run, "task-1")]


def files(run: Path) -> list[str]:
    return sorted(path.stem.rpartition("_")[0] for path in (run / FOLDER).glob("*.parquet"))


def test_the_index_changes_no_answer(run: Path) -> None:
    without = answers(run)
    module.index_of(run).build()
    small = [f"rollouts_{first:06d}_{first + 1:06d}" for first in (8, 10, 12)]
    assert files(run) == ["rollouts_000000_000007", *small]
    assert [source.indexed for source in module.index_of(run).sources()] == [True, True, True, True, False]
    assert answers(run) == without


def test_only_what_is_not_indexed_is_read_from_its_own_files(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module.index_of(run).build()
    read: list[str] = []
    ask = questions.query
    monkeypatch.setattr(questions, "query", lambda sql, values=(), **more: read.append(sql) or ask(sql, values, **more))
    questions.solved(run, "domain", most_rows=5, most_columns=4)
    assert "step_000014" in read[0] and "step_000013" not in read[0]


def test_it_is_kept_up_as_the_run_grows(run: Path) -> None:
    index = module.index_of(run)
    index.build()
    with RunStore.open(run) as store:
        record(store, range(15, 19))
    assert rollouts(run, Wanted(), limit=1).in_all == 36, "new steps are there at once"
    index.build()
    assert files(run) == [
        *("rollouts_000000_000007", "rollouts_000008_000015", "rollouts_000016_000017"),
    ], "small files became a large one"
    assert rollouts(run, Wanted(), limit=1).in_all == 36


def test_it_is_made_again_where_steps_are_others(run: Path) -> None:
    index = module.index_of(run)
    index.build()
    with RunStore.open(run) as store:
        store.rewind({"step": 3, **{name: (run / name).stat().st_size for name in ("metrics.jsonl", "evals.jsonl")}})
        store.write_rollouts(4, rollout_rows([trajectory(completion="anew", score=right("5"))], stage="rl"))
    assert rollouts(run, Wanted(text="anew"), limit=5).in_all == 1
    assert rollouts(run, Wanted(), limit=5).in_all == 7
    index.build()
    assert all("000000_000007" not in name for name in os.listdir(run / FOLDER)), "what is stale is removed"


@pytest.mark.parametrize("content", [b"", b"PAR1 nothing", b"x" * 1000])
@pytest.mark.parametrize("kind", ["*.parquet", "*.trigrams", "*"])
def test_a_damaged_index_is_made_again_and_nobody_notices(run: Path, content: bytes, kind: str) -> None:
    without = answers(run)
    module.index_of(run).build()
    made = {path.name: path.read_bytes() for path in (run / FOLDER).iterdir()}
    for path in (run / FOLDER).glob(kind):
        path.write_bytes(content)
    module._indexes.clear()
    assert answers(run) == without
    module.index_of(run).build()
    assert {path.name: path.read_bytes() for path in (run / FOLDER).iterdir()} == made


def test_a_bit_that_flipped_is_found_when_the_index_is_first_used(run: Path) -> None:
    """The other reward of a rollout: the table can be read, and is not what was written."""
    index = module.index_of(run)
    index.build()
    path = sorted((run / FOLDER).glob("*.parquet"))[0]
    made = path.read_bytes()
    place = made.index(b"0 0")
    path.write_bytes(made[:place] + b"9 9" + made[place + 3 :])
    module._indexes.clear()
    module.index_of(run).build()
    assert path.read_bytes() == made


def test_a_search_in_texts_goes_on_where_it_stopped(run: Path) -> None:
    """Four files of the index, of which each request searches one; the last step is read from its own file."""
    whole = rollouts(run, Wanted(text="^1"), limit=50)
    module.index_of(run).build()
    asked = [rollouts(run, Wanted(text="^1"), limit=50, seconds=0) for _ in range(5)]
    assert [found.left_out for found in asked] == [12, 10, 8, 0, 0]
    assert [row["step"] for row in asked[0].rows] == [13, 13], "those of the newest steps that it has searched"
    assert asked[3] == asked[4] == whole


def test_a_search_that_goes_on_sees_a_run_that_grew_and_was_rewound(run: Path) -> None:
    index = module.index_of(run)
    index.build()
    assert rollouts(run, Wanted(text="^1"), limit=5).in_all == 10
    with RunStore.open(run) as store:
        record(store, range(15, 20))
    index.build()
    assert rollouts(run, Wanted(text="^1"), limit=5).in_all == 14
    with RunStore.open(run) as store:
        store.rewind({"step": 3, **{name: (run / name).stat().st_size for name in ("metrics.jsonl", "evals.jsonl")}})
    assert rollouts(run, Wanted(text="^1"), limit=5).in_all == 2


def test_files_that_cannot_match_are_not_searched(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunStore.open(run) as store:
        made = [trajectory(completion="a zebra", score=right("5"))]
        store.write_rollouts(10, rollout_rows(made, stage="rl", groups=[0]))
        record(store, range(15, 17))
    module.index_of(run).build()
    read: list[str] = []
    ask = search.query
    monkeypatch.setattr(search, "query", lambda sql, values=(), **more: read.append(sql) or ask(sql, values, **more))
    assert rollouts(run, Wanted(text="zeb"), limit=5).in_all == 1
    inserted = [sql for sql in read if sql.startswith("INSERT")]
    assert len(inserted) == 1 and "000008_000015" in inserted[0] and "000000_000007" not in inserted[0]


def test_while_the_index_is_made_most_of_what_it_lacks_is_left_out(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LOOSE", 3)
    assert rollouts(run, Wanted(), limit=50).left_out == 0, "it may never be made"
    monkeypatch.setattr(Index, "is_building", lambda self: True)
    found = rollouts(run, Wanted(), limit=50)
    assert (found.in_all, found.left_out, found.rows[-1]["step"]) == (6, 11, 12)
    assert questions.solved(run, "task", most_rows=5, most_columns=50)["left_out"] == 11
    assert questions.history(run, "task-1")[2] == 11


def test_a_run_that_cannot_be_written_to_has_none(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (run / FOLDER).symlink_to(target)
    without = answers(run)
    module.index_of(run).build()
    assert list(target.iterdir()) == [] and answers(run) == without


def test_a_run_of_another_user_is_only_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without = answers(run)
    monkeypatch.setattr(os, "geteuid", lambda: run.stat().st_uid + 1)
    module.index_of(run).build()
    assert not (run / FOLDER).exists() and answers(run) == without


def test_a_copied_run_does_not_take_the_index_of_another(run: Path, tmp_path: Path) -> None:
    module.index_of(run).build()
    copied = tmp_path / "copy"
    shutil.copytree(run, copied, copy_function=shutil.copy)
    assert not any(source.indexed for source in module.index_of(copied).sources())
