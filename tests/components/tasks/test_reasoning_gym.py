import sys
from dataclasses import replace

import pytest

from posttrain.components.tasks.reasoning_gym import ReasoningGym
from posttrain.errors import UserError
from posttrain.types import Task
from tests.libraries import needs_reasoning_gym

SEVERAL = ReasoningGym(
    name=("chain_sum", "isomorphic_strings", "rearc"), size=8, seed=3, settings={"chain_sum": {"max_terms": 2}}
)


pytestmark = pytest.mark.slow
"""The library takes seconds to import."""


@pytest.fixture(scope="module")
def several() -> list[Task]:
    needs_reasoning_gym()
    return list(SEVERAL.load())


def test_the_entry_is_the_library_s_own(several: list[Task]) -> None:
    from reasoning_gym.factory import create_dataset

    dataset = create_dataset("chain_sum", size=3, seed=3, max_terms=2)
    first = [task for task in several if task.domain == "chain_sum"]
    for task, entry in zip(first, dataset, strict=True):
        assert (task.prompt, task.answer) == (entry["question"], entry["answer"])
        assert task.fields == {"dataset": "chain_sum", "entry": entry}


def test_several_data_sets_take_turns(several: list[Task]) -> None:
    turns = ["chain_sum", "isomorphic_strings", "rearc"]
    assert [task.domain for task in several] == [*turns, *turns, *turns[:2]]
    assert [t.fields["entry"]["metadata"]["source_index"] for t in several] == [0, 0, 0, 1, 1, 1, 2, 2]


def test_the_library_s_grader_accepts_its_answer_for_the_kept_entry(several: list[Task]) -> None:
    """rearc compares tuples with tuples: an entry that went through JSON would not be accepted."""
    from reasoning_gym import get_score_answer_fn

    for task in several:
        assert get_score_answer_fn(task.domain)(task.answer, task.fields["entry"]) == 1.0


@pytest.mark.slow
def test_another_process_draws_the_same(several: list[Task]) -> None:
    """isomorphic_strings follows the order of a set, which differs between hash seeds."""
    import json
    import subprocess

    code = (
        "import json; from tests.components.tasks.test_reasoning_gym import SEVERAL; "
        "print(json.dumps([[t.key, t.fields['entry']['metadata']] for t in SEVERAL.load()]))"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, env={"PYTHONHASHSEED": seed}, check=True
        )
        expected = [[t.key, t.fields["entry"]["metadata"]] for t in several]
        assert json.loads(done.stdout) == json.loads(json.dumps(expected))


def test_as_chat_keeps_the_keys(monkeypatch: pytest.MonkeyPatch, several: list[Task]) -> None:
    import posttrain.components.tasks.reasoning_gym as module

    entries = [[task.fields["entry"] for task in several if task.domain == "chain_sum"]]
    monkeypatch.setattr(module, "draw", lambda wanted, seed: entries)
    plain = ReasoningGym(name="chain_sum", size=3).load()
    chat = ReasoningGym(name="chain_sum", size=3, as_chat=True, system="Think.").load()
    assert [task.key for task in plain] == [task.key for task in chat]
    assert chat[0].prompt == (
        {"role": "system", "content": "Think."},
        {"role": "user", "content": plain[0].prompt},
    )


def test_numpy_and_unusual_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    import posttrain.components.tasks.reasoning_gym as module

    needs_reasoning_gym()
    entries = [[{"question": "q", "answer": answer, "metadata": {1: (2, 3)}} for answer in (None, 7.0, [1])]]
    monkeypatch.setattr(module, "draw", lambda wanted, seed: entries)
    tasks = ReasoningGym(name="chain_sum", size=3).load()
    assert [task.answer for task in tasks] == [None, "7", "[1]"]
    assert tasks[0].fields["entry"]["metadata"] == {1: (2, 3)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "chain_sums"}, "no data set 'chain_sums'; did you mean 'chain_sum'"),
        ({"name": ()}, "name at least one data set"),
        ({"name": ("chain_sum", "chain_sum")}, "each once"),
        ({"name": "chain_sum", "settings": {"max_term": 3}}, "no setting 'max_term'; did you mean 'max_terms'"),
        ({"name": "chain_sum", "settings": {"seed": 3}}, "size and seed are fields of the tasks"),
        ({"settings": {"max_terms": 3}}, "settings are given by data set"),
        ({"settings": {"chain_sum": 3}}, "must be a mapping"),
        ({"system": "Think."}, "as_chat is not set"),
        ({"name": "chain_sum", "settings": {"min_terms": 5, "max_terms": 2}}, "does not accept"),
    ],
)
def test_errors(change: dict[str, object], message: str) -> None:
    needs_reasoning_gym()
    with pytest.raises(UserError, match=message):
        replace(SEVERAL, **change).load()  # type: ignore[arg-type]


def test_a_missing_library_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "reasoning_gym"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(UserError, match=r"pip install 'posttrain\[reasoning-gym\]'"):
        ReasoningGym(name="chain_sum").load()


def test_entries_with_fractions_are_read() -> None:
    """Entry 7 of this seed has a fraction among its variables."""
    needs_reasoning_gym()
    tasks = ReasoningGym(name="gsm_symbolic", size=9).load()
    assert len(tasks) == 9 and tasks[7].fields["entry"]["metadata"]["variables"]["serving_fraction"] == 2
