import asyncio
from typing import Any

import numpy as np
import pytest

from posttrain.components.selections.hardest import Hardest
from posttrain.errors import UserError
from posttrain.types import Task
from tests.builders import ScriptedSampler


class Reader(ScriptedSampler):
    """Finds the digit of a text unlikely: 7 has a log-probability of -7."""

    async def logp(self, token_ids: np.ndarray, **_: Any) -> np.ndarray:
        return np.array([-float(chr(i)) if chr(i).isdigit() else 0.0 for i in token_ids[1:]])


def tasks(*texts: str) -> list[Task]:
    return [Task(key=str(i), prompt="ask:", demonstrations=(text,) if text else ()) for i, text in enumerate(texts)]


def kept(given: list[Task], **settings: Any) -> list[str]:
    selection = Hardest(**settings)
    measured = asyncio.run(selection.measure(given, {"policy": Reader("policy")}))
    return [task.key for task in selection.choose(given, measured).tasks]


def test_the_share_of_the_highest_perplexity_is_kept_of_each_class() -> None:
    given = tasks("f(1)", "f(9)", "f(5)", "f(7)", "no 1", "no 2", "")
    assert kept(given, share=0.5) == ["1", "3", "5"]
    assert kept(given, share=0.3) == ["1"], "a class of two has none at 30 %"
    assert kept(given, share=1.0, marker="") == ["0", "1", "2", "3", "4", "5"]
    assert kept(tasks("f(3)", "f(3)"), share=0.5) == ["0"], "the first of equals"


def test_the_mean_is_over_the_reference_and_its_end() -> None:
    measured = asyncio.run(Hardest().measure(tasks("f(9)"), {"policy": Reader("policy")}))
    assert measured["nll"] == [9 / 5] and measured["kept"] == [] and measured["then"] is None


def test_tasks_without_any_reference_are_refused() -> None:
    with pytest.raises(UserError, match="demonstration"):
        kept(tasks("", ""))


def test_another_selection_goes_on_with_those_that_are_kept() -> None:
    inner = Hardest(share=0.5, marker="")
    given = tasks("f(1)", "f(9)", "f(5)", "f(7)")
    selection = Hardest(share=0.5, then=inner)
    measured = asyncio.run(selection.measure(given, {"policy": Reader("policy")}))
    chosen = selection.choose(given, measured)
    assert [t.key for t in chosen.tasks] == ["1"] and ";" in chosen.summary
    assert selection.roles == {"policy"} and selection.writes == inner.writes and selection.gives == inner.gives
