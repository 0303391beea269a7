"""What a model of one's own is evaluated with."""

from pathlib import Path

import pytest

from posttrain.policies.folder import new_folder
from posttrain.recipes import following
from posttrain.runs.measuring import context_for

SMALL = ("tasks.size=20", "evaluation.holdout=4", "threads=1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model with a chat template and a context of 2,048 tokens."""
    made = new_folder(tmp_path / "mine", layers=1, width=32, heads=2, kv_heads=1, context=2048)
    (made / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    return made


def test_lengths_and_template_follow_a_larger_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = context_for(str(folder), SMALL, None, None)
    assert small.problems.sampling.max_tokens == 64 and not small.recipe.models["policy"].chat
    monkeypatch.setattr(following, "LARGE", 1000)
    context = context_for(str(folder), SMALL, None, None)
    assert context.problems.sampling.max_tokens > 64
    assert context.recipe.models["policy"].chat and not context.recipe.models["policy"].trained
    assert any("max_tokens" in line for line in context.fitted.chosen)
    written = context_for(str(folder), [*SMALL, "rollout.sampling.max_tokens=9"], None, None)
    assert written.problems.sampling.max_tokens == 9
