from redrive.replay.persistent import Cursor, Log


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
