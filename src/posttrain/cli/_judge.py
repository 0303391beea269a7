"""A judge from the command line: what JUDGE stands for, its models, and the store of its verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from posttrain.audit.judges import Judge, Shown, Verdict
from posttrain.component import nearest
from posttrain.errors import UserError
from posttrain.errors.foreign import read_text

if TYPE_CHECKING:
    from posttrain.audit.judges.rewarded import RewardJudge
    from posttrain.components.rewards import Reward
    from posttrain.models import Model
    from posttrain.runs.verdict_store import VerdictStore
    from posttrain.serving.client import Remote
    from posttrain.types import Task

PLANTED = "planted:"
_BATCH = 512
"""Verdicts of one transaction of the store."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A judge that is ready, and what identifies it."""

    judge: Judge
    fingerprint: Sequence[Any]
    """JSON: its reward with all settings, and its models."""
    remotes: "Sequence[Remote]" = ()
    """Its endpoints."""

    @property
    def scorer(self) -> "RewardJudge":
        """The judge as a reward. Raises `UserError` for a simulated one."""
        from posttrain.audit.judges.rewarded import RewardJudge

        if not isinstance(self.judge, RewardJudge):
            raise UserError(f"{self.judge.name} compares texts of its own only; name a reward, a model or an endpoint")
        return self.judge


@dataclass(slots=True)
class Kept:
    """A judge whose verdicts are looked up in a store first, and kept there."""

    judge: Judge
    store: "VerdictStore"
    fingerprint: Sequence[Any]
    asked: int = field(default=0)
    """Verdicts that were not in the store."""

    @property
    def name(self) -> str:
        """The judge's."""
        return self.judge.name

    def verdicts(self, shown: Sequence[Shown]) -> list[Verdict]:
        """As the judge's, each of them asked for once."""
        keys = [self._key(one) for one in shown]
        known = self.store.find(keys)
        missing = [(key, one) for key, one in dict(zip(keys, shown, strict=True)).items() if key not in known]
        for start in range(0, len(missing), _BATCH):
            part = missing[start : start + _BATCH]
            found = self.judge.verdicts([one for _, one in part])
            self.asked += len(found)
            values = {key: as_json(verdict) for (key, _), verdict in zip(part, found, strict=True)}
            # A failed request is asked again the next time.
            self.store.add({key: value for key, value in values.items() if value["margin"] is not None})
            known |= values
        return [Verdict(**known[key]) for key in keys]

    def _key(self, one: Shown) -> bytes:
        from posttrain.runs.verdict_store import digest

        task = [one.task.prompt, one.task.answer, {k: str(v) for k, v in sorted(one.task.fields.items())}]
        return digest("verdict", self.fingerprint, task, one.first, one.second, one.repeat)


def as_json(verdict: Verdict) -> dict[str, Any]:
    """A verdict as a JSON value."""
    return {"margin": verdict.margin, "chance": verdict.chance, "reply": verdict.reply, "fault": verdict.fault}


def open_judge(
    text: str,
    settings: Sequence[str] = (),
    models: Sequence[str] = (),
    device: str = "auto",
    *,
    shared: bool = False,
) -> Opened:
    """The judge of a command. Raises `UserError` for what is none.

    Models that are `shared` by several judges are left out of those that use none.
    """
    if text.startswith(PLANTED):
        return _planted(text.removeprefix(PLANTED), settings, () if shared else models)
    reward, given = _parts(text, settings)
    models = () if shared and not reward.roles else models
    given |= {role: _model(role, source, reward) for role, source in _sources(reward, models).items()}
    missing = sorted(reward.roles - given.keys())
    if missing:
        raise UserError(
            f"the reward {reward.kind} requires a model in the role '{missing[0]}'; name one: --model SOURCE, a "
            f"bundled name, a folder, a run, or an address (of several roles --model {missing[0]}=SOURCE)"
        )
    return _served(text, reward, given, device)


def _planted(fault: str, settings: Sequence[str], models: Sequence[str]) -> Opened:
    from posttrain.audit.judges.planted import FAULTS, Planted

    if fault not in FAULTS:
        raise UserError(f"no planted judge '{fault}'; {nearest(fault, FAULTS)}")
    if settings or models:
        raise UserError(f"a planted judge has no settings and no models; leave {[*settings, *models][0]} out")
    return Opened(Planted(fault), ["planted", fault])


def _parts(text: str, settings: Sequence[str]) -> "tuple[Reward, dict[str, Model]]":
    """The reward, and the models that the text itself names."""
    from posttrain.cli._component import component, made_reward
    from posttrain.components.rewards import Reward
    from posttrain.models import Model, is_url

    if text.endswith((".yaml", ".yml")):
        if settings:
            raise UserError(f"{text} holds the settings of its reward; change it there, and leave {settings[0]} out")
        return _from_file(Path(text))
    if is_url(text):
        return component(Reward, "judge", settings), {"judge": Model(source=text)}
    if Path(text).expanduser().is_dir():
        reward = component(Reward, "reward_model", settings)
        return reward, {"reward": _model("reward", text, reward)}
    return made_reward(text, list(settings)), {}


def _from_file(path: Path) -> "tuple[Reward, dict[str, Model]]":
    """A YAML file with ``reward`` and ``models``; code that it names needs consent."""
    from pydantic import TypeAdapter, ValidationError

    from posttrain.component.user_code import accept, find_code, unread
    from posttrain.components.rewards import Reward
    from posttrain.models import Model
    from posttrain.recipes.files import named_code
    from posttrain.recipes.plain_yaml import load_yaml

    try:
        tree, _ = load_yaml(read_text(path), str(path))
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path} cannot be read as YAML: {error}") from None
    if not isinstance(tree, Mapping) or "reward" not in tree or tree.keys() - {"reward", "models"}:
        raise UserError(f"{path}: a judge is written as reward: ... and models: {{ROLE: {{source: ...}}}}, no more")
    models = tree.get("models") or {}
    if not isinstance(models, Mapping):
        raise UserError(f"{path}: models are written {{ROLE: {{source: ...}}}}")
    try:
        with unread():
            unread_reward = TypeAdapter(Reward).validate_python(tree["reward"])
            named = [find_code(spelling) for spelling in named_code(unread_reward)]
        accept(named, str(path))
        reward = TypeAdapter(Reward).validate_python(tree["reward"])
        read = TypeAdapter(dict[str, Model]).validate_python(
            {role: {"source": model} if isinstance(model, str) else model for role, model in models.items()}
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UserError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    return reward, read


def _sources(reward: "Reward", models: Sequence[str]) -> dict[str, str]:
    """Sources by role of --model; one without a role is for the only role of the reward."""
    found: dict[str, str] = {}
    for text in models:
        role, equals, source = text.partition("=")
        if not equals or role not in reward.roles:
            if len(reward.roles) != 1:
                roles = ", ".join(sorted(reward.roles)) or "none"
                raise UserError(f"--model {text}: the reward {reward.kind} requires models in the roles: {roles}")
            role, source = min(reward.roles), text
        found[role] = source
    return found


def _model(role: str, source: str, reward: "Reward") -> "Model":
    from pydantic import ValidationError

    from posttrain.models import Model
    from posttrain.models.sources import find_model
    from posttrain.signals import Signal

    scores = Signal("score", of=role) in reward.needs
    try:
        model = Model(source=source, head="reward" if scores else "language")
    except ValidationError as error:
        raise UserError(f"--model {source}: {error.errors(include_url=False)[0]['msg']}") from None
    if scores:
        folder = find_model(source, role)
        if not (folder / "reward_head.safetensors").is_file():
            raise UserError(
                f"{source} has no model with a reward head{_of_run(Path(source))}; train one with posttrain run "
                "reward_model, or take a judge that needs none (likelihood, preference_model)"
            )
    return model


def _of_run(folder: Path) -> str:
    """What to name in place of the policy of a run, where the run has a reward model too."""
    from posttrain.models.sources import has_role

    run = folder.expanduser().parent
    return f": it is the policy of {run}; name that run for its reward model" if has_role(run, "reward") else ""


def _served(name: str, reward: "Reward", models: "Mapping[str, Model]", device: str) -> Opened:
    """The reward with its models loaded, and endpoints connected."""
    from posttrain.audit.judges.rewarded import RewardJudge
    from posttrain.engines import Sampler, Server, wait_for
    from posttrain.models import Endpoint
    from posttrain.runs.changes import digest_of_model

    reward.prepare()
    servers: dict[str, Server] = {}
    remotes: dict[str, Any] = {}
    prints: dict[str, Any] = {}
    for role, model in sorted(models.items()):
        if model.is_remote:
            from posttrain.runs.verdict_store import shared_store
            from posttrain.serving.client import Remote

            remotes[role] = Remote(role, model.source, model.endpoint or Endpoint())
            remotes[role].answers = shared_store(remotes[role])
            wait_for(remotes[role].check())
            prints[role] = [model.source, (model.endpoint or Endpoint()).model]
        else:
            from posttrain.engines.native import Native
            from posttrain.policies.loading import folder_of, load_policy
            from posttrain.runs.launch import find_device

            policy = load_policy(role, model, {}, find_device(device))  # type: ignore[arg-type]
            servers[role] = Native().serve(policy, 0)
            prints[role] = digest_of_model(folder_of(role, model))

    def samplers(key: str) -> dict[str, Sampler]:
        from posttrain.serving.sampler import RemoteSampler

        own: dict[str, Sampler] = {role: server.bind("judge", key) for role, server in servers.items()}
        return own | {role: RemoteSampler(remote, "judge", key) for role, remote in remotes.items()}

    settings = repr(reward) if not reward.fingerprint else [repr(reward), dict(reward.fingerprint)]
    judge = RewardJudge(name, reward, samplers, frozenset(servers))
    return Opened(judge, [settings, prints], list(remotes.values()))


def kept(opened: Opened, store: Path | None) -> tuple[Judge, "Kept | None"]:
    """The judge, and the same with its verdicts in a store where one is named."""
    if store is None:
        return opened.judge, None
    from posttrain.runs.verdict_store import StoredAnswers, VerdictStore

    values = VerdictStore(store)
    for remote in opened.remotes:
        # Answers are kept one by one, so that a kill in the middle of a batch loses none of them.
        remote.answers = StoredAnswers(values, remote.url)
    with_store = Kept(opened.judge, values, opened.fingerprint)
    return with_store, with_store


def show_endpoints(opened: Opened) -> dict[str, Any]:
    """What the endpoints of a judge have cost, by role; printed to the standard error, with the waits, and with the
    number of answers that were cut.
    """
    if cut := len(getattr(opened.judge, "cut", ())):
        click.echo(f"answers beyond the judge's context, scored by their first tokens: {cut}", err=True)
    found = {}
    for remote in opened.remotes:
        for note in remote.take_notes():
            click.echo(note, err=True)
        if remote.spending.answers:
            click.echo(f"{remote.role}: {remote.spending.answers:,} answers, {remote.spending.summary}", err=True)
        found[remote.role] = remote.spending.as_json
    return found


def tasks_of(text: str) -> "list[Task]":
    """The tasks of a file or another source."""
    from pydantic import TypeAdapter

    from posttrain.components.tasks import Tasks
    from posttrain.recipes.overrides import parse_value

    source: Tasks = TypeAdapter(Tasks).validate_python(parse_value(text))
    return list(source.load())


def principled(tasks: "Sequence[Task]", principle: Path | None) -> "list[Task]":
    """The tasks with the principle of a file in their prompts."""
    from posttrain.audit.judges import under

    if principle is None:
        return list(tasks)
    text = read_text(principle).strip()
    if not text:
        raise UserError(f"{principle} is empty; write what makes an answer better")
    return [under(task, text) for task in tasks]
