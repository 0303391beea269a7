import math
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posttrain.errors import RunFailed, UserError
from posttrain.runs import tables
from posttrain.runs.tables import clean_text, read_table, rollout_rows, write_table
from posttrain.types import Score, Segment, Task, Trajectory
from tests.runs.made_runs import Note, right, trajectory, wrong


def written(path: Path, table, **options: Any) -> list[dict[str, Any]]:
    write_table(table, path, step=7, **options)
    return read_table(path)


def test_a_row_holds_everything_known(tmp_path: Path) -> None:
    one = trajectory("2+3=", "5!", sample=1, score=right("5"), facts=(Note(entries={"depth": np.int64(2)}),), parent=0)
    table = rollout_rows(
        [one], stage="rl", groups=[4], dropped=["too long"], columns=[{"advantage": np.array([0.5, -0.25], np.float32)}]
    )
    [row] = written(tmp_path / "a.parquet", table)
    assert row == {
        "schema_version": 1,
        "step": 7,
        "stage": "rl",
        "task_key": "task-0",
        "domain": "sums",
        "group_index": 4,
        "sample": 1,
        "parent": 0,
        "version": 3,
        "prompt": "2+3=",
        "completion": "5!",
        "answer": "5",
        "stop_reason": "stop",
        "reward": 1.0,
        "score_status": "ok",
        "score_answer": "5",
        "score_explanation": "5 is the reference answer",
        "parts": {
            "exact": {"value": 1.0, "status": "ok", "answer": None, "explanation": ""},
            "format": {"value": 1.0, "status": "ok", "answer": None, "explanation": ""},
        },
        "dropped_reason": "too long",
        "info": '{"depth": 2}',
        "images": None,
        "segments": [
            {"actor": "prompt", "length": 4, "trained": False, "version": 0, "turn": 0, "state_key": None, "reward": 0},
            {"actor": "policy", "length": 2, "trained": True, "version": 3, "turn": 0, "state_key": None, "reward": 0},
        ],
        "token_ids": [50, 43, 51, 61, 53, 33],
        "trained": [False, False, False, False, True, True],
        "sampled_logp": [None, None, None, None, -2.0, pytest.approx(-0.1)],
        "trained_logp": None,
        "entropy": None,
        "ratio": None,
        "advantage": [None, None, None, None, 0.5, -0.25],
        "value": None,
    }


def test_numbers_land_on_the_trained_tokens_between_other_actors(tmp_path: Path) -> None:
    def segment(actor: str, ids: list[int], trained: bool, logp: list[float] | None = None) -> Segment:
        given_logp = None if logp is None else np.array(logp, np.float32)
        return Segment(actor=actor, token_ids=np.array(ids), trained=trained, logp=given_logp)

    several = Trajectory(
        task=Task(key="k", prompt="p"),
        segments=(
            segment("prompt", [1], False),
            segment("policy", [2, 3], True, [-1, -2]),
            segment("environment", [4], False),
            segment("guide", [5], False, [-3]),
            segment("demonstration", [6, 7], True),
        ),
        stop_reason="environment",
    )
    columns = [{"entropy": np.array([1, 2, 3, 4], np.float32), "guide_logp": np.array([-5, -6, -7, -8], np.float32)}]
    [row] = written(tmp_path / "a.parquet", rollout_rows([several], columns=columns))
    assert row["trained"] == [False, True, True, False, False, True, True]
    assert row["sampled_logp"] == [None, -1, -2, None, -3, None, None]
    assert row["entropy"] == [None, 1, 2, None, None, 3, 4]
    assert row["guide_logp"] == [None, -5, -6, None, None, -7, -8]
    assert list(row)[-2:] == ["value", "guide_logp"]


def test_turns_keep_what_was_seen_and_its_reward(tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    ids = np.arange(2)
    segments = (
        Segment(actor="prompt", token_ids=ids, text="p"),
        Segment(actor="policy", token_ids=ids, trained=True, state_key="start", reward=-0.1, text="a"),
        Segment(actor="environment", token_ids=ids, turn=1, text="b"),
        Segment(actor="policy", token_ids=ids, trained=True, turn=1, state_key="", text="c"),
    )
    attempt = Trajectory(
        task=Task(key="k", prompt="p"),
        segments=segments,
        stop_reason="environment",
        facts=(Note(entries={"turns": 2}),),
    )
    (row,) = written(tmp_path / "t.parquet", rollout_rows([attempt]))
    segments = [(s["actor"], s["turn"], s["state_key"], s["reward"]) for s in row["segments"]]
    assert segments == [
        ("prompt", 0, None, 0.0),
        ("policy", 0, "start", -0.1),
        ("environment", 1, None, 0.0),
        ("policy", 1, "", 0.0),
    ]
    assert (row["completion"], row["info"]) == ("abc", '{"turns": 2}')
    assert row["trained"] == [False, False, True, True, False, False, True, True]


def test_what_was_not_computed_for_one_trajectory_is_null_for_that_one(tmp_path: Path) -> None:
    ratio = np.array([math.inf], np.float32)
    rows = written(
        tmp_path / "a.parquet",
        rollout_rows([trajectory(completion="a"), trajectory(completion="b")], columns=[{}, {"ratio": ratio}]),
    )
    assert [row["ratio"] for row in rows] == [None, [None, None, None, None, math.inf]]


def test_a_failed_score_and_none_at_all(tmp_path: Path) -> None:
    failed = Score(value=math.nan, status="error", explanation="timed out")
    rows = written(tmp_path / "a.parquet", rollout_rows([trajectory(score=failed), trajectory(answer=None)]))
    assert [(r["reward"], r["score_status"], r["answer"]) for r in rows] == [(None, "error", "5"), (None, None, None)]
    assert rows[1]["parts"] == {}


def test_parts_of_parts_have_paths(tmp_path: Path) -> None:
    inner = Score(value=0.5, status="ok", parts={"units": Score(value=1.0, status="ok")})
    score = Score(value=0.5, status="ok", parts={"sum": inner, "unit's": wrong("4", "5")})
    [row] = written(tmp_path / "a.parquet", rollout_rows([trajectory(score=score)]))
    assert {name: part["value"] for name, part in row["parts"].items()} == {
        "sum": 0.5,
        "sum/units": 1.0,
        "unit's": 0.0,
        "unit's/exact": 0.0,
        "unit's/format": 1.0,
    }


def test_no_trajectories_and_an_empty_completion(tmp_path: Path) -> None:
    assert written(tmp_path / "a.parquet", rollout_rows([])) == []
    [row] = written(tmp_path / "b.parquet", rollout_rows([trajectory("", "")], columns=[{"value": np.zeros(0)}]))
    assert (row["token_ids"], row["trained"], row["value"], row["entropy"]) == ([], [], [], None)


def test_chat_prompts_without_rendered_text_are_readable(tmp_path: Path) -> None:
    task = Task(key="k", prompt=({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}))
    ids = np.array([1, 2])
    chat = Trajectory(task=task, segments=(Segment(actor="prompt", token_ids=ids),), stop_reason="stop")
    [row] = written(tmp_path / "a.parquet", rollout_rows([chat]))
    assert row["prompt"] == "user: Hi\nassistant: Yes?"


AWKWARD = [
    "\x00",
    "a\x00b",
    "\ud800",
    "x\udfffy",
    "\ud83d\ude00",
    "😀\n\r\t",
    "\u2028",
    "'; DROP TABLE",
    "NaN",
    "",
    "\x1b[31m",
]


@pytest.mark.parametrize("text", AWKWARD)
def test_awkward_text_survives(tmp_path: Path, text: str) -> None:
    score = Score(value=0.0, status="wrong", answer=text, explanation=text, parts={f"part{text}": right(text)})
    one = trajectory(text, text, answer=text, key=text, score=score, facts=(Note(entries={"note": text}),))
    [row] = written(tmp_path / "a.parquet", rollout_rows([one], stage=text, dropped=[text]), evaluation=text or "e")
    expected = clean_text(text)
    for column in ("prompt", "completion", "answer", "task_key", "score_answer", "dropped_reason", "stage"):
        assert row[column] == expected
    assert f"part{expected}" in row["parts"]


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(exclude_categories=())), min_size=1, max_size=4))
def test_any_text_survives(tmp_path: Path, texts: list[str]) -> None:
    rows = written(tmp_path / "a.parquet", rollout_rows([trajectory("p", text) for text in texts]))
    assert [row["completion"] for row in rows] == [clean_text(text) for text in texts]


@pytest.mark.slow
@given(st.text())
def test_sound_text_is_not_changed(text: str) -> None:
    assert clean_text(text) == text


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    def write(path: Path) -> bytes:
        generator = np.random.default_rng(0)
        many = [trajectory("p" * (i % 7), "c" * (i % 50), score=right("1"), sample=i) for i in range(300)]
        columns = [{"advantage": generator.normal(size=t.num_trained).astype(np.float32)} for t in many]
        write_table(rollout_rows(many, columns=columns), path, step=1)
        return path.read_bytes()

    assert write(tmp_path / "a.parquet") == write(tmp_path / "b.parquet")


def test_plain_duckdb_reads_many_files_with_different_columns(tmp_path: Path) -> None:
    write_table(rollout_rows([trajectory(score=right("5"))]), tmp_path / "step_000001.parquet", step=1)
    more = rollout_rows([trajectory(score=wrong("4", "5"))], columns=[{"teacher_logp": np.array([-1.0], np.float32)}])
    write_table(more, tmp_path / "step_000002.parquet", step=2)
    found = duckdb.sql(
        f"""SELECT step, reward, parts['exact'].status, list_sum(teacher_logp), len(token_ids), segments[2].actor
            FROM read_parquet('{tmp_path}/*.parquet', union_by_name=true) ORDER BY step"""
    ).fetchall()
    assert found == [(1, 1.0, "ok", None, 5, "policy"), (2, 0.0, "wrong", -1.0, 5, "policy")]


def test_evaluations_of_one_step_share_a_file_and_replace_only_themselves(tmp_path: Path) -> None:
    path = tmp_path / "step_000007.parquet"
    first, second = rollout_rows([trajectory(completion="first")]), rollout_rows([trajectory(completion="second")] * 2)
    written(path, first, evaluation="before")
    once = written(path, second, evaluation="it's after")
    assert [(row["evaluation"], row["completion"]) for row in once] == [
        ("before", "first"),
        ("it's after", "second"),
        ("it's after", "second"),
    ]
    content = path.read_bytes()
    written(path, second, evaluation="it's after")
    assert path.read_bytes() == content


def test_a_wrong_number_of_values_is_caught() -> None:
    with pytest.raises(AssertionError, match="advantage has 3 numbers for 1 trained tokens"):
        rollout_rows([trajectory()], columns=[{"advantage": np.zeros(3, np.float32)}])


def test_a_table_that_holds_more_than_any_run_writes_is_refused(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "a.parquet"
    duckdb.execute(f"COPY (SELECT repeat('a', 10000) AS a, [1.5, 2.5] AS b FROM range(40)) TO '{path}'")
    assert len(read_table(path)) == 40
    monkeypatch.setattr(tables, "LARGEST", 40 * (20_000 + 16) - 1)
    with pytest.raises(RunFailed, match="which no run writes"):
        read_table(path)
    monkeypatch.setattr(tables, "LARGEST", 40 * (20_000 + 16))
    assert len(read_table(path)) == 40


@pytest.mark.parametrize("content", [b"", b"PAR1PAR1", b"PAR1" + b"\xff" * 100 + b"PAR1"])
def test_a_table_that_is_damaged_is_named(tmp_path: Path, content: bytes) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"a\.parquet cannot be read: "):
        read_table(path)
