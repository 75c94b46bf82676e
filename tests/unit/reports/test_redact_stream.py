"""A recorded file, redacted as it lies, and where its bytes stand afterwards."""

import json

from hypothesis import given
from hypothesis import strategies as st

from redrive.reports.redact import MARK, Redactor
from redrive.reports.redact_stream import Places, redact_stream

SECRET = "sk-" + "proj-fakefakefakefakefake01"
KEY = f"-----BEGIN {'RSA'} PRIVATE KEY-----\n" + "MIIEfakefakefakefakefakefake0123\n" * 3
KEY += "-----END RSA PRIVATE KEY-----\n"


def redacted(data, parts=1):
    places = Places()
    size = max(1, len(data) // parts)
    cut = [data[n : n + size] for n in range(0, len(data), size)]
    new = b"".join(places.follow(redact_stream(cut, Redactor(b"k" * 32))))
    return new, places


def test_what_holds_no_secret_comes_out_byte_for_byte():
    data = b'{"a":1}\r\nplain\n\n{"b": "\\u00e9\xff\xfe"}\nlast'
    new, places = redacted(data, 5)
    assert (new, places.first_edit) == (data, None)
    assert places.move(3, 7) == (3, 7)


def test_each_line_of_json_stays_one_and_its_places_are_known():
    lines = [json.dumps({"n": n, "text": SECRET if n % 3 == 1 else "x"}) for n in range(9)]
    data = "".join(line + "\n" for line in lines).encode()
    new, places = redacted(data)
    assert SECRET.encode() not in new
    offset = 0
    for n, line in enumerate(lines):
        start, length = places.move(offset, len(line))
        found = json.loads(new[start : start + length])
        assert found["n"] == n
        assert (MARK.fullmatch(found["text"]) is not None) == (n % 3 == 1)
        assert places.touches(offset, len(line)) == (n % 3 == 1)
        offset += len(line) + 1
    assert places.first_edit == data.index(SECRET.encode())


def test_a_private_key_over_many_lines_becomes_one_mark():
    data = f"before\n{KEY}after {SECRET}\n".encode()
    new, places = redacted(data, 3)
    assert len(MARK.findall(new.decode())) == 2
    assert new.startswith(b"before\n")
    assert new.endswith(b"]\n")
    inside = data.index(b"MIIE")
    assert places.touches(inside, 4)
    assert places.move(inside, 4)[1] >= 0


@given(st.lists(st.sampled_from(["{}", SECRET, "a", KEY, '{"password":"h7-unter2fake"}', ""])))
def test_places_never_run_backwards(parts):
    data = "\n".join(parts).encode()
    new, places = redacted(data)
    ends = [places.move(0, place)[1] for place in range(len(data) + 1)]
    assert ends == sorted(ends)
    assert ends[-1] == len(new)
