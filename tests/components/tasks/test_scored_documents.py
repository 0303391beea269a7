"""Queries with documents to score: relevance by attributes, demonstrations, and queries apart."""

from posttrain.components.tasks.scored_documents import ScoredDocuments


def shared(prompt: str) -> int:
    query, document = prompt.removesuffix(":").split()
    return sum(a == b for a, b in zip(query, document, strict=True))


def test_relevant_documents_share_every_attribute() -> None:
    for task in ScoredDocuments(size=300).load():
        prompts, relevant = task.fields["prompts"], task.fields["relevant"]
        assert len(prompts) == len(relevant) == 6 and 2 <= sum(relevant) <= 4
        assert relevant == [shared(prompt) == 3 for prompt in prompts]
        assert sum(shared(prompt) == 2 for prompt in prompts) >= 1, "others that a search by words finds as well"
    assert len({task.prompt for task in ScoredDocuments(size=300).load()}) == 300


def test_scores_to_imitate_are_coarse() -> None:
    tasks = ScoredDocuments(size=200, each="document", noise=0.0).load()
    assert len(tasks) == 1200
    for task in tasks:
        compared, score = task.demonstrations[0].split("\n#### ")
        assert shared(str(task.prompt)) == sum(a == b for a, b in compared.split())
        assert int(score) == (1, 3, 7, 7)[shared(str(task.prompt))]
    noisy = ScoredDocuments(size=200, each="document").load()
    moved = [abs(int(t.answer or "") - (1, 3, 7, 7)[shared(str(t.prompt))]) for t in noisy]
    assert set(moved) == {0, 1} and 0.4 < sum(moved) / len(moved) < 0.6


def test_a_task_for_each_document_names_its_query_and_whether_it_is_relevant() -> None:
    """So that a reward may draw and score the documents of a query together."""
    tasks = ScoredDocuments(size=100, each="document").load()
    whole = ScoredDocuments(size=100).load()
    by_query: dict[str, list[tuple[str, bool]]] = {}
    for task in tasks:
        by_query.setdefault(task.fields["query"], []).append((str(task.prompt), task.fields["relevant"]))
    assert len({task.key for task in tasks}) == len(tasks)
    wanted = [[*zip(task.fields["prompts"], task.fields["relevant"], strict=True)] for task in whole]
    assert [*by_query.values()] == wanted
