"""Settings follow the model where the user writes nothing; rates far from the usual ones are warned of."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch

from posttrain.component.automatic import AUTO_RATE
from posttrain.components.optimizers.adamw import AdamW
from posttrain.errors import UserError
from posttrain.policies.folder import new_folder
from posttrain.policies.sizes import size_of
from posttrain.recipes.files import find_recipe
from posttrain.recipes.overrides import from_tree, to_tree
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.fitting import fit_to_models
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.runs.problems import Problems
from posttrain.runs.python import recipe as python_recipe
from posttrain.runs.store import RunStore

LR, LENGTH = "stages.rl.learner.optimizer.lr", "stages.rl.rollout.sampling.max_tokens"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of 10 million weights, the smallest that the table is about."""
    return new_folder(tmp_path_factory.mktemp("models") / "large", layers=3, width=512, heads=8, context=64)


def value(recipe: Recipe, path: str) -> object:
    node: object = to_tree(recipe)
    for part in path.split("."):
        node = node[part]  # type: ignore[index]
    return node


def test_numbers_that_nobody_wrote_follow_a_larger_model(large: Path) -> None:
    written = find_recipe("grpo", [f"model={large}", "learner.schedule=constant"])
    assert (value(written, LR), value(written, LENGTH)) == ("auto", "auto")
    fitted = fit_to_models(written)
    assert (value(fitted.recipe, LR), value(fitted.recipe, LENGTH)) == (1e-6, 32)
    assert any(line.startswith(f"{LR} is 1e-06 for reinforcement, 10M weights (usual: ") for line in fitted.chosen)
    assert fitted.warnings == ()
    assert fit_to_models(fitted.recipe).chosen == (), "nothing is left to choose"


def test_adapters_get_their_own_rate_and_supervised_training_its_own(large: Path) -> None:
    rl = fit_to_models(find_recipe("grpo", [f"model={large}", "models.policy.lora={}"])).recipe
    assert value(rl, LR) == 1e-5
    sft = fit_to_models(find_recipe("sft", [f"model={large}"])).recipe
    assert value(sft, "stages.sft.learner.optimizer.lr") == 1.4e-4
    assert value(sft, "stages.sft.learner.schedule.warmup") == 0.1
    dpo = fit_to_models(find_recipe("dpo", [f"model={large}"])).recipe
    assert value(dpo, "stages.dpo.learner.optimizer.lr") == 8.7e-7


def test_the_bundled_model_and_models_of_its_size_keep_the_settings_numbers(tmp_path: Path) -> None:
    plain = find_recipe("quickstart")
    assert fit_to_models(plain).recipe is plain
    assert fit_to_models(plain).chosen == fit_to_models(plain).warnings == ()
    small = find_recipe("grpo", [f"model={new_folder(tmp_path / 'small')}"])
    assert (value(small, LR), value(small, LENGTH)) == (1e-4, 64)


@pytest.mark.parametrize("change", ["lr=3e-4", "learner.optimizer={kind: adamw, lr: 3e-4}"])
def test_what_the_user_writes_stays_and_is_warned_of_with_the_usual_range(large: Path, change: str) -> None:
    fitted = fit_to_models(find_recipe("grpo", [change, f"model={large}"]))
    assert value(fitted.recipe, LR) == 3e-4
    [warning] = fitted.warnings
    assert "300 times the usual 1e-06" in warning
    assert "3e-07 to 3e-06" in warning and "lr=auto" in warning
    kept = fit_to_models(find_recipe("grpo", ["lr=1e-4", f"model={large}"]))
    assert value(kept.recipe, LR) == 1e-4, "also where it is the setting's own number"


def test_files_and_python_follow_the_same_rule(large: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"base: grpo\nmodels: {{policy: {{source: {large}}}}}\nstages: {{rl: {{steps: 3}}}}\n")
    assert value(find_recipe(str(file)), LR) == "auto"
    file.write_text(file.read_text().replace("steps: 3", "steps: 3, learner: {optimizer: {lr: 1.0e-4}}"))
    assert value(find_recipe(str(file)), LR) == 1e-4
    assert value(find_recipe(str(file), ["lr=auto"]), LR) == "auto"
    assert value(python_recipe("grpo", model=large), LR) == "auto"
    assert value(python_recipe("grpo", model=large, lr=1e-4), LR) == 1e-4
    assert value(python_recipe("grpo", model=large, changes=["lr=1e-4"]), LR) == 1e-4


def test_settings_follow_a_gguf_file(large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gguf")
    from tests.policies.gguf.gguf_files import write_gguf

    (tmp_path / "model").mkdir()
    file = write_gguf(tmp_path / "model" / "large.gguf", large)
    for source in (file, file.parent):
        found = find_recipe("grpo", [f"model={source}"])
        assert found.models["policy"].chat, "its template is in the metadata"
        assert size_of(found.models["policy"]) == size_of(find_recipe("grpo", [f"model={large}"]).models["policy"])
        fitted = fit_to_models(found)
        assert (value(fitted.recipe, LR), value(fitted.recipe, LENGTH)) == (1e-6, 32)
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(UserError, match=r"pip install 'posttrain\[gguf\]'"):
        fit_to_models(found)


def test_auto_is_refused_where_the_table_is_not_about_the_model() -> None:
    with pytest.raises(UserError, match=r"stages\.rl\.learner\.optimizer\.lr is auto.*write a number"):
        fit_to_models(find_recipe("grpo", ["lr=auto"]))


def test_auto_survives_the_tree_and_replacement(large: Path) -> None:
    recipe = find_recipe("grpo", [f"model={large}"])
    assert from_tree(to_tree(recipe)) == recipe
    assert AdamW(lr=AUTO_RATE) == AdamW(lr="auto")  # type: ignore[arg-type]
    for wrong in ("lr=-1", "lr=0", "lr=automatic", "rollout.sampling.max_tokens=-1"):
        with pytest.raises(UserError, match=r"greater than|valid (number|integer)"):
            find_recipe("grpo", [wrong])


def test_sizes_come_from_the_headers(large: Path) -> None:
    size = size_of(find_recipe("grpo", [f"model={large}"]).models["policy"])
    assert size is not None
    assert (size.layers, size.width, size.context, size.heads) == (3, 512, 64, 512)
    assert size.parameters > 10_000_000


@pytest.mark.slow
def test_a_run_records_what_was_chosen_and_keeps_the_numbers(large: Path, tmp_path: Path) -> None:
    small = ["steps=1", "prompts=1", "rollout.n=2", "evaluation.holdout=2", "filters={}", "alarms={}", "lr=1e-3"]
    folder, _ = start(find_recipe("grpo", [f"model={large}", *small]), tmp_path, LiveView(lines=True, json=True))
    assert value(find_recipe(str(folder / "recipe.yaml")), LENGTH) == 32
    with RunStore.open(folder, reading=True) as store:
        notes = [event["message"] for event in store.events() if event["kind"] == "note"]
        [warning] = [event["message"] for event in store.events() if event["kind"] == "warning"]
        chosen = store.environment()["chosen"]
    assert f"{LR} is 0.001, 1000 times the usual 1e-06" in warning
    assert any(note.startswith(f"{LENGTH} is 32") for note in chosen)
    assert notes[: len(chosen)] == chosen


@pytest.mark.slow
def test_a_larger_model_gets_an_early_evaluation_of_held_out_tasks(large: Path, tmp_path: Path) -> None:
    assert find_recipe("grpo").evaluation.early == 0
    assert find_recipe("grpo", [f"model={large}"]).evaluation.early == 3
    small = ["steps=3", "prompts=1", "rollout.n=2", "evaluation.holdout=2", "evaluation.early=2", "filters={}"]
    folder, _ = start(find_recipe("grpo", small), tmp_path, LiveView(lines=True, json=True))
    with RunStore.open(folder, reading=True) as store:
        assert [found["name"] for found in store.evaluations()] == ["before", "rl step 2", "rl"]


TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"
)


def test_a_chat_model_gets_its_template_and_the_run_reports_it(large: Path, tmp_path: Path) -> None:
    chat = tmp_path / "chat"
    shutil.copytree(large, chat)
    assert find_recipe("grpo", [f"model={chat}"]).models["policy"].chat
    settings = json.loads((chat / "tokenizer_config.json").read_text())
    del settings["chat_template"]
    (chat / "tokenizer_config.json").write_text(json.dumps(settings))
    assert not find_recipe("grpo", [f"model={chat}"]).models["policy"].chat, "it has no template"
    (chat / "chat_template.jinja").write_text(TEMPLATE)
    rows = [{"prompt": f"{i}+1=", "answer": str(i + 1)} for i in range(4)]
    rows.append({"prompt": [{"role": "system", "content": "add"}, {"role": "user", "content": "7"}], "answer": "8"})
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    changes = [f"model={chat}", f"tasks={tmp_path / 'sums.jsonl'}"]
    problems = Problems(find_recipe("grpo", changes))
    prompts = {task.answer: task.prompt for task in [*problems.train, *problems.held_out]}
    assert prompts["3"] == ({"role": "user", "content": "2+1="},)
    assert prompts["8"] == tuple(rows[-1]["prompt"]), "messages stay as they are"
    assert any("models.policy.chat=false" in note for note in problems.notes)
    plain = Problems(find_recipe("grpo", [*changes, "models.policy.chat=false"]))
    assert "2+1=" in [task.prompt for task in [*plain.train, *plain.held_out]]
    assert not any("chat" in note for note in plain.notes)
    context = RunContext(find_recipe("grpo", changes), torch.device("cpu"))
    policy = context.first_models()["policy"]
    task = next(task for task in [*context.problems.train, *context.problems.held_out] if task.answer == "3")
    assert policy.prompt(task).text == "<user>2+1=<a>"
