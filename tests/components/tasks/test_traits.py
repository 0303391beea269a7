"""Gold by weights, and annotators who are named by their own fault."""

from dataclasses import replace

import pytest
from pydantic import TypeAdapter

from posttrain.components.annotators.drift import Drift
from posttrain.components.annotators.length import Length
from posttrain.components.annotators.missing import Missing
from posttrain.components.annotators.noise import Noise
from posttrain.components.annotators.own_style import OwnStyle
from posttrain.components.annotators.position import Position
from posttrain.components.annotators.reversal import Reversal
from posttrain.components.annotators.several import Several
from posttrain.components.annotators.spam import Spam
from posttrain.components.annotators.taste import Taste
from posttrain.components.diagnostics.annotators import Annotators
from posttrain.components.tasks import Tasks
from posttrain.components.tasks.traits import Traits
from posttrain.datasets.traits import WEIGHTS, quality, traits
from posttrain.types import Preference

NOISE = Noise(spread=1.0)


def pairs(tasks: Traits) -> list[Preference]:
    """All preferences."""
    return [pair for task in tasks.load() for pair in task.preferences]


def test_traits_are_counted() -> None:
    found = traits("So, please note 1 + 2 = 3, Ada therefore. Clear?", "Ada")
    assert found == {"right": 1, "polite": 1, "length": 11, "name": 1, "question": 1, "keyword": 1}
    assert quality(found) == 4.0 and quality(traits("1 + 2 = 4", "Ada")) == 0.0


def test_gold_is_the_sum_of_the_weights_and_difficulty_the_margin() -> None:
    for pair in pairs(Traits(size=30)):
        gap = sum(w * ((pair.aspects[t][0] or 0) - (pair.aspects[t][1] or 0)) for t, w in WEIGHTS.items())
        assert pair.strength == pytest.approx(gap) and gap > 0 and pair.annotator is None
    hard = pairs(Traits(size=30, margins=(0.1, 1.0)))
    assert hard and all(0.1 <= (pair.strength or 0) <= 1.0 for pair in hard)
    longer = pairs(Traits(size=10, weights={"length": 1.0}))
    assert all(len(pair.chosen.split()) > len(pair.rejected.split()) for pair in longer)


def share(tasks: Traits, holds: str) -> float:
    """Share of the preferences that agree with gold, or whose chosen text was shown first, is longer, or own."""
    found = {
        "gold": lambda pair: pair.fields["gold_gap"] > 0,
        "first": lambda pair: pair.fields["first"] == "chosen",
        "longer": lambda pair: len(pair.chosen) > len(pair.rejected),
        "own": lambda pair: pair.chosen.endswith("~") > pair.rejected.endswith("~"),
        "other": lambda pair: pair.chosen.endswith("~") < pair.rejected.endswith("~"),
        "polite": lambda pair: pair.aspects["polite"][0] > pair.aspects["polite"][1],
        "blunt": lambda pair: pair.aspects["polite"][0] < pair.aspects["polite"][1],
    }[holds]
    own = pairs(tasks)
    return sum(found(pair) for pair in own) / len(own)


def test_each_fault_changes_what_it_is_about() -> None:
    tasks = Traits(size=60, margins=(0.1, 9.0))
    assert share(replace(tasks, annotators=(Noise(spread=0.0),)), "gold") == 1.0
    assert share(replace(tasks, annotators=(Reversal(),)), "gold") == 0.0
    assert 0.4 < share(replace(tasks, annotators=(Noise(spread=0.0),)), "first") < 0.6
    assert share(replace(tasks, annotators=(Position(offset=9.0),)), "first") == 1.0
    assert share(replace(tasks, annotators=(Position(offset=-9.0),)), "first") == 0.0
    assert share(replace(tasks, annotators=(Spam(always="first"),)), "first") == 1.0
    assert share(replace(tasks, annotators=(Length(slope=1e6),)), "longer") > 0.97
    for annotator, more, less in (
        (OwnStyle(bonus=9.0), "own", "other"),
        (Taste(weights={"polite": -9.0}), "blunt", "polite"),
    ):
        one = replace(tasks, annotators=(annotator,))
        assert share(one, more) > 0.3 and share(one, less) == 0.0
    drifted = [pair.fields["gold_gap"] > 0 for pair in pairs(replace(tasks, annotators=(Drift(to=-1.0, after=60),)))]
    assert all(drifted[:60]) and not any(drifted[-60:])
    whole, some = (len(pairs(replace(tasks, annotators=(one,)))) for one in (Noise(spread=0.0), Missing(rate=0.5)))
    assert 0.35 < some / whole < 0.65


def test_a_recipe_names_annotators_in_a_list() -> None:
    settings = {"kind": "traits", "size": 3, "annotators": ["reversal", ["position", {"kind": "noise", "spread": 1}]]}
    tasks = TypeAdapter(Tasks).validate_python(settings)
    assert tasks == Traits(size=3, annotators=(Reversal(), Several(parts=(Position(), NOISE))))
    assert {pair.annotator for task in tasks.load() for pair in task.preferences} == {"reversal", "position+noise"}


def test_planted_annotators_are_named_by_the_statistics() -> None:
    planted = (NOISE, Several(parts=(Position(offset=2.0), NOISE)), Spam(), Several(parts=(Reversal(), NOISE)), NOISE)
    found = Annotators(tasks=Traits(size=60, annotators=planted)).examine()
    assert {name: row["verdict"] for name, row in found.values["annotators"].items()} == {
        "noise": "reliable",
        "position+noise": "reliable, prefers the first",
        "spam": "random",
        "reversal+noise": "reversed",
        "noise 2": "reliable",
    }
