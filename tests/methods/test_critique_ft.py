"""One-shot critique fine-tuning: what is trained and what is masked."""

from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.methods.sft_rl.critique_ft import ROWS, critique_ft
from posttrain.methods.sft_rl.sft import sft
from posttrain.recipes.differences import differences
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.demonstrations import demonstrations
from posttrain.settings.one_problem import one_problem
from posttrain.settings.shapes import shapes
from posttrain.stages import Models

Train = Callable[[Recipe], tuple[Models, RunStore]]


def test_it_is_sft_on_critiques() -> None:
    assert ROWS == (97,)
    assert {difference.path for difference in differences(sft(one_problem()), critique_ft())} == {"tasks"}
    assert len(critique_ft().tasks.load()) == 300
    assert critique_ft(shapes()).tasks.tasks == shapes().tasks  # type: ignore[attr-defined]
    assert critique_ft(demonstrations()).tasks.tasks.of == demonstrations().tasks  # type: ignore[attr-defined]


def test_problem_and_candidate_are_masked(tmp_path: Path, train: Train) -> None:
    from posttrain.policies.folder import new_folder

    folder = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=320)
    sizes = ("sft.best=null", "evaluation.tasks.size=4", "sft.max_steps=1", "sft.batch=6")
    _, store = train(override(critique_ft(), [*sizes, "threads=1", f"model={folder}"]))
    rows = store.rollouts(1)
    assert len(rows) == 6
    for row in rows:
        trained = bytes(i for i, own in zip(row["token_ids"], row["trained"], strict=True) if own and i < 256).decode()
        masked = bytes(i for i, own in zip(row["token_ids"], row["trained"], strict=True) if not own and i < 256)
        assert masked.startswith(b"Check the solution.\nQ: ") and masked.endswith(b"\nCritique:")
        assert trained.endswith(" [END]") and "Check" not in trained


@pytest.mark.slow
def test_the_default_run_fits_its_critiques(train: Train) -> None:
    _, store = train(
        override(critique_ft(), ["sft.best=null", "sft.max_steps=12", "evaluation.tasks.size=4", "threads=1"])
    )
    losses = [entry["loss"] for entry in store.metrics()]
    assert losses[-1] < 0.85 * losses[0]
