"""Laws of every kind of tasks."""

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from posttrain.components.annotators.noise import Noise
from posttrain.components.annotators.position import Position
from posttrain.components.annotators.reversal import Reversal
from posttrain.components.environments.calculator import Calculator
from posttrain.components.environments.sources import Sources
from posttrain.components.tasks import Tasks
from posttrain.components.tasks.annotated import AnnotatedPairs
from posttrain.components.tasks.answered_sums import AnsweredSums
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.backtracked import Backtracked
from posttrain.components.tasks.checked_solutions import CheckedSolutions
from posttrain.components.tasks.choices import Choices
from posttrain.components.tasks.ciphers import Ciphers
from posttrain.components.tasks.circuits import Circuits
from posttrain.components.tasks.classes import Classes
from posttrain.components.tasks.code_lines import CodeLines
from posttrain.components.tasks.compared_sums import ComparedSums
from posttrain.components.tasks.concluded import Concluded
from posttrain.components.tasks.conditioned import Conditioned
from posttrain.components.tasks.corridor import Corridor
from posttrain.components.tasks.countdown import Countdown
from posttrain.components.tasks.critiques import Critiques
from posttrain.components.tasks.directed import Directed
from posttrain.components.tasks.disguised import Disguised
from posttrain.components.tasks.episodes import Episodes
from posttrain.components.tasks.exercises import Exercises
from posttrain.components.tasks.feedback_items import FeedbackItems
from posttrain.components.tasks.files import Files
from posttrain.components.tasks.first_sentences import FirstSentences
from posttrain.components.tasks.fractions import Fractions
from posttrain.components.tasks.gathered import Gathered
from posttrain.components.tasks.graded_replies import GradedReplies
from posttrain.components.tasks.greetings import Greetings
from posttrain.components.tasks.guarded_requests import GuardedRequests
from posttrain.components.tasks.guards import Guards
from posttrain.components.tasks.guessing import Guessing
from posttrain.components.tasks.halves import Halves
from posttrain.components.tasks.ideas import Ideas
from posttrain.components.tasks.identities import Identities
from posttrain.components.tasks.judge_items import JudgeItems
from posttrain.components.tasks.kernels import Kernels
from posttrain.components.tasks.knights import Knights
from posttrain.components.tasks.knowledge_graph import KnowledgeGraph
from posttrain.components.tasks.lookups import Lookups
from posttrain.components.tasks.masked import Masked
from posttrain.components.tasks.meeting_questions import MeetingQuestions
from posttrain.components.tasks.mixture import Mixture
from posttrain.components.tasks.padded_steps import PaddedSteps
from posttrain.components.tasks.pages import Pages
from posttrain.components.tasks.passages import Passages
from posttrain.components.tasks.patterns import Patterns
from posttrain.components.tasks.personal import Personal
from posttrain.components.tasks.phrased import Phrased
from posttrain.components.tasks.pictures import Pictures
from posttrain.components.tasks.planned import Planned
from posttrain.components.tasks.planted import Planted
from posttrain.components.tasks.played import Played
from posttrain.components.tasks.pleas import Pleas
from posttrain.components.tasks.policies import Policies
from posttrain.components.tasks.prefixes import Prefixes
from posttrain.components.tasks.primed import Primed
from posttrain.components.tasks.primer import Primer
from posttrain.components.tasks.principle_items import PrincipleItems
from posttrain.components.tasks.procedures import Procedures
from posttrain.components.tasks.programs import Programs
from posttrain.components.tasks.puzzles import Puzzles
from posttrain.components.tasks.queries import Queries
from posttrain.components.tasks.ranked_numbers import RankedNumbers
from posttrain.components.tasks.ranked_solutions import RankedSolutions
from posttrain.components.tasks.ranking_items import RankingItems
from posttrain.components.tasks.rare_calls import RareCalls
from posttrain.components.tasks.reaching import Reaching
from posttrain.components.tasks.reasoning_gym import ReasoningGym
from posttrain.components.tasks.recorded_shopping import RecordedShopping
from posttrain.components.tasks.records import Records
from posttrain.components.tasks.refactorings import Refactorings
from posttrain.components.tasks.referenced import Referenced
from posttrain.components.tasks.refinements import Refinements
from posttrain.components.tasks.repairs import Repairs
from posttrain.components.tasks.retrieval import Retrieval
from posttrain.components.tasks.reviewed_replies import ReviewedReplies
from posttrain.components.tasks.routes import Routes
from posttrain.components.tasks.running_sums import RunningSums
from posttrain.components.tasks.score_items import ScoreItems
from posttrain.components.tasks.scored_documents import ScoredDocuments
from posttrain.components.tasks.sentences import Sentences
from posttrain.components.tasks.shapes import Shapes
from posttrain.components.tasks.slipped_sums import SlippedSums
from posttrain.components.tasks.spelt import Spelt
from posttrain.components.tasks.stated_confidence import StatedConfidence
from posttrain.components.tasks.steered import Steered
from posttrain.components.tasks.stories import Stories
from posttrain.components.tasks.styled_programs import StyledPrograms
from posttrain.components.tasks.suites import Suites
from posttrain.components.tasks.tagged import Tagged
from posttrain.components.tasks.tagged_steps import TaggedSteps
from posttrain.components.tasks.tastes import Tastes
from posttrain.components.tasks.taught import Taught
from posttrain.components.tasks.theorems import Theorems
from posttrain.components.tasks.tool_calls import ToolCalls
from posttrain.components.tasks.tool_requests import ToolRequests
from posttrain.components.tasks.topics import Topics
from posttrain.components.tasks.traits import Traits
from posttrain.components.tasks.trec import Trec
from posttrain.components.tasks.tutoring import Tutoring
from posttrain.components.tasks.two_modes import TwoModes
from posttrain.components.tasks.two_ways import TwoWays
from posttrain.components.tasks.unpaired import Unpaired
from posttrain.components.tasks.verifier_items import VerifierItems
from posttrain.components.tasks.wanted_words import WantedWords
from posttrain.components.tasks.with_feedback import WithFeedback
from posttrain.components.tasks.word_problems import WordProblems
from posttrain.components.tasks.wordy import Wordy
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.settings.reviewed_replies import REVIEWERS

ROWS = [{"question": f"{n}+{n}=", "answer": n + n, "level": {"of": [n]}} for n in range(30)]


def files(folder: Path) -> Files:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return Files(path=str(path), columns={"domain": "level.of"}, limit=30)


def trec_files(folder: Path) -> Trec:
    texts = {
        "queries": "".join(f"q{n}\tquery {n}\n" for n in range(30)),
        "documents": "a\tfirst\nb\tsecond\n",
        "qrels": "".join(f"q{n} 0 b 1\n" for n in range(30)),
        "results": "".join(f"q{n} Q0 {d} {r} {-r} x\n" for n in range(30) for r, d in enumerate("ab")),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return Trec(**{name: str(folder / name) for name in texts})


GYM = ReasoningGym(name=("chain_sum", "list_functions"), size=8, settings={"chain_sum": {"min_terms": 3}})
"""One for all tests, since drawing from the library takes a second or two."""

EXAMPLES: dict[str, Callable[[Path], Tasks]] = {
    "files": files,
    "answered_sums": lambda _: AnsweredSums(size=30),
    "first_sentences": lambda _: FirstSentences(tasks=VerifierItems(tasks=AnsweredSums(size=30))),
    "verifier_items": lambda _: VerifierItems(tasks=AnsweredSums(size=30)),
    "arithmetic": lambda _: Arithmetic(size=30, operators="+-*", terms=(2, 4)),
    "backtracked": lambda _: Backtracked(tasks=Countdown(size=30)),
    "ciphers": lambda _: Ciphers(size=30),
    "circuits": lambda _: Circuits(size=30),
    "checked_solutions": lambda _: CheckedSolutions(size=30),
    "classes": lambda _: Classes(tasks=Patterns(size=30), pool=2),
    "compared_sums": lambda _: ComparedSums(size=30),
    "judge_items": lambda _: JudgeItems(tasks=ComparedSums(size=30), order="both"),
    "concluded": lambda _: Concluded(tasks=Critiques(candidates=10)),
    "conditioned": lambda _: Conditioned(
        tasks=Arithmetic(size=30), words={"2 numbers": "Few", "3 numbers": "Many"}, asked_as="2 numbers"
    ),
    "countdown": lambda _: Countdown(size=30, numbers=(2, 5)),
    "critiques": lambda _: Critiques(candidates=10),
    "corridor": lambda _: Corridor(size=30, cells=(3, 6)),
    "episodes": lambda _: Episodes(size=30),
    "exercises": lambda _: Exercises(size=30),
    "fractions": lambda _: Fractions(size=30),
    "gathered": lambda _: Gathered(tasks=Unpaired(tasks=WorkedSolutions(size=30))),
    "guarded_requests": lambda _: GuardedRequests(size=30),
    "guards": lambda _: Guards(size=10),
    "disguised": lambda _: Disguised(size=30),
    "theorems": lambda _: Theorems(size=30, which="proofs"),
    "planned": lambda _: Planned(size=30),
    "guessing": lambda _: Guessing(size=30),
    "halves": lambda _: Halves(size=20),
    "lookups": lambda _: Lookups(size=30),
    "meeting_questions": lambda _: MeetingQuestions(size=30),
    "masked": lambda _: Masked(tasks=Pages(size=20, what="paragraphs")),
    "pages": lambda _: Pages(size=20),
    "procedures": lambda _: Procedures(size=30),
    "identities": lambda _: Identities(size=30),
    "knights": lambda _: Knights(size=30),
    "knowledge_graph": lambda _: KnowledgeGraph(size=30),
    "padded_steps": lambda _: PaddedSteps(tasks=Arithmetic(size=30)),
    "recorded_shopping": lambda _: RecordedShopping(size=30),
    "sentences": lambda _: Sentences(size=30),
    "passages": lambda _: Passages(size=30),
    "patterns": lambda _: Patterns(size=30),
    "phrased": lambda _: Phrased(tasks=Arithmetic(size=30)),
    "planted": lambda _: Planted(size=30),
    "pleas": lambda _: Pleas(size=20),
    "played": lambda _: Played(tasks=Arithmetic(size=30, calls=True), environment=Calculator()),
    "primed": lambda _: Primed(tasks=Episodes(size=30), environment=Sources()),
    "primer": lambda _: Primer(size=30),
    "programs": lambda _: Programs(size=30),
    "puzzles": lambda _: Puzzles(names=("alphametic", "sudoku"), size=30),
    "queries": lambda _: Queries(size=30),
    "routes": lambda _: Routes(size=30),
    "running_sums": lambda _: RunningSums(size=30),
    "ranked_solutions": lambda _: RankedSolutions(size=30),
    "rare_calls": lambda _: RareCalls(tasks=Arithmetic(size=30)),
    "reaching": lambda _: Reaching(size=30),
    "slipped_sums": lambda _: SlippedSums(tasks=Arithmetic(size=30)),
    "refactorings": lambda _: Refactorings(size=30),
    "repairs": lambda _: Repairs(size=30),
    "code_lines": lambda _: CodeLines(size=30),
    "kernels": lambda _: Kernels(size=30),
    "suites": lambda _: Suites(size=30, faults=2, inputs=20),
    "taught": lambda _: Taught(tasks=Arithmetic(size=30)),
    "spelt": lambda _: Spelt(tasks=Arithmetic(size=30)),
    "records": lambda _: Records(size=30),
    "shapes": lambda _: Shapes(size=30),
    "refinements": lambda _: Refinements(of=Arithmetic(size=30)),
    "tagged_steps": lambda _: TaggedSteps(tasks=Arithmetic(size=30)),
    "tagged": lambda _: Tagged(tasks=Arithmetic(size=30)),
    "choices": lambda _: Choices(size=30),
    "tool_requests": lambda _: ToolRequests(size=30),
    "tool_calls": lambda _: ToolCalls(size=30),
    "two_ways": lambda _: TwoWays(tasks=Arithmetic(size=30)),
    "two_modes": lambda _: TwoModes(size=30),
    "feedback_items": lambda _: FeedbackItems(tasks=ReviewedReplies(size=60, annotators=REVIEWERS)),
    "scored_documents": lambda _: ScoredDocuments(size=30),
    "reviewed_replies": lambda _: ReviewedReplies(size=30, annotators=REVIEWERS),
    "prefixes": lambda _: Prefixes(size=30, annotators=(Reversal(),)),
    "traits": lambda _: Traits(size=30, annotators=(Reversal(), Position())),
    "annotated": lambda _: AnnotatedPairs(tasks=WorkedSolutions(size=30), annotators=(Reversal(), Noise())),
    "tastes": lambda _: Tastes(size=30),
    "graded_replies": lambda _: GradedReplies(size=30),
    "greetings": lambda _: Greetings(size=30),
    "pictures": lambda _: Pictures(size=12),
    "ideas": lambda _: Ideas(size=30),
    "steered": lambda _: Steered(tasks=Ideas(size=30)),
    "principle_items": lambda _: PrincipleItems(size=30),
    "ranked_numbers": lambda _: RankedNumbers(size=30),
    "ranking_items": lambda _: RankingItems(tasks=RankedNumbers(size=30)),
    "score_items": lambda _: ScoreItems(tasks=WorkedSolutions(size=30)),
    "policies": lambda _: Policies(size=30),
    "personal": lambda _: Personal(tasks=Tastes(size=30), pairs=2),
    "referenced": lambda _: Referenced(tasks=WorkedSolutions(size=30)),
    "unpaired": lambda _: Unpaired(tasks=WorkedSolutions(size=30)),
    "with_feedback": lambda _: WithFeedback(tasks=Routes(size=30)),
    "retrieval": lambda _: Retrieval(size=30),
    "wanted_words": lambda _: WantedWords(size=30),
    "directed": lambda _: Directed(tasks=Arithmetic(size=30)),
    "word_problems": lambda _: WordProblems(size=30),
    "worked_solutions": lambda _: WorkedSolutions(size=30),
    "reasoning_gym": lambda _: GYM,
    "wordy": lambda _: Wordy(tasks=Arithmetic(size=30)),
    "styled_programs": lambda _: StyledPrograms(size=30),
    "stated_confidence": lambda _: StatedConfidence(tasks=Arithmetic(size=30)),
    "stories": lambda _: Stories(size=30),
    "trec": trec_files,
    "topics": lambda _: Topics(size=30, shown=0.5),
    "tutoring": lambda _: Tutoring(size=30),
    "mixture": lambda folder: Mixture(
        sources={"own": files(folder), "made": Arithmetic(size=20)}, shares={"own": 2, "made": 1}
    ),
}
WRAPPERS = (
    "annotated",
    "masked",
    "personal",
    "steered",
    "pages",
    "primed",
    "rare_calls",
    "backtracked",
    "files",
    "trec",
    "classes",
    "concluded",
    "conditioned",
    "directed",
    "feedback_items",
    "ranking_items",
    "score_items",
    "referenced",
    "two_ways",
    "critiques",
    "slipped_sums",
    "first_sentences",
    "gathered",
    "judge_items",
    "mixture",
    "padded_steps",
    "phrased",
    "played",
    "refinements",
    "spelt",
    "stated_confidence",
    "tagged",
    "tagged_steps",
    "taught",
    "unpaired",
    "verifier_items",
    "with_feedback",
    "wordy",
)
SLOW = {"reasoning_gym"}
"""Kinds whose library takes seconds to import."""
KINDS = [pytest.param(kind, id=kind, marks=[pytest.mark.slow] if kind in SLOW else []) for kind in EXAMPLES]
SIZED = [kind for kind in KINDS if kind.values[0] not in WRAPPERS]


@pytest.fixture(scope="module")
def made() -> dict[str, Tasks]:
    """The examples that a law has had before; each is made, and its tasks drawn, once for all laws."""
    return {}


@pytest.fixture
def tasks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, made: dict[str, Tasks]) -> Tasks:
    if request.param == "reasoning_gym":
        pytest.importorskip("reasoning_gym")
    if request.param not in made:
        made[request.param] = EXAMPLES[request.param](tmp_path_factory.mktemp("tasks"))
    return made[request.param]


every_kind = pytest.mark.parametrize("tasks", KINDS, indirect=True)


def fresh(tasks: Tasks) -> Any:
    """The same source again, without what it may have kept."""
    return replace(tasks)  # type: ignore[type-var]


def test_every_kind_has_an_example() -> None:
    assert sorted(EXAMPLES) == Tasks.kinds()


@every_kind
def test_load_gives_the_same_tasks_with_unique_keys(tasks: Tasks) -> None:
    loaded = tasks.load()
    assert len(loaded) > 5
    assert len({task.key for task in loaded}) == len(loaded)
    assert all(task.key and task.prompt for task in loaded)
    assert list(fresh(tasks).load()) == list(loaded)


@every_kind
def test_tasks_are_what_json_can_hold(tasks: Tasks) -> None:
    for task in tasks.load():
        json.dumps([task.prompt, dict(task.fields)], allow_nan=False).encode()
        assert task.answer is None or isinstance(task.answer, str)
        assert isinstance(task.domain, str)


@every_kind
def test_round_trips(tasks: Tasks) -> None:
    adapter: TypeAdapter[Tasks] = TypeAdapter(Tasks)
    tasks.load()  # what is kept of it is no setting
    text = adapter.dump_json(tasks)
    assert adapter.validate_json(text) == tasks
    assert adapter.dump_json(adapter.validate_json(text)) == text
    assert pickle.loads(pickle.dumps(tasks)) == tasks


@every_kind
def test_describe_states_how_many(tasks: Tasks) -> None:
    assert f"{len(tasks.load()):,} " in tasks.describe()


@pytest.mark.parametrize("tasks", SIZED, indirect=True)
def test_a_larger_set_begins_with_the_same_tasks(tasks: Any) -> None:
    small = list(tasks.load())
    assert list(replace(tasks, size=tasks.size + 7).load())[: len(small)] == small


@pytest.mark.parametrize("tasks", SIZED, indirect=True)
def test_another_seed_gives_other_tasks(tasks: Any) -> None:
    asked = [[(t.prompt, t.demonstrations) for t in made.load()] for made in (replace(tasks, seed=1000), tasks)]
    assert asked[0] != asked[1]


def test_a_bare_kind_is_itself_and_other_text_is_a_path() -> None:
    adapter: TypeAdapter[Tasks] = TypeAdapter(Tasks)
    assert adapter.validate_python("arithmetic") == Arithmetic()
    assert adapter.validate_python("mine.jsonl") == Files(path="mine.jsonl")
