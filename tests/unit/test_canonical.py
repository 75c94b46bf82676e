import itertools
import json
import math

import msgspec
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from redrive import canonical

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**53) + 1, max_value=2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)
odd_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_it_is_rfc_8785_where_rfc_8785_is_defined(value):
    assert canonical.canonical(value) == rfc8785.dumps(value)


@given(odd_values)
def test_it_decodes_to_the_value_it_was_written_from(value):
    assert canonical.decode(canonical.canonical(value)).value == value


@given(odd_values)
def test_encode_and_decode_are_inverse(value):
    assert canonical.decode_value(canonical.encode(value)) == value


def test_key_order_does_not_matter_and_types_do():
    assert canonical.value_digest({"a": 1, "b": 2}) == canonical.value_digest({"b": 2, "a": 1})
    assert canonical.value_digest(1) == canonical.value_digest(1.0)
    assert canonical.value_digest(1) != canonical.value_digest(True)
    assert canonical.value_digest("\u00e9") != canonical.value_digest("e\u0301")


def test_integers_beyond_doubles_stay_exact():
    assert canonical.canonical(2**64) == b"18446744073709551616"
    assert canonical.value_digest(2**64) != canonical.value_digest(2**64 + 1)
    assert canonical.decode_value(b"18446744073709551617") == 2**64 + 1


def test_a_lone_surrogate_stays_its_escape_and_sorts_by_utf_16():
    value = {"\ud83d": 1, "é": [1.5, (None, True)], "\uffff": "\ud800x"}
    assert canonical.canonical(value) == (
        '{"é":[1.5,[null,true]],"\\ud83d":1,"\uffff":"\\ud800x"}'.encode()
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, [-math.inf], {"a": [math.nan]}])
def test_nan_and_infinity_have_no_form(value):
    with pytest.raises(ValueError, match="has no canonical form"):
        canonical.canonical(value)
    with pytest.raises(ValueError, match="is not JSON"):
        canonical.encode(value)


@pytest.mark.parametrize("value", [{1: 2}, {"a": {1, 2}}, b"x", object()])
def test_what_is_no_json_is_refused(value):
    with pytest.raises(TypeError, match="not JSON"):
        canonical.canonical(value)


def test_encode_refuses_unknown_types_beside_a_surrogate():
    with pytest.raises(TypeError, match="not JSON"):
        canonical.encode(["\ud800", object()])


def test_encode_keeps_raw_json_and_null():
    class Holder(msgspec.Struct):
        text: str
        raw: msgspec.Raw

    raw = msgspec.Raw(b'{"x":null}')
    assert canonical.encode(Holder("a", raw)) == b'{"text":"a","raw":{"x":null}}'
    assert canonical.encode(Holder("\ud800", raw)) == b'{"text":"\\ud800","raw":{"x":null}}'


def test_encode_refuses_nan_beside_raw_json_with_null():
    raw = msgspec.Raw(b'{"x":null,"x":1e5}')
    assert canonical.encode([raw, None, 1.5]) == b'[{"x":null,"x":1e5},null,1.5]'
    with pytest.raises(ValueError, match="is not JSON"):
        canonical.encode([raw, {"a": (math.nan,)}])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a":NaN}', {"a": "NaN"}),
        (b"[-Infinity, 1e999]", ["-Infinity", "1e999"]),
        (b"1" * 4301, "1" * 4301),
    ],
)
def test_a_number_that_cannot_be_held_is_marked_and_kept_as_text(text, value):
    assert canonical.decode(text) == canonical.DecodedJson(value, is_exact=False)


def test_4300_digits_are_exact():
    assert canonical.decode(b"-" + b"9" * 4300) == canonical.DecodedJson(-int("9" * 4300))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[NaN," + b"[" * 200_000,
        b"{}{}",
        b"\xff",
        b"[" * 200_000,
        '"\x00',
        "[" * 200_000,
    ],
)
def test_what_is_no_json_text_is_a_value_error(text):
    with pytest.raises(ValueError):  # noqa: PT011 - each decoder words it in its own way
        canonical.decode(text)


def test_text_with_a_lone_surrogate_has_its_own_digest():
    assert canonical.text_digest("a\ud83d") != canonical.text_digest("a�")
    assert canonical.text_bytes("\ud83d") == b"\xed\xa0\xbd"


def test_strictness_is_told():
    assert canonical.is_strict(b'{"a":1}')
    assert not canonical.is_strict(b'"\\ud800"')


def test_the_stream_repeats_and_labels_part_it():
    first = list(itertools.islice(canonical.stream("s", "a"), 9))
    assert first == list(itertools.islice(canonical.stream("s", "a"), 9))
    assert first != list(itertools.islice(canonical.stream("s", "b"), 9))
    assert len(set(first)) == 9
    assert all(0 <= draw < 2**64 for draw in first)


def test_ids_become_carriable():
    assert canonical.safe_text("plain") == "plain"
    assert canonical.safe_text("é") == "é"
    assert canonical.safe_text("é\ud800") == "\ufffdé\\ud800"
    assert canonical.safe_text("\ud800\\ud800") == "\ufffd\\ud800\\\\ud800"
    assert canonical.safe_text("\\ud800") == "\\ud800"
    assert canonical.safe_text("\ufffd\\ud800") == "\ufffd\ufffd\\\\ud800"


IDS = st.text(st.sampled_from("\ufffd\\ud8c0é\ud800\udc00"), max_size=7)


@given(IDS, IDS)
def test_different_ids_stay_different_when_they_become_carriable(one, other):
    safe = canonical.safe_text(one)
    assert not canonical.has_lone_surrogate(safe)
    assert (safe == canonical.safe_text(other)) == (one == other)


@given(st.lists(IDS, min_size=2, max_size=40, unique=True))
def test_no_two_ids_of_many_become_one(ids):
    assert len({canonical.safe_text(text) for text in ids}) == len(ids)


def test_a_surrogate_that_is_escaped_in_json_reads_back():
    assert json.loads(canonical.escape_surrogates('["é\ud800"]')) == ["é\ud800"]
    assert canonical.escape_surrogates("é") == "é"


LONG = b"1," * 600_000
EXACT = [
    b"1",
    b"1e300",
    b"1e-400",
    b"9" * 4300,
    b"-" + b"9" * 4300,
    b'"1e999"',
    b'"\\"1e999"',
    b"0." + b"0" * 400,
]
INEXACT = [b"1e400", b"-1E+400", b"9" * 4301, b"9" * 400 + b".0", b"1.5e0000400"]


@pytest.mark.parametrize("before", [b"", LONG], ids=["short", "long"])
def test_numbers_that_cannot_be_represented_are_found_in_texts_of_any_length(before):
    for number in EXACT:
        assert canonical.has_exact_numbers(b"[" + before + number + b"]")
        assert canonical.has_exact_numbers(memoryview(b'{"a":[' + before + number + b"]}"))
    for number in INEXACT:
        assert not canonical.has_exact_numbers(b"[" + before + b'"1e999",' + number + b"]")
    assert canonical.has_exact_numbers(b'"1e999"')
    assert canonical.has_exact_numbers(b'"1e999' + b"x" * 2**20 + b'"')


@pytest.mark.parametrize("before", [b"", b"x" * (1024 * 1024 - 1)], ids=["short", "long"])
def test_bytes_that_are_no_utf8_are_found_in_texts_of_any_length(before):
    assert canonical.is_utf8(before + "é😀".encode())
    assert canonical.is_utf8(memoryview(before))
    assert not canonical.is_utf8(before + b"\xc3")
    assert not canonical.is_utf8(before + b"\xff" + before)
    assert not canonical.is_utf8(before + b"\xed\xa0\x80")


def test_a_text_with_a_lone_surrogate_is_not_strict_and_one_with_a_long_number_is():
    assert canonical.is_strict(b'["\\ud83d\\ude00"]')
    assert canonical.is_strict(b"[1e400]")
    assert not canonical.is_strict(b'["\\ud83d"]')


def test_a_field_of_another_type_counts_as_not_recorded():
    fields = {"flag": True, "count": 3, "text": "x"}
    assert canonical.get_field(fields, "count", int) == 3
    assert canonical.get_field(fields, "flag", int) is None
    assert canonical.get_field(fields, "flag", bool) is True
    assert canonical.get_field(fields, "text", int) is None
    assert canonical.get_field(fields, "none", str) is None


DEEP = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def test_members_are_split_verbatim_and_in_order():
    text = ' { "a" : 1.0 ,"a":{"b":1,"b":2},\t"\\ud800":"\\u00e9" } \n'
    assert canonical.split_members(text) == (
        ("a", "1.0"),
        ("a", '{"b":1,"b":2}'),
        ("\ud800", '"\\u00e9"'),
    )
    assert canonical.split_members("{ }") == ()
    assert canonical.split_members('{"n":' + "7" * 5000 + "}") == (("n", "7" * 5000),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "{",
        "}",
        '{"a"}',
        '{"a":}',
        '{"a":1',
        '{"a":1,}',
        '{"a":1 "b":2}',
        "{1:2}",
        '{"a":1}x',
        '{"a":1}{}',
        '{"a":NaN}',
        '{"a":-Infinity}',
        '{"a":' + "[" * 100_000,
        "\ufeff{}",
    ],
)
def test_what_is_not_exactly_one_object_has_no_members(text):
    with pytest.raises(ValueError, match=r"character|Expecting|delimiter|JSON|deeply"):
        canonical.split_members(text)


@pytest.mark.parametrize(
    "data", [b"{}", b' {"a":[1,{"b":"}"}]}', b'{"a":"\\ud800","b":"\\ud83d\\ude00"}']
)
def test_an_object_is_plain_even_with_half_a_character(data):
    assert canonical.is_plain_object(data)
    assert dict(canonical.split_object(data)).keys() == canonical.decode_value(data).keys()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[1]",
        b'{"a":1}x',
        b'{"a":1e400}',
        b'{"a":"\xff"}',
        b'{"a":NaN}',
        b'{"a":"\\ud800}',
        DEEP,
    ],
)
def test_what_is_no_object_or_not_exact_is_not_plain(data):
    assert not canonical.is_plain_object(data)


@given(st.dictionaries(st.text(), odd_values), st.booleans())
def test_the_members_of_an_object_are_those_of_its_value(value, is_ascii):
    text = json.dumps(value, ensure_ascii=is_ascii)
    members = canonical.split_object(canonical.escape_surrogates(text).encode())
    assert {key: canonical.decode_value(item) for key, item in members} == value


@pytest.mark.parametrize(
    "data",
    [b"1", b' {"a": 1, "a": 2} ', b'"\\ud800"', b"1e999", b"9" * 5000, b"[" * 300 + b"]" * 300],
)
def test_one_json_text_is_taken_as_it_came(data):
    assert bytes(canonical.take_json(data)) == data


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b" ", b"NaN", b'{"a":-Infinity}', b"1,2", b"1 2", b"],[", b"{", b"\xef\xbb\xbf1"),
        *(b'"\xff"', b"[" * 990 + b"]" * 990, b"[" * 100_000 + b"]" * 100_000),
    ],
)
def test_what_could_not_be_read_back_is_not_taken(data):
    with pytest.raises(ValueError, match=r"JSON|nested"):
        canonical.take_json(data)


@pytest.mark.parametrize("innermost", [1, 0.5, 2**60])
def test_a_value_that_is_nested_deeply_has_its_canonical_form_or_is_refused_as_a_value(innermost):
    value = innermost
    for _ in range(300):
        value = [value]
    assert canonical.canonical(value) == b"[" * 300 + canonical.canonical(innermost) + b"]" * 300
    for _ in range(3000):
        value = [value]
    with pytest.raises(ValueError, match="nested too deeply"):
        canonical.canonical(value)
