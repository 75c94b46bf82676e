"""Games add up whichever side tells them."""

from redrive.compare.game_table import Tally, tabulate


def test_games_are_added_up_from_either_side():
    table = tabulate(
        [
            ("t2", 1, 0, Tally(wins=1)),
            ("t1", 0, 1, Tally(wins=1)),
            ("t1", 1, 0, Tally(ties=1)),
            ("t1", 1, 2, Tally(inconclusive=1)),
        ],
        3,
    )
    assert table.between(0, 1) == Tally(1, 1, 1)
    assert table.between(1, 0) == Tally(1, 1, 1).turned()
    assert [task.get((0, 1)) for task in table.tasks] == [Tally(1, 1, 0), Tally(0, 0, 1)]
    assert table.between(2, 0) == Tally()
    assert table.between(2, 1).counted == 0


def test_games_that_do_not_count_connect_nobody_and_the_largest_group_is_first():
    table = tabulate(
        [
            ("t", 0, 1, Tally(inconclusive=1)),
            ("t", 1, 3, Tally(ties=1)),
            ("t", 3, 2, Tally(wins=1)),
        ],
        4,
    )
    assert table.groups() == [[1, 2, 3], [0]]
