"""Arrays of kernels: their form, what is drawn, and how they are compared."""

import numpy as np
import pytest

from posttrain.grading.kernel_values import ITEMS, Array, cases_of, difference, drawn, packed, unpacked


def array(dtype: str, *values: float) -> Array:
    return Array(dtype, np.array(values, "<f4" if dtype == "bfloat16" else ITEMS[dtype]))


@pytest.mark.parametrize("dtype", ITEMS)
def test_arrays_travel_to_the_bit(dtype: str) -> None:
    (own,) = drawn([(dtype, (3, 5))], np.random.default_rng(1))
    assert isinstance(own, Array)
    found = unpacked(packed(own))
    assert found is not None and found.dtype == dtype and np.array_equal(found.values, own.values)
    assert not difference(packed(own), own, 0.0)


def test_tolerance_is_a_share_of_the_largest_expected_value() -> None:
    wanted = array("float32", 10.0, 0.0, -2.0)
    assert not difference(packed(array("float32", 10.0, 0.0009, -2.0)), wanted, 1e-4)
    assert difference(packed(array("float32", 10.0, 0.0011, -2.0)), wanted, 1e-4) == "1 of 3 values differ"
    zeros = array("float32", 0.0, 0.0)
    assert not difference(packed(array("float32", 9e-8, 0.0)), zeros, 1e-4)
    assert difference(packed(array("float32", 2e-7, 0.0)), zeros, 1e-4)


def test_what_is_not_finite_is_equal_to_itself_only() -> None:
    wanted = array("float64", np.inf, np.nan, 1.0)
    assert not difference(packed(wanted), wanted, 0.1)
    for other in ((np.nan, np.nan, 1.0), (np.inf, 1.0, 1.0), (-np.inf, np.nan, 1.0), (1e300, np.nan, 1.0)):
        assert difference(packed(array("float64", *other)), wanted, 0.1) == "1 of 3 values differ"


def test_dtype_and_shape_must_be_equal() -> None:
    wanted = array("float32", 1.0, 2.0)
    assert "float64[2] in place of float32[2]" in difference(packed(array("float64", 1.0, 2.0)), wanted, 1.0)
    assert "in place of" in difference(packed(Array("float32", np.ones((2, 1), "<f4"))), wanted, 1.0)
    assert difference(packed(array("int32", 1, 3)), array("int32", 1, 2), 0.0) == "1 of 2 values differ"


@pytest.mark.parametrize(
    "found",
    [
        *(None, 3, [], "array", ["array"], ["array", "float32", [2], "AAAA"], ["array", "float32", [-1], ""]),
        *(["array", "float32", [True], "AAAAAA=="], ["array", "complex64", [0], ""], ["array", "float32", [1], "!"]),
        *(["array", "float32", [1 << 40], ""], ["number", 1.0], ["array", "float32", [1] * 9, "AAAAAA=="]),
    ],
)
def test_claims_that_are_no_array_equal_nothing(found: object) -> None:
    assert unpacked(found) is None and difference(found, array("float32", 1.0), 1.0) == "no array"


@pytest.mark.parametrize(
    "inputs",
    [
        *(None, [], "float32[3]", [[]], ["float32[3]"], [["float32"]], [["float8[3]"]], [["float32[0]"]], [[None]]),
        *([["float32[9999,9999]"]], [["float32[3,]"]], [["float32[1]"]] * 33, {"a": 1}),
    ],
)
def test_inputs_of_another_form_are_refused(inputs: object) -> None:
    with pytest.raises(ValueError, match="inputs"):
        cases_of(inputs)


def test_inputs_are_read() -> None:
    assert cases_of([["float32[3, 17]", 2, 0.5, True]]) == [[("float32", (3, 17)), 2, 0.5, True]]
