import pytest

from redrive.replay.persistent import Cursor, Log, Table


def test_a_log_grows_and_leaves_what_was_there():
    logs = [Log()]
    for number in range(200):
        logs.append(logs[-1].add(number))
    assert [list(log) for log in logs] == [list(range(n)) for n in range(201)]
    assert [len(log) for log in logs] == list(range(201))


def test_a_cursor_counts_and_leaves_what_was_there():
    first = Cursor().set(1, 1)
    later = first
    for number in range(2, 100):
        later = later.set(number, number)
    newest = later.set(1, 7)
    assert (first.get(1), later.get(1), newest.get(1)) == (1, 1, 7)
    assert first.get(50) == 0
    assert newest.merged() == {1: 7} | {n: n for n in range(2, 100)}


def test_a_cursor_keeps_few_layers():
    cursor = Cursor()
    for number in range(1000):
        cursor = cursor.set(number, 1)
    assert len(cursor.layers) <= 11


def test_a_table_keeps_the_newest_value_and_none_of_its_layers_can_be_changed():
    old = Table().set("a", 1)
    table = old.set("b", 2).set("a", 3)
    assert (table.find("a"), table.find("b"), table.find("c"), old.find("a")) == (3, 2, None, 1)
    for layer in table.layers:
        with pytest.raises(TypeError):
            layer["a"] = 4
