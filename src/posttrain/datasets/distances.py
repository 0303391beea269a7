"""Distances of texts."""


def edit_distance(a: str, b: str) -> int:
    """Fewest characters that are inserted, deleted or replaced to make one text of the other.

    A column of the table of distances is a pair of integers, whose bits say where it grows and falls by one.

    Source: Myers 1999, https://doi.org/10.1145/316542.316550, with the first row of Hyyro 2003 for whole texts.
    """
    places: dict[str, int] = {}
    for place, own in enumerate(a):
        places[own] = places.get(own, 0) | 1 << place
    every, last = (1 << len(a)) - 1, 1 << len(a) >> 1
    grows, falls, distance = every, 0, len(a)
    for other in b:
        equal = places.get(other, 0)
        diagonal = (((equal & grows) + grows) ^ grows) | equal | falls
        more, less = falls | (every & ~(diagonal | grows)), grows & diagonal
        distance += bool(more & last) - bool(less & last) if a else 1
        more, less = (more << 1 | 1) & every, less << 1 & every
        grows, falls = less | (every & ~(diagonal | more)), more & diagonal
    return distance
