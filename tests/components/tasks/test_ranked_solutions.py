"""Three solutions of each sum, their ranks, and critiques of a pair."""

from posttrain.components.tasks.ranked_solutions import RankedSolutions


def test_ranks_and_critiques() -> None:
    tasks = RankedSolutions(size=60).load()
    for task in tasks:
        by_rank = {int(rated.rating): rated.completion for rated in task.rated}
        bare, slip, right = by_rank[0], by_rank[1], by_rank[2]
        assert right.endswith(f"#### {task.answer}") and not slip.endswith(f"#### {task.answer}")
        assert bare.startswith(" ####") and len(slip.split(";")) == len(right.split(";"))
        [pair] = task.preferences
        rank = {text: number for number, text in by_rank.items()}
        assert rank[pair.chosen] > rank[pair.rejected]
        critiques = {pair.chosen: pair.fields["chosen_critique"], pair.rejected: pair.fields["rejected_critique"]}
        for text, critique in critiques.items():
            if rank[text] == 2:
                assert critique == " right"
            elif rank[text] == 0:
                assert critique == " no steps"
            else:
                place, result = critique.removeprefix(" step ").split(": ")
                steps, own = right.split("\n")[0].split(";"), slip.split("\n")[0].split(";")
                first = next(i for i, (a, b) in enumerate(zip(steps, own, strict=True)) if a != b)
                assert int(place) == first + 1 and own[first].endswith(f"={result}")
    assert len({task.preferences[0].fields["rejected_critique"] for task in tasks}) > 2


def test_swapped_ranks_leave_texts_and_their_critiques() -> None:
    plain, swapped = RankedSolutions(size=40).load(), RankedSolutions(size=40, swapped=1.0).load()
    for before, after in zip(plain, swapped, strict=True):
        assert [r.completion for r in before.rated] == [r.completion for r in after.rated]
        assert [r.rating for r in after.rated] in ([1.0, 0.0, 2.0], [0.0, 2.0, 1.0])
