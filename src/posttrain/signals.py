"""Signals: numbers of each token, and the models that compute them.

A component declares the signals that it reads as `needs`. From them a stage finds the models to evaluate. Before
anything is sampled it checks that these exist and compute the signals. Each model is evaluated once per step.

    Signal("entropy")                            of the model that learns, in the forward pass that trains it
    Signal("entropy", old=True)                  of the same model, before the updates of the step
    Signal("logp", of="reference")               of the model in another role
    Signal("reverse_kl", of="teacher")           KL(model || teacher) of the model that learns
    Signal("embedding")                          [T, E] projection of the model's last states
    Signal("shown", old=True)                    the embedding of the task's demonstration

Only signals of the forward pass that trains (`Signal.trained`) are differentiated. All others are columns: computed
once before the advantages, and recorded under the name `Signal.column`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal, get_args

Name = Literal[
    "logp",
    "entropy",
    "certainty",
    "self_certainty",
    "logit",
    "value",
    "score",
    "scores",
    "state",
    "noise",
    "velocity",
    "embedding",
    "shown",
    "shown_only",
    "in_shown",
    "label_logp",
    "latent_logp",
    "latent_error",
    "forward_kl",
    "reverse_kl",
    "behavior_logp",
    "advantage",
    "value_target",
]
"""The quantity, for a token given those before it: its log-probability, the entropy of its distribution p in nats, KL(p
|| uniform) and KL(uniform || p) over the tokens that are possible, its logit over the temperature, the value of the
state before it, the score of the text up to its end, all outputs of a reward head for it ([T, O]), the last hidden
state after it ([T, D]), the share of noise in a draw, a flow's velocity ([T, D]), the projection of the state after it
([T, E]), KL(other || model) and KL(model || other) in nats over the whole vocabulary. Three are of latent
steps: the log-probability of a step's label, as of any token, and, 0 for tokens of text, the mean over dimensions of
the log-density of its vector, and of its expected squared error. Three are of the first
demonstration of the rollout's task, the same for all tokens of a rollout, and computed before its updates: its
embedding ([T, E]), that of what it has and the rollout has not ([T, E]), and whether the token is in what both have;
NaN without a demonstration. The last three are not computed by a model: the behavior log-probability, the advantage,
and the critic's target."""

OLD: Final = "old"
"""In settings that name a role: the model that learns, before the updates of the step."""


@dataclass(frozen=True, order=True, slots=True)
class Signal:
    """A number per token, from a model. Raises `ValueError` for an invalid combination."""

    name: Name
    of: str = ""
    """Role of the model that computes it or, for a divergence, of the model that is compared with the one that learns;
    empty for the model that learns (for a value: its critic)."""
    old: bool = False
    """Before the updates of the step, and not differentiated. Other roles' models are always evaluated then."""

    def __post_init__(self) -> None:
        """Refuses unknown names and invalid combinations."""
        known = get_args(Name)
        if self.name not in known:
            near = get_close_matches(self.name, known, n=1)
            raise ValueError(f"no signal '{self.name}'; " + (f"did you mean '{near[0]}'?" if near else f"{known}"))
        if self.compares and not self.of:
            raise ValueError(f"'{self.name}' compares with another model: give its role, of=ROLE")
        if self.given and (self.of or self.old):
            raise ValueError(f"'{self.name}' is not computed by a model: it has neither of nor old")
        if self.of and self.old and not self.compares:
            raise ValueError(f"'{self.name}' of another role is always computed before the updates; leave out old")
        if self.shows and not self.old:
            raise ValueError(f"'{self.name}', of a demonstration, is computed before the updates: set old=True")

    def __str__(self) -> str:
        """The signal in words, for errors."""
        text = self.name + (f" {'to' if self.compares else 'of'} '{self.of}'" if self.of else "")
        return f"{text} before the updates" if self.old else text

    @property
    def compares(self) -> bool:
        """Whether it is a divergence between the model that learns and another one."""
        return self.name in ("forward_kl", "reverse_kl")

    @property
    def shows(self) -> bool:
        """Whether it is of the demonstration of the rollout's task."""
        return self.name in ("shown", "shown_only", "in_shown")

    @property
    def given(self) -> bool:
        """Whether it is available without evaluating a model."""
        return self.name in ("behavior_logp", "advantage", "value_target")

    @property
    def trained(self) -> bool:
        """Whether it comes from the forward pass that trains; all others are columns, computed before."""
        return not (self.given or self.old) and (self.compares or not self.of)

    @property
    def local(self) -> "Signal":
        """The signal as the model that computes it returns it: without its role, at the current weights."""
        if self.shows:
            return self
        return Signal(self.name, of=self.of if self.compares else "")

    @property
    def column(self) -> str:
        """The name under which it is recorded: ``reference_logp``, ``old_entropy``, ``value``, ..."""
        name = "kl" if self.name == "reverse_kl" and self.old else self.name
        return _COLUMNS.get(self) or f"{self.of or ('old' if self.old else 'trained')}_{name}"

    def computed_by(self, role: str, critic: str = "critic") -> str:
        """The role whose model computes it, where `role` learns and `critic` gives its values."""
        if self.of and not self.compares:
            return self.of
        return critic if self.name == "value" else role


LOGP: Final = Signal("logp")
OLD_LOGP: Final = Signal("logp", old=True)
"""At the start of the step's updates: the sampler's, unless a component needs it recomputed."""
ENTROPY: Final = Signal("entropy")
OLD_ENTROPY: Final = Signal("entropy", old=True)
CERTAINTY: Final = Signal("certainty")
OLD_CERTAINTY: Final = Signal("certainty", old=True)
SELF_CERTAINTY: Final = Signal("self_certainty")
OLD_SELF_CERTAINTY: Final = Signal("self_certainty", old=True)
LOGIT: Final = Signal("logit")
VALUE: Final = Signal("value")
OLD_VALUE: Final = Signal("value", old=True)
"""Of the critic of the model that learns; the values that advantages use."""
SCORE: Final = Signal("score")
SCORES: Final = Signal("scores")
STATE: Final = Signal("state")
NOISE: Final = Signal("noise")
VELOCITY: Final = Signal("velocity")
EMBEDDING: Final = Signal("embedding")
OLD_EMBEDDING: Final = Signal("embedding", old=True)
OLD_SCORE: Final = Signal("score", old=True)
SHOWN: Final = Signal("shown", old=True)
SHOWN_ONLY: Final = Signal("shown_only", old=True)
IN_SHOWN: Final = Signal("in_shown", old=True)
LABEL_LOGP: Final = Signal("label_logp")
LATENT_LOGP: Final = Signal("latent_logp")
LATENT_ERROR: Final = Signal("latent_error")
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
    """The signals that are computed before the advantages."""
    return frozenset(need for need in needs if not need.trained and not need.given)


def trained_in(needs: Iterable[Signal]) -> frozenset[Signal]:
    """The signals of the forward pass that trains."""
    return frozenset(need for need in needs if need.trained)


def roles_in(needs: Iterable[Signal]) -> frozenset[str]:
    """The roles of other models in `needs`."""
    return frozenset(need.of for need in needs if need.of)
