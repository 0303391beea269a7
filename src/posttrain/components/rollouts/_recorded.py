"""An episode whose answers are requested once: those that are kept come from the record, also its end."""

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any

from posttrain.components.environments import (
    EnvironmentFailed,
    EpisodeChanged,
    EpisodeJournal,
    Instance,
    Observation,
    Outcome,
    Request,
    Resumes,
    Verdict,
    checked,
    contained,
    open_journal,
    plain,
)

_END = "end"


class Answers:
    """The answers of one episode so far, in order."""

    def __init__(
        self, kept: list[Any], journal: EpisodeJournal, episode: str, found: Sequence[tuple[int, Any]]
    ) -> None:
        """`kept` are those of a checkpoint, and `found` further ones of the journal."""
        self._kept, self._journal, self._episode = kept, journal, episode
        for place, entry in found:
            if place == len(kept):
                kept.append(entry)

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, place: int) -> Any:
        return self._kept[place]

    def append(self, entry: Any) -> None:
        """Add the next one."""
        self._journal.add(self._episode, len(self._kept), entry)
        self._kept.append(entry)


class Recorded(Instance):
    """An instance that performs only what the record does not have. It is started when it is first needed.

    Raises `EpisodeChanged` where the record has the answer to something else.
    """

    def __init__(
        self, instance: Instance, record: MutableSequence[Any] | Answers, roles: frozenset[str] = frozenset()
    ) -> None:
        """`roles` are those that write in the episode, whose results are kept too."""
        self._own, self._record, self._place, self._roles = instance, record, 0, sorted(roles)
        self._started = False
        self._account: Any = None
        self._first = Observation()
        self._verdict: Verdict | None = None
        self._others: Mapping[str, Verdict | None] = {}
        self._measures: Mapping[str, float] = {}

    @staticmethod
    def is_whole(record: MutableSequence[Any] | Answers) -> bool:
        """Whether the episode of a record has ended."""
        last = record[len(record) - 1] if len(record) else None
        return isinstance(last, Mapping) and ("failed" in last or last.get("asked") == _END)

    async def start(self) -> None:
        """The first observation, of the record or of the environment."""

        async def first() -> dict[str, Any]:
            return _plain(Outcome(observation=await self._begun()))

        self._first = _outcome(await self._answer("start", first)).observation

    def begin(self) -> Observation:
        """The first observation."""
        return self._first

    async def step(self, action: str) -> Outcome:
        """Perform an action."""
        return await self._performed("step", action, self._own.step)

    async def reply(self, text: str) -> Outcome:
        """Take what another role wrote."""
        return await self._performed("reply", text, self._own.reply)

    async def solution(self) -> str | None:
        """The next turn of a player who solves the task."""

        async def found() -> dict[str, Any]:
            return {"text": await self._own.solution()}

        text: str | None = (await self._answer("solution", found))["text"]
        return text

    async def finish(self) -> None:
        """Collect the verdict and the measures."""

        async def ended() -> dict[str, Any]:
            await self._own.finish()
            return {
                "verdict": _values(self._own.verdict()),
                "others": {role: _values(self._own.verdict_of(role)) for role in self._roles},
                "measures": {k: float(v) for k, v in self._own.measures().items()},
            }

        found = await self._answer(_END, ended)
        self._verdict = _verdict(found["verdict"])
        self._others = {role: _verdict(values) for role, values in found.get("others", {}).items()}
        self._measures = found["measures"]

    def verdict(self) -> Verdict | None:
        """The environment's result; None before `finish`."""
        return self._verdict

    def verdict_of(self, role: str) -> Verdict | None:
        """The environment's result for another role; None before `finish`."""
        return self._others.get(role)

    def measures(self) -> Mapping[str, float]:
        """Measurements; none before `finish`."""
        return self._measures

    async def close(self) -> None:
        """Release resources."""
        await self._own.close()

    async def _performed(self, how: str, text: str, perform: Callable[[str], Awaitable[Outcome]]) -> Outcome:
        async def outcome() -> dict[str, Any]:
            return _plain(checked(await perform(text)))

        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        return _outcome(await self._answer(f"{how} {digest}", outcome))

    async def _answer(self, asked: str, request: Callable[[], Awaitable[dict[str, Any]]]) -> Mapping[str, Any]:
        """The answer of the record, or else of the environment, which is in the record then."""
        if self._place == len(self._record):
            self._record.append({"asked": asked, **await self._requested(asked.partition(" ")[0], request)})
        entry = self._record[self._place]
        if not isinstance(entry, Mapping) or entry.get("asked") != asked:
            raise EpisodeChanged(f"answer {self._place} of the record is to another action")
        self._place += 1
        if "failed" in entry:
            raise EnvironmentFailed(entry["failed"], counted=entry["counted"])
        self._account = entry["account"]
        return entry

    async def _requested(self, method: str, request: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """What the environment answers, or how it failed."""
        try:
            with contained(method):
                if not self._started and self._place:
                    await self._begun()
                    self._own.recall(self._account)
                answer = await request()
                answer["account"] = self._own.account()
                json.dumps(answer, allow_nan=False)
            return answer
        except EnvironmentFailed as error:
            return {"failed": str(error), "counted": error.counted}

    async def _begun(self) -> Observation:
        self._started = True
        await self._own.start()
        return self._own.begin()


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of a rollout's episode from an earlier process; see `posttrain.components.environments.Record`."""

    kept: list[Any] | None
    name: Callable[[], str]
    """A name for the episode: a function of the key of its draws alone."""

    def recorded(self, instance: Instance, resumes: Resumes, roles: frozenset[str]) -> Instance:
        """The instance, answered from the record where that has an answer; itself where nothing is kept."""
        answers: list[Any] | Answers | None = self.kept
        journal = open_journal()
        if journal is not None:
            name = self.name()
            answers = Answers([] if self.kept is None else self.kept, journal, name, journal.take(name))
        if answers is None:
            return instance
        if resumes == "anew" and len(answers) and not Recorded.is_whole(answers):
            raise EpisodeChanged("an episode that has not ended cannot go on in another process")
        return Recorded(instance, answers, roles)

    def noted(self, instance: Instance, roles: frozenset[str]) -> Instance:
        """The instance, whose answers are in the journal; of a run that is computed again they come from there."""
        journal = open_journal()
        if journal is None:
            return instance
        name = self.name()
        return Recorded(instance, Answers([], journal, name, journal.whole(name)), roles)


def _values(verdict: Verdict | None) -> list[Any] | None:
    """A verdict as plain data."""
    return None if verdict is None else [float(verdict.value), bool(verdict.solved), verdict.explanation]


def _verdict(values: Sequence[Any] | None) -> Verdict | None:
    """The verdict of plain data."""
    return None if values is None else Verdict(value=values[0], solved=values[1], explanation=values[2])


def _plain(outcome: Outcome) -> dict[str, Any]:
    """An outcome as plain data."""
    request = outcome.request
    return {
        **plain(outcome),
        "request": None if request is None else [request.role, list(request.prompt), request.max_tokens],
    }


def _outcome(entry: Mapping[str, Any]) -> Outcome:
    """The outcome of an entry."""
    legal, request = entry["legal"], entry["request"]
    return Outcome(
        observation=Observation(
            text=entry["text"], state_key=entry["state_key"], legal=None if legal is None else tuple(legal)
        ),
        left=entry.get("left"),
        request=None if request is None else Request(role=request[0], prompt=tuple(request[1]), max_tokens=request[2]),
        **{name: entry[name] for name in ("reward", "done", "truncated", "valid", "latency")},
    )
