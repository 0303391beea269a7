"""Questions about a graph: their facts are in it, one entity is missing, options are look-alikes."""

from posttrain.components.tasks.knowledge_graph import RELATIONS, KnowledgeGraph, _counts, _facts, _name

TASKS = KnowledgeGraph(size=200).load()
FACTS = {
    (_name(subject), RELATIONS[r], _name(found))
    for subject, row in enumerate(_facts(0, 60, 4))
    for r, found in enumerate(row)
}


def test_facts_are_in_the_graph_and_the_demonstration_states_them() -> None:
    for task in TASKS:
        facts = [tuple(fact) for fact in task.fields["facts"]]
        assert set(facts) <= FACTS and len(facts) == task.fields["hops"]
        stated = " ".join(f"{a}-{r}-{b}" for a, r, b in facts)
        assert task.demonstrations == (f" {stated}\n#### {task.answer}",)


def test_the_masked_entity_is_the_only_one_missing() -> None:
    for task in TASKS:
        shown = str(task.prompt).split("\n")[0].removeprefix("Q: ")
        stated = task.demonstrations[0].split("\n")[0].strip()
        assert shown.replace("?", task.fields["masked"]) == stated
        options = task.fields["options"]
        assert options["ABCD".index(task.answer or "")] == task.fields["masked"] and len(set(options)) == 4


def test_look_alikes_keep_the_relation_and_contradict_a_fact() -> None:
    """Each wrong option is an object of the relation before the masked entity, but not of its subject."""
    for task in TASKS:
        before = next(fact for fact in task.fields["facts"] if fact[2] == task.fields["masked"])
        objects = {b for _, r, b in FACTS if r == before[1]}
        wrong = set(task.fields["options"]) - {task.fields["masked"]}
        assert wrong <= objects and all((before[0], before[1], option) not in FACTS for option in wrong)


def test_hops_and_rarity() -> None:
    assert {task.domain for task in TASKS} == {"1 hops", "2 hops", "3 hops"}
    assert {task.fields["hops"] for task in KnowledgeGraph(size=20, hops=(2, 2)).load()} == {2}
    counts = _counts(0, 60, 4)
    assert sum(counts) == 2 * 60 * 4, "every fact has two entities"

    def begun(rarity: float) -> float:
        names = {_name(entity): count for entity, count in enumerate(counts)}
        tasks = KnowledgeGraph(size=200, rarity=rarity).load()
        return sum(names[task.fields["facts"][0][0]] for task in tasks) / 200

    assert begun(2.0) < begun(0.0), "rare entities begin more paths"


def test_names_differ() -> None:
    assert len({_name(entity) for entity in range(2000)}) == 2000
