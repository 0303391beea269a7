"""What users get wrong, from the command line to the message: mistyped names, and commands that mean nothing."""

from pathlib import Path

import pytest

from tests.cli.mistakes.given import SMALL, Refused


@pytest.mark.parametrize(
    ("change", "place", "nearest"),
    [
        ("sed=3", "", "seed"),
        ("modle=tiny", "", "model"),
        ("stesp=3", "", "steps"),
        ("rl.stesp=3", "stages.rl", "steps"),
        ("stages.rll.steps=3", "stages.rll", "rl"),
        ("rollout.nn=3", "stages.rl.rollout", "n"),
        ("rollout={kind: independent, nn: 3}", "stages.rl.rollout", "n"),
        ("rollout.sampling.temprature=1", "stages.rl.rollout.sampling", "temperature"),
        ("objective.clip_hihg=0.3", "stages.rl.objective", "clip_high"),
        ("advantage.scal=none", "stages.rl.advantage", "scale"),
        ("filters.zero_variance.tolerence=1", "stages.rl.filters.zero_variance", "tolerance"),
        ("learner.optimizer.weigth_decay=1", "stages.rl.learner.optimizer", "weight_decay"),
        ("models.policy.sorce=tiny", "models.policy", "source"),
        ("models.polcy.trained=true", "models.polcy.source", "policy"),
        ("models.policy.lora.rnk=4", "models.policy.lora", "rank"),
        ("engine.slot=8", "engine", "slots"),
        ("tasks.columns.anser=gold", "tasks.columns", "answer"),
        ("evaluation.holdot=8", "evaluation", "holdout"),
        ("checkpoints.every_step=8", "checkpoints", "every_steps"),
    ],
)
def test_a_mistyped_key(refused: Refused, change: str, place: str, nearest: str) -> None:
    message = refused("run", "grpo", *SMALL, change)
    assert message.startswith(f"{place} (from '{change}'): " if place else "no field "), message
    assert message.endswith(f"; did you mean '{nearest}'?"), message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("objective=ppo_clp", "no objective named 'ppo_clp'; did you mean 'ppo_clip'?"),
        ("rollout.kind=independant", "no rollout named 'independant'; did you mean 'independent'?"),
        ("curriculum=unifrm", "no curriculum named 'unifrm'; did you mean 'uniform'?"),
        ("reward=mtach", "no reward named 'mtach'; did you mean 'match'?"),
        ("advantage=group_men", "no advantage named 'group_men'; did you mean 'group_mean'?"),
        ("reducer=token", "no reducer named 'token'; did you mean 'tokens'?"),
        ("filters.mine.kind=zero_varianc", "no filter named 'zero_varianc'; did you mean 'zero_variance'?"),
        ("penalties.kl.kind=klm", "no penalty named 'klm'; did you mean 'kl'?"),
        ("learner.optimizer=adam", "no optimizer named 'adam'; did you mean 'adamw'?"),
        ("learner.schedule=cosin", "no schedule named 'cosin'; did you mean 'cosine'?"),
        ("engine=natve", "no engine named 'natve'; did you mean 'native'?"),
        ("tasks=arithmtic", "no file, folder or kind of tasks named 'arithmtic'"),
    ],
)
def test_a_mistyped_kind(refused: Refused, change: str, message: str) -> None:
    assert message in refused("run", "grpo", *SMALL, change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("evaluation=of", "settings are expected, or off, which holds nothing out, got 'of'"),
        ("evaluation=true", "settings are expected, or off, which holds nothing out, got True"),
        ("learner=3", "settings are expected, as in {NAME: VALUE}, got 3"),
    ],
)
def test_a_value_in_place_of_settings(refused: Refused, change: str, message: str) -> None:
    assert refused("run", "grpo", *SMALL, change).endswith(f"(from '{change}'): {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: grpo\nsed: 1\n", "mine.yaml line 2: no field 'sed' in this recipe or its stages (rl); did you"),
        (
            "base: grpo\nrollout:\n  sampling:\n    temprature: 1\n",
            "stages.rl.rollout.sampling (mine.yaml line 4): Sampling has no field 'temprature'; "
            "did you mean 'temperature'?",
        ),
        (
            "base: grpo\n\nobjective: {kind: ppo_clip, clip_hihg: 0.3}\n",
            "stages.rl.objective (mine.yaml line 3): PPOClip has no field 'clip_hihg'; did you mean 'clip_high'?",
        ),
        ("base: grpo\nmodels:\n  polcy:\n    trained: true\n", "models.polcy.source (mine.yaml line 3): Field req"),
        ("base: gpro\n", "no recipe named 'gpro'; did you mean 'grpo'?"),
    ],
)
def test_a_mistake_in_a_yaml_file_has_its_line(refused: Refused, text: str, message: str) -> None:
    Path("mine.yaml").write_text(text)
    assert message in refused("run", "mine.yaml", *SMALL)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("replace(grpo(), sed=3)", "recipe.py line 6: Recipe has no field 'sed'; did you mean 'seed'?"),
        (
            "with_stage(grpo(), replace(rl_of(grpo()), stesp=3))",
            "recipe.py line 6: RL has no field 'stesp'; did you mean 'steps'?",
        ),
        ("gpro()", "recipe.py line 6: NameError: name 'gpro' is not defined"),
        ("3", "recipe.py:mine returned int; a recipe function returns a Recipe"),
    ],
)
def test_a_mistake_in_a_python_recipe_has_its_line(refused: Refused, body: str, message: str) -> None:
    Path("recipe.py").write_text(
        "from dataclasses import replace\n"
        "from posttrain.recipes.changes import rl_of, with_stage\n"
        "from posttrain.methods.policy_gradient.grpo import grpo\n"
        "\n"
        "def mine():\n"
        f"    return {body}\n"
    )
    assert message in refused("run", "recipe.py:mine", *SMALL)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu", "grpo"], "no verb 'rnu'; did you mean 'run'?"),
        (["run", "gpro"], "no recipe named 'gpro'; did you mean 'grpo'?"),
        (["run", "mine.py:grpo"], "mine.py has no function 'grpo'; known: fine"),
        (["run", "mine.yml"], "no file mine.yml (working in "),
        (["run"], "Missing argument 'RECIPE'."),
        (["run", "grpo", "rollout.n"], "'rollout.n' is not an override; write path=value, for example rollout.n=16"),
        (["run", "grpo", "--rollout.n=3"], "A change to a recipe is written without dashes: rollout.n=VALUE"),
        (["show", "grpo", "sed=3"], "did you mean 'seed'?"),
        (["diff", "grpo", "gpro"], "no recipe named 'gpro'; did you mean 'grpo'?"),
        (["list", "objectiv"], "did you mean 'objective'?"),
        (["resume", "runs/nothing"], "there is no run runs/nothing"),
        (["resume", "tiny"], "tiny is not a run: it holds no recipe.yaml"),
        (["sample", "tinny", "a"], "the model folder 'tinny' does not exist;"),
        (["sample", "tiny", ""], "the prompt is empty"),
        (
            ["sample", "tiny", "x" * 70],
            "its context is 64 tokens, of which 1 must be left for the completion. Use at most 63",
        ),
        (["eval", "tinny", "tasks=sums.jsonl"], "the model folder 'tinny' does not exist;"),
        (["eval", "tiny", "tasks=sum.jsonl"], "named 'sum.jsonl'"),
        (["eval", "tiny", "tasks=sums.jsonl", "model=other"], "so 'model=other' would do nothing"),
        (["eval", "tiny", "tasks=sums.jsonl", "--save", "no/answers.parquet"], "no folder no to write answers.parquet"),
    ],
)
def test_a_command_that_means_nothing(refused: Refused, arguments: list[str], message: str) -> None:
    assert message in refused(*arguments)
