"""Documents, queries and identifiers."""

import re

from posttrain.components.tasks.retrieval import CODES, WORDS, Retrieval


def test_forms_of_the_same_document_have_its_identifier() -> None:
    document, pseudo, query = (Retrieval(size=64, form=form).load() for form in ("document", "pseudo", "query"))
    for a, b, c in zip(document, pseudo, query, strict=True):
        assert a.answer == b.answer == c.answer == c.demonstrations[0]
        assert re.fullmatch(r"(<[0-3]-[0-7]>){4}", a.answer or "")
        words = str(a.prompt)[2:-1].split()
        assert len(words) == 10 and set(str(b.prompt)[2:-1].split()) <= set(words)
        assert len(set(str(c.prompt)[2:-1].split()) - set(words)) <= 1, "one word of a query is drawn from all"
    assert len(CODES) == 32 and len(WORDS) == 100


def test_every_identifier_is_ranked_once_and_most_relevant_ones_early() -> None:
    tasks = Retrieval(size=64).load()
    identifiers = {task.answer for task in tasks}
    assert 50 < len(identifiers) <= 64, "some documents may share one"
    ranks = [task.fields["ranked"].index(task.answer) for task in tasks]
    assert all(len(task.fields["ranked"]) == len(set(task.fields["ranked"])) == len(identifiers) for task in tasks)
    assert sum(rank < 6 for rank in ranks) > 32


def test_another_corpus_has_other_documents() -> None:
    assert Retrieval(corpus=1, form="document").load()[0].prompt != Retrieval(form="document").load()[0].prompt
