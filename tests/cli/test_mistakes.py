"""What users get wrong, from the command line to the message: what is said, the exit code, and that nothing is left."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.cli import main
from posttrain.policies.folder import new_folder
from posttrain.runs.store import RunStore

Refused = Callable[..., str]

SMALL = (
    "model=tiny",
    "tasks=sums.jsonl",
    "evaluation.holdout=2",
    "steps=2",
    "prompts=2",
    "rollout.n=2",
    "rollout.sampling.max_tokens=4",
    "threads=1",
)
CONTEXT = 64
REWARDS = """
def fine(completion):
    return len(completion) / 4

def raises(completion):
    raise ConnectionError("the judge does not answer")

def no_number(completion):
    return float("nan")

def sometimes(completion):
    if len(completion) % 2:
        raise ValueError("odd")
    return len(completion) / 4

def strange(weight, height):
    return 1.0
"""


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return new_folder(folder, layers=1, width=32, heads=2, kv_heads=1, context=CONTEXT)


@pytest.fixture(autouse=True)
def here(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a tiny model, twelve sums and some rewards, to work in."""
    threads = torch.get_num_threads()
    monkeypatch.chdir(tmp_path)
    Path("tiny").symlink_to(tiny)
    write_rows("sums.jsonl", [{"question": f"{i}+1=", "answer": str(i + 1)} for i in range(12)])
    Path("mine.py").write_text(REWARDS)
    yield tmp_path
    torch.set_num_threads(threads)


def write_rows(name: str, rows: Sequence[Any]) -> None:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def ended(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Runs a command as people and as programs do: both get the same message and code, and nobody a traceback."""

    def run(*arguments: str) -> tuple[int, str]:
        code = main(arguments)
        told = capfd.readouterr()
        assert "Traceback" not in told.err and "bug in posttrain" not in told.err
        assert main([*arguments, "--json"]) == code
        answered = capfd.readouterr()
        answer = json.loads(answered.out)
        assert set(answer) == {"error", "exit_code"}
        assert answer["exit_code"] == code != 0
        assert told.err == f"error: {answer['error']}\n"
        assert answered.err.endswith(told.err)
        return code, answer["error"]

    return run


@pytest.fixture
def refused(ended: Callable[..., tuple[int, str]], here: Path) -> Refused:
    """Runs a command that must be refused for its input: exit code 2, and no file is made."""

    def run(*arguments: str) -> str:
        before = sorted(p for p in here.iterdir() if p.name != "__pycache__")
        code, message = ended(*arguments)
        assert code == 2
        assert sorted(p for p in here.iterdir() if p.name != "__pycache__") == before
        return message

    return run


# Names


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


# Data


@pytest.mark.parametrize(
    ("name", "content", "changes", "message"),
    [
        (
            "sums.csv",
            None,
            [],
            "no file, folder or kind of tasks named 'sums.csv' (looked in {here}); did you mean sums",
        ),
        ("x.jsonl", "", [], "x.jsonl is empty: it holds no rows"),
        ("x.json", "[]", [], "x.json is empty: it holds no rows"),
        ("x.csv", "question,answer\n", [], "x.csv is empty: it holds no rows"),
        ("x.jsonl", '{"question": "a", "answer": "b"}\n{"question"', [], "x.jsonl line 2, column 12: not JSON"),
        (
            "x.jsonl",
            '{"question": "a", "answer": "b"}\n' * 3,
            [],
            "the 3 tasks of kind 'files' all have the same prompt",
        ),
        ("x.jsonl", '{"ask": "a", "tell": "b"}\n', [], "no column is known to hold the prompt; the columns are 'ask'"),
        (
            "sums.jsonl",
            None,
            ["tasks.columns.answer=anser"],
            "columns.answer names 'anser', which no row has a value in; did you mean 'answer'?",
        ),
        (
            "sums.jsonl",
            None,
            ["evaluation.tasks=sums.jsonl", "evaluation.holdout=12"],
            "stage rl: no task is left to train on, since all are among the 12 held-out ones",
        ),
        ("sums.jsonl", None, ["evaluation.tasks=test.jsonl"], "no file, folder or kind of tasks named 'test.jsonl'"),
        (
            "x.jsonl",
            "".join(f'{{"text": "line {i}"}}\n' for i in range(9)),
            [],
            "the held-out tasks: 2 of 2 tasks have no prompt to answer",
        ),
        (
            "x.jsonl",
            "".join(f'{{"text": "line {i}"}}\n' for i in range(9)),
            ["evaluation.tasks=sums.jsonl"],
            "the rl stage: 9 of 9 tasks have no prompt to answer",
        ),
    ],
)
def test_data_that_cannot_be_used(
    refused: Refused, here: Path, name: str, content: str | None, changes: list[str], message: str
) -> None:
    if content is not None:
        Path(name).write_text(content)
    assert message.format(here=here) in refused("run", "grpo", *SMALL, f"tasks={name}", *changes)


@pytest.mark.parametrize("length", [CONTEXT, CONTEXT + 9])
def test_a_prompt_that_leaves_no_room_for_an_answer(refused: Refused, length: int) -> None:
    rows = [{"id": f"row {i}", "question": f"{i}+1=", "answer": "1"} for i in range(12)]
    write_rows("test.jsonl", [{"question": "one?"}, {"question": "two?"}])
    write_rows("long.jsonl", [*rows, {"id": "the long one", "question": "x" * length, "answer": "1"}])
    assert refused("run", "grpo", *SMALL, "tasks=long.jsonl", "evaluation.tasks=test.jsonl") == (
        "the rl stage: prompts of 1 of 13 tasks leave no room for an answer in the model's context of 64 tokens; the "
        f"first is task the long one with {length} tokens. Shorten or leave out those rows, or use a model with a "
        "longer context"
    )
    message = refused("run", "grpo", *SMALL, "tasks=test.jsonl", "evaluation.tasks=long.jsonl", "evaluation.holdout=13")
    assert message.startswith("the held-out tasks: prompts of 1 of 13 tasks leave no room")
    assert message == refused("eval", "tiny", "evaluation.tasks=long.jsonl")


def test_a_prompt_with_room_for_one_token_is_answered_with_one(capfd: pytest.CaptureFixture[str]) -> None:
    write_rows("edge.jsonl", [{"question": f"{i:0{CONTEXT - 1}}", "answer": "1"} for i in range(12)])
    assert main(["run", "grpo", *SMALL, "tasks=edge.jsonl", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["sampled_tokens"] == 2 * 2 * 2


def test_demonstrations_that_are_missing_or_too_long(refused: Refused) -> None:
    sft = ["run", "sft", "model=tiny", "evaluation.holdout=2", "threads=1", "sft.max_steps=1"]
    assert refused(*sft, "tasks=sums.jsonl").startswith("none of the 10 tasks has a demonstration to imitate; give")
    # 2 tokens of a prompt, 61 of the demonstration and the end token are 64; one more is too much.
    rows = [{"id": str(i), "question": f"{i:02}", "answer": "1", "response": "y" * (61 + i // 11)} for i in range(12)]
    write_rows("long.jsonl", rows)
    message = refused(*sft, "tasks=long.jsonl", "evaluation.tasks=sums.jsonl")
    assert message.startswith(
        "task 11: prompt (2 tokens) and demonstration (63) together pass the model's context of 64 tokens; shorten"
    )


def test_a_model_can_be_measured_on_a_whole_file(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "tiny", "tasks=sums.jsonl", "evaluation.tasks=sums.jsonl", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["tasks"] == 12


# Rewards


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ("mine.py:fin", "reward function 'mine.py:fin': no function 'fin' in {here}/mine.py; did you mean 'fine'?"),
        ("mime.py:fine", "reward function 'mime.py:fine': no file {here}/mime.py (working in {here}); did you mean"),
        ("mine.py:strange", "reward function 'mine.py:strange' takes (weight, height). there is no value"),
        ("broken.py:fine", "{here}/broken.py does not run: SyntaxError: "),
        ("mine.py", "a function is written mine.py:NAME"),
    ],
)
def test_a_reward_that_cannot_be_called(refused: Refused, here: Path, reward: str, message: str) -> None:
    Path("broken.py").write_text("def fine(completion)\n    return 1\n")
    assert message.format(here=here) in refused("run", "grpo", *SMALL, f"reward={reward}")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            "reward=mine.py:raises",
            "ConnectionError: the judge does not answer (mine.py line 6: raise ConnectionError(",
        ),
        ("reward=mine.py:no_number", "the function returned nan"),
    ],
)
def test_a_run_that_nobody_can_judge_stops_with_the_evidence(
    ended: Callable[..., tuple[int, str]], change: str, why: str
) -> None:
    code, message = ended("run", "grpo", *SMALL, change)
    assert code == 3
    assert message.startswith("4 of 4 rollouts of this step could not be scored, so it is not learned from.")
    assert why in message
    with RunStore.open(Path("runs/grpo-1"), reading=True) as run:
        assert [event["message"] for event in run.events() if event["kind"] == "alarm"] == [message]
        assert run.evaluations()[0]["accuracy"] is None
        assert run.evaluations()[0]["errors"] == 2
        rows = [*run.rollouts(1), *run.evaluation_rows(0)]
        assert len(rows) == 4 + 2
        for row in rows:
            assert row["score_status"] == "error"
            assert row["reward"] is None
            assert why in row["score_explanation"]


def test_without_answers_nothing_is_sampled(ended: Callable[..., tuple[int, str]]) -> None:
    code, message = ended("run", "grpo", *SMALL, "tasks.columns.answer=null")
    assert code == 2 and "has an answer, which match compares with" in message
    assert not Path("runs/grpo-1/rollouts").exists()


@pytest.mark.slow
def test_a_run_goes_on_with_a_mended_reward(ended: Callable[..., tuple[int, str]]) -> None:
    assert ended("run", "grpo", *SMALL, "reward=mine.py:raises")[0] == 3
    Path("mine.py").write_text(REWARDS.replace('raise ConnectionError("the judge does not answer")', "return 0.5"))
    assert main(["resume", "runs/grpo-1"]) == 0
    with RunStore.open(Path("runs/grpo-1"), reading=True) as run:
        assert [entry["reward"] for entry in run.metrics()] == [0.5, 0.5]
        assert {row["reward"] for step in (1, 2) for row in run.rollouts(step)} == {0.5}
        assert run.events() == []
        assert run.summary()["accuracy_after"] == 0.0


def test_judgements_that_fail_now_and_then_are_recorded_and_not_learned_from(
    capfd: pytest.CaptureFixture[str],
) -> None:
    changes = ["reward=mine.py:sometimes", "max_grader_errors=1.0", "filters={}", "rollout.n=8"]
    assert main(["run", "grpo", *SMALL, *changes]) == 0
    with RunStore.open(Path("runs/grpo-1"), reading=True) as run:
        rows = [row for step in run.rollout_steps() for row in run.rollouts(step)]
        failed = [row for row in rows if row["score_status"] == "error"]
        assert 0 < len(failed) < len(rows) == 32
        for row in failed:
            assert row["reward"] is None and row["dropped_reason"] == "grader error"
            assert row["score_explanation"].startswith("ValueError: odd (mine.py line 13")
        shares = [entry["grader_errors"] for entry in run.metrics()]
        assert sum(shares) / 2 == pytest.approx(len(failed) / 32)


# Models and machines


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model=tinny", "models.policy: the model folder 'tinny' does not exist; did you mean 'tiny'?"),
        ("model=.", "models.policy: '.' has no config.json, so it is not a model folder; it holds: "),
        ("model=mine.py", "models.policy: the model folder 'mine.py' is a file, not a folder"),
        ("model=new", "models.policy: source is 'new' and shape is not given"),
        ("model=role:reference", "the recipe has no model in the role 'policy'"),
        ("models.policy.trained=false", "no model of this recipe is trained; set models.policy.trained=true"),
        ("models.policy.context=65", "models.policy: context is 65 tokens, but the model is made for 64"),
        ("models.reference.source=role:polcy", "models.reference.source: there is no role 'polcy' to copy; did you"),
        ("penalties.kl.kind=kl", "stages.rl.penalties.kl needs a model in the role 'reference' (logp of 'reference')"),
    ],
)
def test_models_that_cannot_be_had(refused: Refused, change: str, message: str) -> None:
    assert message in refused("run", "grpo", *SMALL, change)
    assert not Path("runs").exists(), "a run that cannot be leaves no folder behind"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there(refused: Refused) -> None:
    assert refused("run", "grpo", *SMALL, "device=cuda").startswith(
        "device=cuda was requested and torch sees no GPU here; use device=cpu or device=auto"
    )


def test_a_place_for_runs_that_is_none(refused: Refused) -> None:
    assert refused("run", "grpo", *SMALL, "--runs", "sums.jsonl").startswith("no run can be kept in sums.jsonl: ")


def test_the_dry_run_finds_the_same_mistakes(refused: Refused) -> None:
    assert "did you mean 'steps'?" in refused("run", "grpo", *SMALL, "stesp=3", "--dry-run")
    assert "does not exist" in refused("run", "grpo", *SMALL, "model=tinny", "--dry-run")
    assert "needs a model in the role" in refused("run", "grpo", *SMALL, "penalties.kl.kind=kl", "--dry-run")


def test_a_dry_run_leaves_nothing_behind(capfd: pytest.CaptureFixture[str], here: Path) -> None:
    before = sorted(here.iterdir())
    assert main(["run", "grpo", *SMALL, "--dry-run", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert "10 tasks to train on, 2 held out" in found["data"]
    assert sorted(here.iterdir()) == before


# Runs


@pytest.mark.slow
def test_two_processes_on_one_run(capfd: pytest.CaptureFixture[str], refused: Refused) -> None:
    assert main(["run", "grpo", *SMALL]) == 0
    record = {path: path.read_bytes() for path in Path("runs/grpo-1").rglob("*") if path.is_file()}
    hold = (
        "import pathlib, sys; from posttrain.runs.lock import RunLock; lock = RunLock(pathlib.Path(sys.argv[1]))\n"
        "print('held', flush=True); input()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, "runs/grpo-1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin and holder.stdout
    assert holder.stdout.readline() == "held\n"
    capfd.readouterr()
    message = refused("resume", "runs/grpo-1")
    assert message.startswith(f"the run runs/grpo-1 is in use by process {holder.pid} on ")
    assert "two processes cannot write to one run" in message
    lock = Path("runs/grpo-1/.lock")
    assert {p: p.read_bytes() for p in record if p != lock} == {p: c for p, c in record.items() if p != lock}
    holder.communicate("\n")
    assert main(["resume", "runs/grpo-1"]) == 0, "the lock goes with its process"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text.partition("stages:")[0], "runs/grpo-1/recipe.yaml has no stages and no base."),
        (lambda text: "a: [1\n", "runs/grpo-1/recipe.yaml line 2: expected ',' or ']'"),
        (lambda text: text.replace("steps: 2", "stesp: 2"), "RL has no field 'stesp'; did you mean 'steps'?"),
    ],
)
def test_a_run_whose_recipe_was_damaged(refused: Refused, damage: Callable[[str], str], message: str) -> None:
    assert main(["run", "grpo", *SMALL]) == 0
    recipe = Path("runs/grpo-1/recipe.yaml")
    recipe.write_text(damage(recipe.read_text()))
    assert message in refused("resume", "runs/grpo-1")
    assert Path("runs/grpo-1/model/model.safetensors").is_file()


@pytest.mark.slow
def test_resuming_checks_the_data_again_and_loses_nothing(
    capfd: pytest.CaptureFixture[str], ended: Callable[..., tuple[int, str]]
) -> None:
    assert main(["run", "grpo", *SMALL, "reward=mine.py:fine"]) == 0
    capfd.readouterr()
    metrics = Path("runs/grpo-1/metrics.jsonl").read_bytes()
    Path("sums.jsonl").rename("gone.jsonl")
    code, message = ended("resume", "runs/grpo-1")
    assert code == 2
    assert "no file, folder or kind of tasks named 'sums.jsonl'" in message
    Path("gone.jsonl").rename("sums.jsonl")
    Path("mine.py").unlink()
    assert "no file" in ended("resume", "runs/grpo-1")[1]
    assert Path("runs/grpo-1/metrics.jsonl").read_bytes() == metrics
    assert Path("runs/grpo-1/model/model.safetensors").is_file()
    Path("mine.py").write_text(REWARDS)
    assert main(["resume", "runs/grpo-1"]) == 0
    assert Path("runs/grpo-1/metrics.jsonl").read_bytes() == metrics


@pytest.mark.slow
def test_an_edited_recipe_is_refused_until_it_is_accepted(refused: Refused, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "grpo", *SMALL]) == 0
    recipe = Path("runs/grpo-1/recipe.yaml")
    recipe.write_text(recipe.read_text().replace("steps: 2", "steps: 3"))
    said = "runs/grpo-1/recipe.yaml is not the recipe that the run began with: steps was 2 and is 3."
    assert said in refused("resume", "runs/grpo-1")
    capfd.readouterr()
    assert main(["resume", "runs/grpo-1", "--accept-changes"]) == 0
    assert "changed: steps was 2 and is 3" in capfd.readouterr().out
    assert "steps was 2 and is 3" in Path("runs/grpo-1/history.jsonl").read_text()
    assert main(["resume", "runs/grpo-1"]) == 0, "what was accepted is not asked about again"
