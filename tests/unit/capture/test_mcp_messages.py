import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.capture.mcp_messages import Shape, id_of, parse_messages


def test_the_four_shapes_are_told_apart():
    texts = [
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","method":"n","params":[1]}',
        b'{"jsonrpc":"2.0","id":"a","result":{ "x" : 1 }}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":1}}',
    ]
    request, notification, result, error = (parse_messages(data)[0] for data in texts)
    assert (request.shape, request.id, request.method) == (Shape.REQUEST, ("number", 1, ""), "ping")
    assert bytes(request.body) == b"null"
    assert (notification.shape, notification.id) == (Shape.NOTIFICATION, None)
    assert bytes(notification.body) == b"[1]"
    assert (result.shape, result.id) == (Shape.RESULT, ("text", "a", ""))
    assert bytes(result.body) == b'{ "x" : 1 }'
    assert (error.shape, error.id) == (Shape.ERROR, None)


def test_a_scope_is_part_of_every_id_of_a_batch():
    messages = parse_messages(b' [{"id":1,"method":"a"}, {"id":2,"method":"b"}]', "x7")
    assert [message.id for message in messages] == [("number", 1, "x7"), ("number", 2, "x7")]


def test_of_a_repeated_key_the_last_counts_as_json_decoders_have_it():
    (message,) = parse_messages(b'{"id":1,"id":2,"method":"a"}')
    assert message.id == ("number", 2, "")


def test_numbers_and_texts_are_ids_and_nothing_else_is():
    assert id_of(1) == id_of(1.0)
    assert id_of("1") != id_of(1)
    with pytest.raises(ValueError, match="neither text nor number"):
        id_of(None)


@given(st.binary(max_size=60))
def test_any_bytes_are_messages_or_a_value_error(data: bytes):
    try:
        parse_messages(data)
    except ValueError:
        return
