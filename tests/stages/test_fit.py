"""The loop that every stage shares: what it requires of a run, and that no stage has another one."""

import ast
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import posttrain.stages
from posttrain.errors import UserError
from posttrain.stages.fit import check_trained, fit, steps_in
from posttrain.stages.record import StepRecord
from posttrain.types import Group, Task

FOLDER = Path(posttrain.stages.__file__).parent


class Listed:
    """A run that records the calls it gets."""

    def __init__(self, steps_done: int = 0, most: int = 100) -> None:
        self.most = most
        self.name, self.seed, self.tasks, self.model_settings = "stage", 0, list[Task](), {}
        self.steps_done, self.memory, self.groups = steps_done, {}, list[Group]()
        self.calls: list[Any] = []

    def samplers(self, models: Any, *key: int | str) -> dict[str, Any]:
        return {}

    def sampled_tokens(self, models: Any) -> int:
        return 0

    def goes_on(self, steps_done: int) -> bool:
        return steps_done < self.most

    def restore(self, learners: Mapping[str, Any]) -> None:
        self.calls.append(("restore", sorted(learners)))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        yield

    def finish_step(self, steps_done: int, record: StepRecord, memory: Any, learners: Any, models: Any) -> None:
        self.calls.append((steps_done, dict(record.metrics), dict(memory)))


def test_every_step_is_finished_with_its_own_record_and_the_memory_of_that_time() -> None:
    run, memory = Listed(), {"seen": 0}
    for step in fit(run, {}, {"policy": SimpleNamespace(goes_on=True)}, steps=2, memory=memory):  # type: ignore[dict-item]
        memory["seen"] += 10
        step.record.metrics["progress"] = step.progress
    assert run.calls == [
        ("restore", ["policy"]),
        (1, {"progress": 0.0}, {"seen": 10}),
        (2, {"progress": 0.5}, {"seen": 20}),
    ]


def test_a_continued_stage_takes_the_steps_that_are_left() -> None:
    run = Listed(steps_done=3)
    assert [(step.index, step.progress) for step in fit(run, {}, {}, steps=5)] == [(3, 0.6), (4, 0.8)]
    assert run.calls == [("restore", []), (4, {}, {}), (5, {}, {})]


def test_a_stage_ends_where_the_run_has_no_further_step_for_it() -> None:
    assert [step.index for step in fit(Listed(most=2), {}, {}, steps=5)] == [0, 1]
    assert [step.index for step in fit(Listed(most=0), {}, {}, steps=5)] == [0]  # a merge is one step
    assert list(fit(Listed(steps_done=3, most=3), {}, {}, steps=5)) == []


def test_a_step_that_breaks_off_is_not_finished() -> None:
    run = Listed()
    with pytest.raises(RuntimeError):
        for _ in fit(run, {}, {}, steps=2):
            raise RuntimeError
    assert run.calls == [("restore", [])]


@pytest.mark.parametrize(
    ("examples", "epochs", "max_steps", "steps"), [(10, 1.0, None, 2), (10, 2.0, 3, 3), (1, 0.1, None, 1)]
)
def test_steps_follow_from_epochs(examples: int, epochs: float, max_steps: int | None, steps: int) -> None:
    assert steps_in(examples, batch=4, epochs=epochs, max_steps=max_steps) == steps


def test_a_frozen_model_is_refused() -> None:
    from torch import nn

    model: Any = nn.Linear(1, 1).requires_grad_(False)
    with pytest.raises(UserError, match=r"stage warm trains the role 'guide', but models.guide.trained is false"):
        check_trained(model, "guide", "stage warm")


def calls(source: str) -> set[str]:
    """Names of the methods that a module calls."""
    found = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return {function.attr for function in found if isinstance(function, ast.Attribute)}


def test_no_stage_has_a_loop_of_its_own() -> None:
    """Steps are counted and finished, and learners restored, in one place."""
    assert {"finish_step", "restore"} <= calls((FOLDER / "fit.py").read_text())
    files = [file for file in FOLDER.rglob("*.py") if file != FOLDER / "fit.py"]
    assert len(files) > 10
    own = {file.name: calls(file.read_text()) & {"finish_step", "restore"} for file in files}
    assert not {name: found for name, found in own.items() if found}
    assert calls("context.finish_step(1)") == {"finish_step"}, "what is looked for is found"


def test_no_step_follows_once_a_learner_has_no_further_one() -> None:
    learner = SimpleNamespace()
    for step in fit(Listed(), {}, {"policy": learner}, steps=9):  # type: ignore[dict-item]
        learner.goes_on = step.index < 1
    assert step.index == 1
