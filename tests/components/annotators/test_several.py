"""Several faults of one annotator."""

from random import Random
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from posttrain.components.annotators import Annotators, Shown, named
from posttrain.components.annotators.missing import Missing
from posttrain.components.annotators.noise import Noise
from posttrain.components.annotators.position import Position
from posttrain.components.annotators.reversal import Reversal
from posttrain.components.annotators.several import Several

LIST: TypeAdapter[Any] = TypeAdapter(Annotators)


def test_faults_follow_one_another() -> None:
    shown = Shown(texts=("a", "b"))
    one, other = Several(parts=(Position(offset=2.0), Reversal())), Several(parts=(Reversal(), Position(offset=2.0)))
    assert one.opinion(0.5, shown, Random(0)) == -2.5 and other.opinion(0.5, shown, Random(0)) == 1.5
    found = [Several(parts=(Missing(rate=0.5), Reversal())).opinion(1.0, shown, Random(i)) for i in range(20)]
    assert set(found) == {None, -1.0}


def test_lists_in_a_list_are_several_faults_of_one_annotator() -> None:
    found = LIST.validate_python(
        [{"kind": "noise", "spread": 0}, ["position", {"kind": "noise", "spread": 1.0}], {"kind": "noise", "spread": 0}]
    )
    assert found == (Noise(spread=0.0), Several(parts=(Position(), Noise(spread=1.0))), Noise(spread=0.0))
    assert [name for name, _ in named(found)] == ["noise", "position+noise", "noise 2"]


@pytest.mark.parametrize("given", [3, "noise", {"kind": "noise"}])
def test_what_is_no_list_is_refused(given: object) -> None:
    with pytest.raises(ValidationError, match=r"a list with an entry for each of them.*got.*write \[noise"):
        LIST.validate_python(given)
