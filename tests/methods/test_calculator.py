from collections.abc import Callable

import pytest

from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.calculator import calculator
from posttrain.stages import Models
from posttrain.stages.sft import demonstration

Train = Callable[[Recipe], tuple[Models, RunStore]]
Small = Callable[..., Recipe]


@pytest.mark.slow
def test_calls_and_what_they_gave_are_in_the_record(train: Train) -> None:
    """With the bundled model, which writes equals signs by itself."""
    changes = ["tasks.size=60", "evaluation.holdout=4", "sft.batch=8", "sft.max_steps=2", "threads=1"]
    sizes = ["rl.steps=1", "rl.prompts=2", "rl.rollout.n=4", "evaluation.every=0"]
    models, store = train(override(calculator(), [*changes, *sizes]))
    (entry,) = [entry for entry in store.metrics() if entry["stage"] == "rl"]
    assert entry["turns"] == pytest.approx(1 + entry["world/calls"], abs=1), "an answer after the calls"
    assert entry["world/calls"] > 0
    rows = store.rollouts(3)
    tokenizer = models["policy"].tokenizer
    for row in rows:
        trained = [i for i, t in zip(row["token_ids"], row["trained"], strict=True) if t]
        written = "".join(
            text for text, segment in zip(_texts(row, tokenizer), row["segments"], strict=True) if segment["trained"]
        )
        assert tokenizer.decode(trained) == written


def _texts(row, tokenizer):  # type: ignore[no-untyped-def]
    at = 0
    for segment in row["segments"]:
        yield tokenizer.decode(row["token_ids"][at : at + segment["length"]])
        at += segment["length"]


@pytest.mark.slow
def test_demonstrations_do_not_train_on_the_calculators_output(small: Small) -> None:
    from posttrain.runs.context import RunContext

    recipe = override(calculator(), ["tasks.size=20", "evaluation.holdout=2"])
    context = RunContext(recipe, __import__("torch").device("cpu"))
    policy = context.first_models()["policy"]
    for task in context.problems.of(recipe.stages["sft"]):
        made = demonstration(policy, task, task.episodes[0])
        trained = policy.tokenizer.decode(made.token_ids[made.trained_positions])
        calls = task.fields["expression"].count("+") + task.fields["expression"].count("-")
        calls += task.fields["expression"].count("*")
        assert trained.count("=") == calls
        assert trained.endswith(f"=\n#### {task.answer}")
        assert sum(s.actor == "environment" for s in made.segments) == calls
