"""Signals: what may be known of a token, and which model says it.

A component declares the signals that it reads as `needs`. From them a stage finds out which models to ask; that these
are there and can answer is checked before anything is sampled, and each of them is asked once a step.

    Signal("entropy")                            of the model that learns, in the forward pass that trains it
    Signal("entropy", old=True)                  of the same model, before the updates of the step
    Signal("logp", of="reference")               of the model in another role
    Signal("reverse_kl", of="teacher")           KL(model || teacher), where the model is the one that learns

Only what comes out of the forward pass that trains (`Signal.trained`) is differentiated. Everything else is a column:
computed once before credit is given, and recorded under the name `Signal.column`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal, get_args

Name = Literal[
    "logp",
    "entropy",
    "logit",
    "value",
    "score",
    "noise",
    "velocity",
    "forward_kl",
    "reverse_kl",
    "behavior_logp",
    "advantage",
    "value_target",
]
"""What a signal says of a token, given those before it: its log-probability, the entropy of its distribution in nats,
its logit over the temperature, the value of the state before it, the score of the text up to its end, the share of
noise in a draw, a flow's velocity there ([T, D]), KL(other || model) and KL(model || other) in nats over the whole
vocabulary. The last three are given, not asked of a model: the log-probability under what sampled it, the credit that
it was given, and what a critic should have said."""

OLD: Final = "old"
"""Stands for a role where settings name one: the model that learns, as it was before the updates of the step."""


@dataclass(frozen=True, order=True, slots=True)
class Signal:
    """A number for each token, from a model. Raises `ValueError` for one that there cannot be."""

    name: Name
    of: str = ""
    """Role whose model says it or, of a divergence, with whose model the one that learns is compared; empty for the
    model that learns (of a value: its critic)."""
    old: bool = False
    """Before the updates of the step, and not differentiated. Other roles' models are always asked then."""

    def __post_init__(self) -> None:
        """Refuse names that are not known, and what makes no sense together."""
        known = get_args(Name)
        if self.name not in known:
            near = get_close_matches(self.name, known, n=1)
            raise ValueError(f"no signal '{self.name}'; " + (f"did you mean '{near[0]}'?" if near else f"{known}"))
        if self.compares and not self.of:
            raise ValueError(f"'{self.name}' compares with another model: say with which role's, of=ROLE")
        if self.given and (self.of or self.old):
            raise ValueError(f"'{self.name}' is of no model: it has neither of nor old")
        if self.of and self.old and not self.compares:
            raise ValueError(f"'{self.name}' of another role is always of before the updates; leave out old")

    def __str__(self) -> str:
        """In words, for errors."""
        said = self.name + (f" {'to' if self.compares else 'of'} '{self.of}'" if self.of else "")
        return f"{said} before the updates" if self.old else said

    @property
    def compares(self) -> bool:
        """Whether it is a divergence between the model that learns and another one."""
        return self.name in ("forward_kl", "reverse_kl")

    @property
    def given(self) -> bool:
        """Whether it is there without any model being asked."""
        return self.name in ("behavior_logp", "advantage", "value_target")

    @property
    def trained(self) -> bool:
        """Whether it comes out of the forward pass that trains; all others are columns, computed before."""
        return not (self.given or self.old) and (self.compares or not self.of)

    @property
    def itself(self) -> "Signal":
        """What the model that is asked for it calls it: its own, and of now."""
        return Signal(self.name, of=self.of if self.compares else "")

    @property
    def column(self) -> str:
        """The name under which it is recorded: ``reference_logp``, ``old_entropy``, ``value``, ..."""
        name = "kl" if self.name == "reverse_kl" and self.old else self.name
        return _COLUMNS.get(self) or f"{self.of or ('old' if self.old else 'trained')}_{name}"

    def asked(self, role: str, critic: str = "critic") -> str:
        """The role whose model is asked for it, where `role` learns and `critic` gives its values."""
        if self.of and not self.compares:
            return self.of
        return critic if self.name == "value" else role


LOGP: Final = Signal("logp")
OLD_LOGP: Final = Signal("logp", old=True)
"""At the start of the step's updates: the sampler's, unless some component needs it to be computed again."""
ENTROPY: Final = Signal("entropy")
OLD_ENTROPY: Final = Signal("entropy", old=True)
LOGIT: Final = Signal("logit")
VALUE: Final = Signal("value")
OLD_VALUE: Final = Signal("value", old=True)
"""Of the critic of the model that learns: what advantages take."""
SCORE: Final = Signal("score")
NOISE: Final = Signal("noise")
VELOCITY: Final = Signal("velocity")
BEHAVIOR_LOGP: Final = Signal("behavior_logp")
ADVANTAGE: Final = Signal("advantage")
VALUE_TARGET: Final = Signal("value_target")

_COLUMNS: Final = {
    ENTROPY: "entropy",
    OLD_VALUE: "value",
    BEHAVIOR_LOGP: "sampled_logp",
    ADVANTAGE: "advantage",
    VALUE_TARGET: "value_target",
}
"""Columns that are not named after a role or a time."""


def logp_of(role: str) -> Signal:
    """The log-probabilities of another role's model, or where the role is ``old`` of the one that learns."""
    return OLD_LOGP if role == OLD else Signal("logp", of=role)


def columns_in(needs: Iterable[Signal]) -> frozenset[Signal]:
    """Those that are computed before credit is given."""
    return frozenset(need for need in needs if not need.trained and not need.given)


def trained_in(needs: Iterable[Signal]) -> frozenset[Signal]:
    """Those that come out of the forward pass that trains."""
    return frozenset(need for need in needs if need.trained)


def roles_in(needs: Iterable[Signal]) -> frozenset[str]:
    """The roles of other models that signals are of, or compare with."""
    return frozenset(need.of for need in needs if need.of)
