"""Numbers that follow the model: a setting that is written ``auto`` in a recipe.

In a recipe's tree it is the text ``auto``. In Python it is `AUTO_RATE` or `AUTO_COUNT`, which are numbers, so that
fields keep their types. A run replaces them by ordinary numbers before anything reads them (`posttrain.runs.fitting`).
"""

from typing import Annotated, Any, Final

from pydantic import Field, PlainSerializer, PositiveFloat, PositiveInt, ValidatorFunctionWrapHandler, WrapValidator


class _AutoFloat(float):
    """A float that stands for ``auto``."""


class _AutoInt(int):
    """An integer that stands for ``auto``."""


AUTO_RATE: Final[float] = _AutoFloat(-1.0)
"""``auto`` as a learning rate or a share."""
AUTO_COUNT: Final[int] = _AutoInt(-1)
"""``auto`` as a number of tokens."""


def is_auto(value: object) -> bool:
    """Whether a number stands for ``auto``."""
    return isinstance(value, _AutoFloat | _AutoInt)


def _or(auto: float) -> WrapValidator:
    """Reads ``auto`` as a number that stands for it."""

    def read(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        written = isinstance(value, str) and value == "auto"
        return auto if written or is_auto(value) else handler(value)

    return WrapValidator(read)


def _text(value: float) -> Any:
    return "auto" if is_auto(value) else value


Rate = Annotated[PositiveFloat, _or(AUTO_RATE), PlainSerializer(_text)]
"""A positive number, or ``auto``."""
Share = Annotated[float, Field(ge=0.0, le=1.0), _or(AUTO_RATE), PlainSerializer(_text)]
"""A number in [0, 1], or ``auto``."""
Count = Annotated[PositiveInt, Field(le=100_000_000), _or(AUTO_COUNT), PlainSerializer(_text)]
"""A positive integer, or ``auto``."""
