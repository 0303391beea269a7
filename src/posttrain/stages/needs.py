"""The signals that the parts of a stage need, and checks that the models give them, before anything is sampled."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace

from posttrain.component import Component, nearest
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.signals import BEHAVIOR_LOGP, LOGP, OLD, Signal
from posttrain.stages.context import Models


@dataclass(frozen=True, kw_only=True)
class Need:
    """A signal that a part of a stage reads, and the role whose model gives it."""

    signal: Signal
    role: str
    path: str
    """Where the part stands in the stage: ``penalties.kl``."""
    setting: str = ""
    """The setting of the part that names the role, if there is one: ``penalties.kl.role``."""
    remote: bool = False
    """Whether an endpoint gives it too."""

    def within(self, place: str) -> "Need":
        """The same with its paths from the top of the recipe."""
        setting = self.setting and f"{place}.{self.setting}"
        return replace(self, path=f"{place}.{self.path}", setting=setting)


def needs_of(path: str, part: Component | None, *, role: str, critic: str = "critic", trained: str = "") -> list[Need]:
    """The needs of a part, each with the path of the innermost part that declares it.

    `role` learns and `critic` gives its values. `trained` is the role whose forward pass the part reads, if it is
    another one. Raises `UserError` for a need that is not a signal.
    """
    if part is None:
        return []
    inner = [
        need
        for name, other in parts_of(part)
        for need in needs_of(f"{path}.{name}", other, role=role, critic=critic, trained=trained)
    ]
    own: frozenset[Signal] = getattr(part, "needs", frozenset())
    for signal in own:
        if not isinstance(signal, Signal):
            raise UserError(
                f"{path}: the needs of '{part.kind}' hold {signal!r}, and a need is a Signal: write "
                "Signal('logp', of='reference'), for example, with posttrain.signals.Signal"
            )
    givers = {s: (trained or role) if s.trained else s.computed_by(role, critic) for s in own if not s.given}
    mine = [
        Need(
            signal=signal,
            role=giver,
            path=path,
            setting=_setting(path, part, signal.of or giver),
            remote=signal in getattr(part, "remote_needs", ()),
        )
        for signal, giver in sorted(givers.items())
        if signal not in {need.signal for need in inner}
    ]
    return [*inner, *mine]


def parts_of(part: object) -> Iterator[tuple[str, Component]]:
    """The components in a component's fields, each with its dotted path."""
    for field in fields(part) if is_dataclass(part) else ():
        value = getattr(part, field.name)
        if isinstance(value, Component):
            yield field.name, value
        elif isinstance(value, Mapping):
            yield from ((f"{field.name}.{name}", one) for name, one in value.items() if isinstance(one, Component))
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield from ((f"{field.name}.{i}", one) for i, one in enumerate(value) if isinstance(one, Component))


def _setting(path: str, part: object, role: str) -> str:
    """Path of the setting of a part that names a role; empty if there is none."""
    named = [field.name for field in fields(part) if getattr(part, field.name) == role] if is_dataclass(part) else []
    return f"{path}.{named[0]}" if named else ""


def check_needs(place: str, needs: Sequence[Need], recipe_models: Mapping[str, Model], models: Models) -> None:
    """Raise `UserError` for a signal that no model gives.

    `place` is the path of the parts in the recipe. `models` are those that are loaded when a run begins; a model that
    is copied or merged later has the kind of its source.
    """
    if OLD in recipe_models:
        raise UserError(f"models.{OLD}: '{OLD}' stands for the learning model before the step; use another name")
    needs = [need.within(place) for need in needs]
    for need in needs:
        for role in sorted({need.role, need.signal.of} - {""}):
            if role not in recipe_models:
                raise UserError(_missing(need, role, recipe_models))
            _check_gives(need, role, recipe_models, models)
        if need.signal.compares:
            _check_vocabularies(need, recipe_models, models)
    _check_columns(needs)


def _missing(need: Need, role: str, known: Mapping[str, Model]) -> str:
    """The message for a role that the recipe has no model for."""
    critic = need.signal.name == "value" and not need.signal.of
    how = (
        f"models.{role}={{source: 'role:policy', head: value, trained: true}} and critic=value_clip for a critic"
        if critic
        else f"models.{role}.source=role:policy for a copy of the policy as the stage finds it"
    )
    near = nearest(role, known)
    write = [f"{need.setting}=ROLE"] * bool(need.setting) + [how]
    return (
        f"{need.path} needs a model in the role '{role}' ({need.signal}), and there is none; "
        f"{near}{'' if near.endswith('?') else '.'} Write {', or '.join(write)}, or name a model"
    )


def _check_gives(need: Need, role: str, recipe_models: Mapping[str, Model], models: Models) -> None:
    """Raise `UserError` for a model of a kind that does not give the signal."""
    model, signal = recipe_models[role], need.signal
    place = f"; or write {need.setting}=ROLE for another role" if need.setting else ""
    if model.is_remote and need.remote:
        return
    if model.is_remote:
        raise UserError(
            f"{need.path} needs {signal}, and the model in the role '{role}' is an endpoint, which returns text "
            f"only; name a model that is loaded here as models.{role}.source{place}"
        )
    policy = models[_root(role, recipe_models, models)]
    given = type(policy).given_by(model)
    if (LOGP in given and policy.compares) if signal.compares else (signal.local in given):
        return
    heads = [head for head, signals in type(policy).GIVES.items() if signal.local in signals]
    wanted = f"; models.{role}.head={heads[0]} gives it" if heads and role != "policy" else ""
    raise UserError(
        f"{need.path} needs {signal}, and the {policy.called} in the role '{role}' has a {model.head} head, which "
        f"gives {', '.join(sorted(map(str, given))) or 'nothing'}{wanted}{place}"
    )


def _check_vocabularies(need: Need, recipe_models: Mapping[str, Model], models: Models) -> None:
    """Raise `UserError` for two models with different vocabularies, which have no divergence."""
    first, second = (models[_root(role, recipe_models, models)] for role in (need.role, need.signal.of))
    sizes = first.body.vocabulary_size, second.body.vocabulary_size
    if sizes[0] != sizes[1]:
        raise UserError(
            f"{need.path} needs {need.signal}, over the whole vocabulary, between models with the same tokens; "
            f"'{need.role}' has {sizes[0]} and '{need.signal.of}' {sizes[1]}"
        )


def _root(role: str, recipe_models: Mapping[str, Model], models: Models) -> str:
    """The role of the loaded model whose kind a copied or merged model will have."""
    seen: set[str] = set()
    while role not in models and role in recipe_models and role not in seen:
        seen.add(role)
        role = recipe_models[role].source.removeprefix("role:")
    return role if role in models else "policy"


def _check_columns(needs: Sequence[Need]) -> None:
    """Raise `UserError` for role names that would put two signals into one column of the record."""
    own = {LOGP.column, BEHAVIOR_LOGP.column}
    taken: dict[str, Need] = {}
    for need in needs:
        if need.signal.trained:
            continue
        other = taken.setdefault(need.signal.column, need)
        if other.signal != need.signal or (need.signal.of and need.signal.column in own):
            raise UserError(
                f"{need.path} needs {need.signal}, whose column in the record, {need.signal.column}, is that of "
                f"another signal; give the role '{need.signal.of}' another name"
            )
