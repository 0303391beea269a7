"""Rankings by windows: where a relevant passage ends, and what a model's reply does."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics.windows import Windows
from posttrain.components.tasks.files import Files
from posttrain.errors import UserError
from posttrain.types import Completion
from tests.builders import ScriptedSampler


def subject(name: str, server: Any = None) -> Subject:
    return Subject(name=name, load=lambda: None, serve=lambda _: server)  # type: ignore[arg-type,return-value]


def test_windows_that_overlap_lift_the_last_passage() -> None:
    found = Windows().examine(subject("oracle"), subject("swapped")).values
    assert found["before"]["rank"] == 100.0 and found["found"]["oracle"] == {"ndcg": 1.0, "rank": 1.0, "interval": None}
    assert 1.0 < found["found"]["swapped"]["rank"] < 3.0
    apart = Windows(step=20).examine(subject("oracle")).values["found"]["oracle"]
    assert apart["rank"] == 81.0 and apart["ndcg"] == 0.0
    with pytest.raises(UserError, match="step 30 is above window 20"):
        Windows(step=30).examine(subject("oracle"))


class Asked(ScriptedSampler):
    """Puts passages with an x first, names them twice and one that is not there, and leaves out the others."""

    def __init__(self) -> None:
        super().__init__("ranker")
        self.prompts: list[str] = []

    def bind(self, *key: int | str) -> "Asked":
        return self

    async def sample(self, token_ids: np.ndarray, *args: Any, **kwargs: Any) -> list[Completion]:
        text = bytes(int(i) for i in token_ids[1:]).decode()
        self.prompts.append(text)
        first = [line.split()[0] for line in text.partition(":")[2].splitlines() if "x" in line]
        (completion,) = await super().sample(token_ids, *args, **kwargs)
        return [replace(completion, text=f"<think></think><answer>{'>'.join([*first, *first, '9'])}")]


def test_a_model_is_asked_window_by_window(tmp_path: Path) -> None:
    row = {"prompt": "x", "query": "x", "documents": ["a", "b", "c", "x"], "relevant": [4]}
    (tmp_path / "mine.jsonl").write_text(json.dumps(row))
    asked = Asked()
    given = Windows(tasks=Files(path=str(tmp_path / "mine.jsonl")), window=2, step=1, template="{query}:{passages}")
    found = given.examine(subject("mine", asked)).values["found"]["mine"]
    assert asked.prompts == ["x:1 c\n2 x", "x:1 b\n2 x", "x:1 a\n2 x"] and found["rank"] == 1.0
    with pytest.raises(UserError, match="mine is a model and needs queries"):
        Windows().examine(subject("mine", asked))


@pytest.mark.parametrize("relevant", [[], [5], None, "4"])
def test_a_query_needs_a_relevant_passage(tmp_path: Path, relevant: object) -> None:
    row = {"prompt": "x", "query": "x", "documents": ["a", "b"], "relevant": relevant}
    (tmp_path / "mine.jsonl").write_text(json.dumps(row))
    with pytest.raises(UserError, match="leave out queries without a relevant passage"):
        Windows(tasks=Files(path=str(tmp_path / "mine.jsonl"))).examine(subject("oracle"))
