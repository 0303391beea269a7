"""Targets, rewards, the cache and the slow copy by hand, and a run with a small model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics._orders import (
    HASHED,
    Actor,
    Cached,
    Episode,
    Instance,
    OrderLearning,
    Request,
    Step,
    features,
    in_order,
    is_right,
    learn,
    play,
    remember,
    rewards,
)
from posttrain.components.diagnostics.subtask_order import ROWS, SubtaskOrder, compared
from posttrain.components.tasks.files import Files
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy

LINE = Instance(text="go", gold={"a": "1", "b": "2"})


def chained(requests: Any) -> list[str]:
    """b can be read at any time, a only once b was."""
    return [r.instance.gold[r.subtask] if r.subtask == "b" or dict(r.found).get("b") else "?" for r in requests]


def step(reward: float, *options: np.ndarray) -> Step:
    seen = features("go", (), "a")
    next_AD = np.stack(options) if options else np.zeros((0, HASHED), np.float32)
    return Step(seen_D=seen, reward=reward, returned=7.0, next_AD=next_AD)


def test_the_target_takes_the_best_action_by_the_network_and_its_value_by_the_slow_copy() -> None:
    actor = Actor(OrderLearning(gamma=0.5), seed=0)
    one, two = features("go", ("a",), "b"), features("go", ("b",), "a")
    fast = {one.tobytes(): 1.0, two.tobytes(): 3.0}
    slow = {one.tobytes(): 9.0, two.tobytes(): 4.0}
    actor.q = lambda seen, *, slow_=slow, **kind: np.array(  # type: ignore[method-assign]
        [(slow_ if kind.get("slow") else fast)[row.tobytes()] for row in seen]
    )
    assert actor.targets([step(1.0, one, two), step(0.25), step(0.0, one)]).tolist() == [3.0, 0.25, 4.5]
    actor.settings = OrderLearning(targets="returns")
    assert actor.targets([step(1.0, one, two)]).tolist() == [7.0]


def test_the_slow_copy_is_renewed_after_a_number_of_updates() -> None:
    actor = Actor(OrderLearning(copy_every=3, batch=4), seed=0)
    remember(actor, play(actor, [LINE], Cached(chained), 1.0)[0], final=False)
    seen, same = features("go", (), "a")[None], []
    for _ in range(4):
        actor.update()
        same.append(bool((actor.q(seen) == actor.q(seen, slow=True)).all()))
    assert same == [False, False, True, False] and actor.updates == 4


def test_steps_hold_rewards_and_what_is_left() -> None:
    actor = Actor(OrderLearning(gamma=0.5), seed=0)
    episode = Episode(instance=LINE)
    for name, answer in (("a", "?"), ("b", "2")):
        episode.seen.append(features("go", episode.found, name))
        episode.do(name, answer)
    remember(actor, episode, final=False)
    first, last = actor.steps
    assert (first.reward, first.returned, last.reward, last.returned) == (0.0, 0.5, 1.0, 1.0)
    assert np.array_equal(first.next_AD, features("go", ("a",), "b")[None]) and len(last.next_AD) == 0
    assert np.array_equal(first.seen_D, features("go", (), "a"))
    assert rewards(episode, final=True) == [0.0, 0.0] and rewards(episode, final=False) == [0.0, 1.0]


def test_each_request_is_carried_out_once() -> None:
    sent: list[int] = []

    def counted(requests: Any) -> list[str]:
        sent.append(len(requests))
        return chained(requests)

    cached = Cached(counted)
    first = Request(instance=LINE, found=(), subtask="b")
    other = Request(instance=LINE, found=(("b", "2"),), subtask="a")
    assert cached([first, first, other]) == ["2", "2", "1"] and cached([other]) == ["1"]
    assert (cached.asked, cached.calls, sent) == (4, 2, [2])


def test_answers_are_compared_by_words() -> None:
    assert is_right(" 3  May", "3 may") and not is_right("3", "3 May") and not is_right("", "3 May")


def test_the_order_that_can_be_read_is_learned() -> None:
    """Only b before a is right; a single subtask has nothing to learn."""
    actor, worker = Actor(OrderLearning(rate=1e-2), seed=0), Cached(chained)
    learn(actor, [LINE], worker, 32, final=False)
    found = compared(actor, [LINE], worker)
    assert found["learned"] == found["best_of_each"] == found["best_fixed"] == 1.0 and found["random"] == 0.5
    assert found["best_fixed_order"] == ["b", "a"]
    assert in_order([LINE], ("a", "b"), worker).tolist() == [[False, True]]
    assert compared(actor, [Instance(text="x", gold={"b": "2"})], worker)["learned"] == 1.0


def subject(tmp_path: Path) -> Subject:
    folder = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=256)
    return Subject(
        name="tiny",
        load=lambda: load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu")),
        serve=lambda policy: Native().serve(policy, 0),
    )


def rows(tmp_path: Path, subtasks: Any, count: int) -> Files:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"line {i}", "subtasks": subtasks}) + "\n" for i in range(count)))
    return Files(path=str(path))


def test_a_models_weights_do_not_change_and_a_run_repeats(tmp_path: Path) -> None:
    assert ROWS == (288,)
    tasks = rows(tmp_path, {"a": "1", "b": "2"}, 4)
    diagnostic = SubtaskOrder(tasks=tasks, episodes=4, tested=2, max_tokens=2)
    found = diagnostic.examine(subject(tmp_path))
    assert found.values["weights_unchanged"] and found.values["training"]["requests"] == 8
    assert found.values["training"]["calls"] <= 8 and found.values["learned"] == 0.0, "random weights find nothing"
    assert diagnostic.examine(subject(tmp_path)).values == found.values


def test_bad_rows_are_refused(tmp_path: Path) -> None:
    nothing = Subject(name="x", load=lambda: None, serve=lambda policy: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(UserError, match="leave none of 4"):
        SubtaskOrder(tasks=rows(tmp_path, {"a": "1"}, 4), tested=4).examine(nothing)
    with pytest.raises(UserError, match="no field 'subtasks'"):
        SubtaskOrder(tasks=rows(tmp_path, ["a"], 4)).examine(nothing)
    with pytest.raises(UserError, match="at most 6"):
        compared(None, [Instance(text="x", gold={str(i): "" for i in range(7)})], None)
    with pytest.raises(ValueError, match="must show"):
        SubtaskOrder(tasks=rows(tmp_path, {"a": "1"}, 4), template="{other}")
