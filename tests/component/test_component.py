"""The component base: frozen, validated, found by file name, spelled in plain data."""

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, get_args

import pytest
from annotated_types import Le, Lt
from pydantic import TypeAdapter, ValidationError

from posttrain.component import MOST_COUNT, Component, frozen, nearest
from posttrain.components.objectives import Objective
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.rewards import Reward
from posttrain.components.tasks import Tasks
from posttrain.errors import UserError
from posttrain.recipes.overrides import override
from posttrain.settings.quickstart import quickstart

OBJECTIVE: TypeAdapter[Objective] = TypeAdapter(Objective)


def test_kind_is_the_file_name_and_the_directory_is_the_registry() -> None:
    assert PPOClip().kind == "ppo_clip"
    assert "ppo_clip" in Objective.kinds()
    assert all(not kind.startswith("_") for kind in Objective.kinds())
    assert Objective.find("ppo_clip") is PPOClip


def test_plain_data_and_back_gives_the_same_component() -> None:
    component = PPOClip(clip_low=0.1, clip_high=0.28, dual_clip=3.0)
    tree = OBJECTIVE.dump_python(component, mode="json")
    assert tree == {"kind": "ppo_clip", "clip_low": 0.1, "clip_high": 0.28, "dual_clip": 3.0, "bound": None}
    assert OBJECTIVE.validate_python(json.loads(json.dumps(tree))) == component


def test_a_bare_kind_is_the_component_with_its_defaults() -> None:
    assert OBJECTIVE.validate_python("ppo_clip") == PPOClip()


def test_components_cannot_be_changed_only_replaced_and_replacing_validates() -> None:
    component = PPOClip()
    with pytest.raises(dataclasses.FrozenInstanceError):
        component.clip_low = 0.1  # type: ignore[misc]
    assert dataclasses.replace(component, clip_low=0.1).clip_low == 0.1
    with pytest.raises(ValidationError, match="greater than 0"):
        dataclasses.replace(component, clip_low=-1.0)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("ppo_clp", "no objective named 'ppo_clp'; did you mean 'ppo_clip'?"),
        ({"kind": "ppo_clip", "clip_lo": 0.1}, "PPOClip has no field 'clip_lo'; did you mean 'clip_low'?"),
        ({"clip_low": 0.1}, "write a kind of objective, or {kind: ..., settings}; got {'clip_low': 0.1}"),
        (3, "got 3"),
        ("no.such.module", "no module 'no.such.module'"),
    ],
)
def test_errors_name_what_was_got_and_the_nearest_name(value: object, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        OBJECTIVE.validate_python(value)
    assert message in str(caught.value)


@frozen
class Greeting:
    """Something with a field that was called otherwise before."""

    RENAMED: ClassVar = {"greets": "name"}

    name: str = "you"


class Fruit(Component):
    """A contract with a kind that was called otherwise before."""

    RENAMED_KINDS: ClassVar = {"pome": "apple"}


def test_a_setting_and_a_kind_that_were_renamed_are_refused_with_the_new_name() -> None:
    assert Greeting(name="her").name == "her"
    with pytest.raises(ValidationError, match=r"Greeting\.greets was renamed: write name"):
        Greeting(greets="her")  # type: ignore[call-arg]
    with pytest.raises(ValidationError, match=r"Greeting has no field 'nam'; did you mean 'name'\?"):
        Greeting(nam="her")  # type: ignore[call-arg]
    with pytest.raises(ValidationError, match="the fruit 'pome' was renamed: write apple"):
        TypeAdapter(Fruit).validate_python({"kind": "pome", "size": 3})


def test_not_a_number_is_refused() -> None:
    with pytest.raises(ValidationError, match="finite number"):
        PPOClip(clip_low=float("nan"))


def test_a_dotted_kind_is_anybodys_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_package").mkdir()
    (tmp_path / "their_package" / "__init__.py").write_text("")
    (tmp_path / "their_package" / "negative.py").write_text(
        "from posttrain.component import frozen\n"
        "from posttrain.components.objectives import Objective\n"
        "from posttrain.types import PerToken\n"
        "@frozen\n"
        "class Negative(Objective):\n"
        "    scale: float = 1.0\n"
        "    def __call__(self, tokens):\n"
        "        return PerToken(loss_T=-self.scale * tokens.logp_T)\n"
    )
    (tmp_path / "their_package" / "empty.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    loaded = OBJECTIVE.validate_python({"kind": "their_package.negative", "scale": 2.0})
    assert loaded.kind == "their_package.negative"
    assert OBJECTIVE.validate_python(OBJECTIVE.dump_python(loaded, mode="json")) == loaded
    with pytest.raises(ValidationError, match="has no class in it that subclasses Objective"):
        OBJECTIVE.validate_python("their_package.empty")
    sys.modules.pop("their_package", None)


def test_families_may_know_shorter_spellings() -> None:
    tasks = TypeAdapter(Tasks).validate_python("mine.jsonl")
    assert (tasks.kind, getattr(tasks, "path", None)) == ("files", "mine.jsonl")
    reward = TypeAdapter(Reward).validate_python("./mine.py:score")
    assert (reward.kind, getattr(reward, "path", None)) == ("function", "./mine.py:score")


def test_nearest_lists_what_is_known_when_nothing_is_near() -> None:
    assert nearest("clip_lo", ["clip_low", "clip_high"]) == "did you mean 'clip_low'?"
    assert nearest("zzzz", ["b", "a"]) == "known: a, b"
    assert nearest("x", []) == "known: none"
    assert nearest("x", [None, "b"]) == "known: None, b", "names that users gave may be anything"  # type: ignore[list-item]


def _integer_fields(owner: type) -> Iterator[tuple[str, Any]]:
    for name, field in vars(owner)["__pydantic_fields__"].items():
        if name != "seed" and {int} & {field.annotation, *get_args(field.annotation)}:
            yield f"{owner.__name__}.{name}", field


LAZY = {
    "average", "budget", "characters", "concurrency", "count", "decay", "demonstrations", "depth", "digits",
    "disk_mb", "early", "epochs", "epochs_after", "every", "every_steps", "fewest", "first", "hold", "holdout",
    "horizon", "initial_steps", "iterations", "jitter", "keep", "layer", "length", "limit", "max_characters",
    "max_rounds", "max_steps", "memory_mb", "micro_batch_tokens", "min_rollouts", "most", "needed", "output_kb",
    "patience", "prefill_tokens", "refresh", "repeat_count", "repeat_length", "replaced", "retries", "right",
    "rounds", "segment", "skip", "slip", "steps", "store_mb", "terms", "times", "tries", "updates", "warmup",
    "warmup_steps",
    "words", "wrong",
}  # fmt: skip
"""Counts that are limits, or steps of a loop that ends sooner: nothing is made for what is never reached."""


def test_every_count_has_a_bound() -> None:
    """Beyond it a run would take all memory or threads before it could say so."""
    from posttrain.engines import Engine
    from posttrain.recipes.tree import Recipe
    from posttrain.stages import Stage
    from tests.conformance._members import contracts

    for contract in (Engine, Stage, *contracts()):
        for kind in contract.kinds():
            contract.find(kind)
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("posttrain.")]
    classes = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    owners = [owner for owner in classes if "__pydantic_fields__" in vars(owner)]
    assert Recipe in owners
    found = [(name, field) for owner in owners for name, field in _integer_fields(owner)]
    assert len(found) > 250
    for name, field in found:
        limits = [limit for limit in field.metadata if isinstance(limit, Le | Lt)]
        assert limits, f"{name} has no largest value"
        if any(isinstance(limit, Le) and limit.le == MOST_COUNT for limit in limits):
            assert name.rpartition(".")[2] in LAZY, f"{name}: what something is made for is in component.LARGEST"


@pytest.mark.parametrize(
    ("change", "bound"),
    [
        ("rollout.n=1000000000", "10000"),
        ("tasks.size=1000000000000000000", "1000000"),
        ("threads=1000000", "1024"),
        ("evaluation.samples=1000000000", "10000"),
        ("models.policy.lora={rank: 1000000000}", "65536"),
        ("steps=1000000000000000000", "1000000000000"),
    ],
)
def test_absurd_counts_are_refused_with_their_bound(change: str, bound: str) -> None:
    with pytest.raises(UserError, match=f"less than or equal to {bound}, got"):
        override(quickstart(), [change])
