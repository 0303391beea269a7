import json
from typing import Any

import numpy as np
import pytest

from posttrain.stages.memory import pack, unpack


@pytest.mark.parametrize(
    "array",
    [np.array([0.1, np.nan, -np.inf]), np.zeros((2, 0), np.float32), np.arange(6, dtype=np.int16).reshape(2, 3)],
)
def test_arrays_come_back_bit_for_bit(array: Any) -> None:
    tree = {"a": {"b": array}, "list": [1, {"c": array}], "none": None}
    again = unpack(json.loads(json.dumps(pack(tree), allow_nan=False)))
    for found in (again["a"]["b"], again["list"][1]["c"]):
        assert found.dtype == array.dtype and found.shape == array.shape and found.tobytes() == array.tobytes()
        assert found.flags.writeable
    assert again["list"][0] == 1 and again["none"] is None


def test_what_has_no_array_is_unchanged() -> None:
    tree = {"a": [1, 2.5, "x", None, [True]], "b": {"c": {}}}
    assert unpack(pack(tree)) == pack(tree) == tree
