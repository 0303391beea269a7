from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.engines._stopping import StopStrings
from tests.engines.scripted import SILENT, ByteTokenizer

decode = ByteTokenizer().decode


def by_the_law(tokens: list[int], stops: list[str]) -> tuple[int, str] | None:
    """Decode everything after each token: the slow definition."""
    for end in range(1, len(tokens) + 1):
        text = decode(tokens[:end])
        begins = [text.find(stop) for stop in stops if stop in text]
        if begins:
            return end, text[: min(begins)]
    return None


def watched(tokens: list[int], stops: list[str]) -> tuple[int, str] | None:
    watch = StopStrings(stops, decode)
    for end, token in enumerate(tokens, 1):
        text = watch.push(token)
        if text is not None:
            return end, text
    return None


def test_a_match_spans_tokens_and_cuts_the_text():
    assert watched(list(b"one two\n\nthree"), ["\n\n"]) == (9, "one two")
    assert watched(list(b"one two"), ["\n\n"]) is None


def test_the_earliest_match_cuts():
    assert watched(list(b"xabcd"), ["cd", "bcd", "d"]) == (5, "xa")


def test_a_character_split_over_tokens_is_seen_when_it_is_complete():
    tokens = list("é€😀!".encode())
    assert watched(tokens, ["😀"]) == (9, "é€")
    assert watched(tokens, ["€😀!"]) == (10, "é")


def test_special_tokens_have_no_text():
    assert watched([ord("a"), *[SILENT] * 100, ord("b")], ["ab"]) == (102, "")
    assert watched([0xF0, *[SILENT] * 100, 0x9F, 0x98, 0x80, ord("b")], ["😀b"]) == (105, "")


def test_broken_bytes_do_not_hide_a_match_or_slow_the_work():
    decoded = 0

    def count(tokens: list[int]) -> str:
        nonlocal decoded
        decoded += len(tokens)
        return decode(tokens)

    watch = StopStrings(["end"], count)
    tokens = [0xFF, 0xF0, 0x9F, 0x98] * 500
    assert all(watch.push(token) is None for token in tokens)
    assert decoded < 50 * len(tokens)
    assert [watch.push(token) for token in b"end"] == [None, None, decode(tokens)]


pieces = st.sampled_from(["ab", "a", "b", " ", "\n\n", "é€😀", "é", "€", "😀"]).map(lambda text: list(text.encode()))
broken = st.lists(st.sampled_from([0xFF, 0x80, 0xC3, 0xE2, 0x82, 0xF0, 0x9F, 0x98, SILENT]), max_size=3)


@settings(deadline=None)
@given(
    st.lists(pieces | broken, max_size=60).map(lambda parts: [token for part in parts for token in part]),
    st.lists(
        st.sampled_from(["a", "ab", "bb", "é", "€a", "😀😀", "\n\n", "aé", "abab", "a b\n"]), min_size=1, max_size=3
    ),
)
def test_the_law_holds_for_any_bytes(tokens: list[int], stops: list[str]):
    assert watched(tokens, stops) == by_the_law(tokens, stops)
