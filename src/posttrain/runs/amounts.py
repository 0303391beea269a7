"""Numbers as text: shares in percent, tokens, durations, memory, p-values, and differences of each."""

import math
from collections.abc import Callable, Sequence
from typing import Final, Literal

Unit = Literal["share", "tokens", "seconds", "bytes", "steps", "number"]

_SHARES: Final = ("accuracy", "pass_at", "pass@", "truncated", "win_rate")
_SIGNIFICANT: Final = 0.05


def unit_of(measure: str) -> Unit:
    """The unit of a measure, from its name."""
    path, _, how = measure.partition(":")
    name = path.partition("|")[0].rpartition("/")[2].rpartition(".")[2]
    if how.startswith("reached"):
        return "steps"
    if name.startswith(_SHARES) or name.endswith("accuracy"):
        return "share"
    if name in ("tokens", "tokens_to") or name.endswith("_tokens"):
        return "tokens"
    if name.startswith("seconds"):
        return "seconds"
    return "bytes" if name.endswith("_bytes") else "steps" if name == "steps" else "number"


def amount(value: float, unit: Unit) -> str:
    """A number with its unit: ``41.5 %``, ``12,345``, ``3 min 5 s``."""
    match unit:
        case "share":
            return percent(value)
        case "tokens" | "steps":
            return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:,.1f}"
        case "seconds":
            return duration(value)
        case "bytes":
            return f"{value / 2**20:,.0f} MiB"
    return plain_number(value)


def with_interval(value: float, interval: Sequence[float] | None, unit: Unit) -> str:
    """A number with its interval: ``41.5 % [34.9, 48.4]``."""
    if interval is None:
        return amount(value, unit)
    if unit == "share":
        return percent(value, interval)
    return f"{amount(value, unit)} [{amount(interval[0], unit)}, {amount(interval[1], unit)}]"


def difference(value: float, interval: Sequence[float] | None, unit: Unit) -> str:
    """A difference with its interval: ``+4.2 points [+0.4, +8.0]``. An end that is not 0 is not shown as 0."""
    scale, name, digits = _scale(unit)

    def text(number: float) -> str:
        return _signed(number / scale, digits)

    ends = f" [{text(interval[0])}, {text(interval[1])}]" if interval else ""
    return f"{text(value)}{name}{ends}"


def size(value: float, unit: Unit) -> str:
    """The size of a difference, without a sign: ``4.2 points``."""
    return difference(abs(value), None, unit).removeprefix("+")


def plain_number(value: float) -> str:
    """Four significant digits without an exponent, where the number is not extremely large or small."""
    if value != 0 and not 1e-4 <= abs(value) < 1e9:
        return f"{value:.3g}"
    places = 3 if value == 0 else max(0, 3 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def probability(p: float) -> str:
    """A p-value after ``p``: ``= 0.013``, ``< 0.001``; never rounded across 0.05."""
    if p < 0.001:
        return "< 0.001"
    digits = 2
    while (float(f"{p:.{digits}g}") < _SIGNIFICANT) != (p < _SIGNIFICANT):
        digits += 1
    return f"= {p:.{digits}g}"


def percent(share: float, interval: Sequence[float] | None = None) -> str:
    """``41.5 %``, with its interval in percent if there is one, cut at 0 and 100 %: a t interval may reach beyond."""
    if not interval:
        return f"{100 * share:.1f} %"
    low, high = (100 * min(max(end, 0.0), 1.0) for end in interval)
    return f"{100 * share:.1f} % [{low:.1f}, {high:.1f}]"


def duration(seconds: float) -> str:
    """``42.0 s``, ``3 min 5 s``, ``2 h 10 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _scale(unit: Unit) -> tuple[float, str, int | None]:
    """What one of the shown units is, its name, and its decimal places (None: by size)."""
    return {
        "share": (0.01, " points", 1),
        "tokens": (1.0, " tokens", 0),
        "seconds": (1.0, " s", 1),
        "bytes": (float(2**20), " MiB", 0),
        "steps": (1.0, " steps", 1),
        "number": (1.0, "", None),
    }[unit]


def _signed(value: float, digits: int | None) -> str:
    """A number with its sign; with more decimal places where it would be shown as 0."""
    if value == 0:
        return "0"
    if digits is None:
        return ("+" if value > 0 else "-") + plain_number(abs(value))
    shown: Callable[[int], str] = lambda places: f"{value:+,.{places}f}"  # noqa: E731
    while float(shown(digits).replace(",", "")) == 0 and digits < 9:
        digits += 1
    return shown(digits)
