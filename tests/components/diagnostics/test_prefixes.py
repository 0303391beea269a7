"""Values of prefixes: cosines, AUROC, the filter and its vote, and the whole on a tiny model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics.prefixes import Prefixes, auroc, cosines, filtered
from posttrain.components.rewards.regex import Regex
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.types import FloatArray, Score, Trajectory
from tests.builders import trajectory


def answered(name: str, right: bool, values: list[float]) -> tuple[Trajectory, FloatArray]:
    score = Score(value=float(right), status="ok" if right else "wrong", answer=name)
    return trajectory(len(values)).scored(score), np.array(values, np.float32)


ROW = [
    answered("7", True, [0.5, 0.6, 0.9, 0.9]),
    answered("8", False, [0.5, 0.2, 0.1, 0.0]),
    answered("8", False, [0.5, 0.4, 0.3, 0.9]),
]


def test_cosines_by_hand() -> None:
    found = cosines(np.array([[2.0, 0.0], [0.0, 3.0], [1.0, 1.0], [0.0, 0.0]], np.float32), np.array([1.0, 0.0]))
    assert found.tolist() == pytest.approx([1.0, 0.0, 0.5**0.5, 0.0])


def test_auroc_after_shares_of_the_tokens() -> None:
    """After one token all are equal; after two and three the right one is above both; at the end it ties with one."""
    assert [auroc([ROW], share) for share in (0.25, 0.5, 0.75, 1.0)] == [0.5, 1.0, 1.0, 0.75]
    assert auroc([ROW[:1]], 0.5) is None


def test_any_token_below_leaves_an_answer_out() -> None:
    assert filtered([ROW], None) == {"accuracy": 0.0, "tokens_saved": 0.0, "fallbacks": 0.0, "answers_kept": 1.0}
    row = filtered([ROW], 0.35)  # the second from its second token on, the third from its third
    assert row["accuracy"] == 1.0 and row["tokens_saved"] == pytest.approx((3 + 2) / 12)
    assert row["answers_kept"] == pytest.approx(1 / 3) and row["fallbacks"] == 0.0
    all_out = filtered([ROW], 0.5)  # the first has exactly 0.5
    assert all_out == {"accuracy": 0.0, "tokens_saved": 0.0, "fallbacks": 1.0, "answers_kept": 1.0}


def test_the_whole_on_a_tiny_model(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=128)

    def load() -> object:
        return load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu"))

    subject = Subject(name="tiny", load=load, serve=lambda policy: Native().serve(policy, 0))  # type: ignore[arg-type]
    diagnostic = Prefixes(
        tasks=WorkedSolutions(size=12),
        verifier=Regex(pattern="[a-m]"),
        goals=8,
        n=3,
        thresholds=(-2.0, 2.0),
        sampling=Sampling(max_tokens=6),
    )
    found = diagnostic.examine(subject, subject).values
    assert (found["tasks"], found["answers"]) == (4, 12)
    assert found["filtered"]["-2"] == found["vote"], "no cosine is below"
    assert found["filtered"]["2"]["fallbacks"] == 1.0, "and all are below 2"
    with pytest.raises(UserError, match="more than goals"):
        replace(diagnostic, goals=12).examine(subject, subject)
