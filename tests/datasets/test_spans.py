from posttrain.datasets.spans import quoted_ranges, tagged_ranges


def pieces(text: str) -> list[bytes]:
    """Tokens divided by bars."""
    return [piece.encode() for piece in text.split("|")]


def test_hand_worked() -> None:
    assert tagged_ranges(pieces("<think>|so| it|</think>|<call>|f()|</call>"), "think") == ((1, 3),)
    assert tagged_ranges(pieces("<think>|so| it|</think>|<call>|f()|</call>"), "call") == ((5, 6),)


def test_a_token_with_a_piece_of_a_tag_belongs_to_the_form() -> None:
    assert tagged_ranges(pieces("<th|ink>a|b|c</|think>"), "think") == ((2, 3),)
    assert tagged_ranges(pieces("<think>abc</think>"), "think") == ()


def test_letters_of_several_tokens_and_tokens_without_text() -> None:
    two = [b"<think>", "é".encode()[:1], "é".encode()[1:], b"", b"x", b"</think>", b""]
    assert tagged_ranges(two, "think") == ((1, 5),)


def test_several_parts() -> None:
    assert tagged_ranges(pieces("<t>|a|</t>|b|<t>|c|d|</t>"), "t") == ((1, 2), (5, 7))


def test_missing_nested_unclosed() -> None:
    for text in ("a|b", "<t>|a", "a|</t>", "<t>|<t>|a|</t>|</t>", "</t>|a|<t>", "<t>|a|</t>|<t>|b", "<t>|</t>", ""):
        assert tagged_ranges(pieces(text), "t") == (), text


def test_opened_by_the_prompt() -> None:
    assert tagged_ranges(pieces("a|b|</t>|c"), "t", opened=True) == ((0, 2),)
    assert tagged_ranges(pieces("<t>|b|</t>"), "t", opened=True) == ()


def test_the_text_of_a_key_in_json() -> None:
    text = '{"why|": "|so|, |a \\|"b|"|, "what": "why"}'
    assert quoted_ranges(pieces(text), "why") == ((2, 6),)  # the escaped quotation mark is inside
    assert quoted_ranges(pieces('{"why": "|a|'), "why") == () == quoted_ranges(pieces('{"why": |1|}'), "why")
    assert quoted_ranges(pieces('{"why" : "|a|"}|{"why":"|b|"}'), "why") == ((1, 2), (4, 5))
    assert quoted_ranges(pieces('{"why": "x|"}'), "why") == ()  # a token with a quotation mark belongs to the form
