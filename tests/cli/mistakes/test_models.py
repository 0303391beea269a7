"""What users get wrong, from the command line to the message: models and machines that cannot be had, and dry runs."""

import json
from pathlib import Path

import pytest
import torch

from posttrain.cli import main
from tests.cli.mistakes.given import SMALL, Refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model=tinny", "models.policy: the model folder 'tinny' does not exist; did you mean 'tiny'?"),
        ("model=.", "models.policy: '.' has no config.json, so it is not a model folder; it holds: "),
        ("model=mine.py", "models.policy: the model folder 'mine.py' is a file, not a folder"),
        ("model=new", "models.policy: source is 'new' and shape is not given"),
        (
            "model=smollm2",
            "the model folder 'smollm2' does not exist; posttrain fetch smollm2 downloads it to models/smollm2",
        ),
        ("model=models/smollm2", "does not exist; posttrain fetch smollm2 downloads it to models/smollm2"),
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
