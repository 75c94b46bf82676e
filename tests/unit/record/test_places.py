from redrive.importers.claude_code import IMPORTER
from redrive.record.branches import find_branches
from redrive.record.places import build_places, find_cycles, nearest_marked
from tests.helpers import events_from, index_of
from tests.helpers_growth import growth


def user(line_id, parent=None, **fields):
    line = {"type": "event", "id": line_id, "kind": "user", "text": "u"} | fields
    return line if parent is None else line | {"parent": parent}


def of_branches(survey):
    names = survey.index.node_ids
    return [
        (b.actor, names[b.leaf], b.fork if b.fork is None else names[b.fork], b.is_live)
        for b in find_branches(survey.places)
    ]


def test_a_session_without_links_is_one_live_branch_per_actor(surveyed, decision):
    survey = surveyed(decision("d1"), decision("d2", actor="sub"), decision("d3"))
    assert of_branches(survey) == [("main", "d3", None, True), ("sub", "d2", None, True)]
    assert list(survey.places.steps) == [1, 1, 2]
    assert survey.places.live == b"\x01\x01\x01"


def test_a_rewind_leaves_a_discarded_branch_with_its_own_steps(surveyed, decision):
    survey = surveyed(
        user("u1"),
        decision("d1", parent="u1"),
        decision("d2", parent="d1"),
        user("u2", "d1"),
        decision("d3", parent="u2"),
    )
    assert of_branches(survey) == [("main", "d3", None, True), ("main", "d2", "d1", False)]
    discarded = list(find_branches(survey.places))[1]
    assert (discarded.n_steps, discarded.n_own_steps) == (2, 1)
    assert bytes(survey.places.live) == b"\x01\x01\x00\x01\x01"


def test_a_fork_inside_a_discarded_branch_is_told_from_it(surveyed, decision):
    survey = surveyed(
        user("u1"),
        decision("d1", parent="u1"),
        decision("d2", parent="d1"),
        decision("d3", parent="d1"),
        decision("d4", parent="u1"),
    )
    assert of_branches(survey) == [
        ("main", "d4", None, True),
        ("main", "d3", "u1", False),
        ("main", "d2", "d1", False),
    ]


def test_a_further_root_is_a_branch_without_a_fork(surveyed, decision):
    survey = surveyed(user("u1"), decision("d1", parent="u1"), decision("d2", parent="gone"))
    assert of_branches(survey) == [("main", "d2", None, True), ("main", "d1", None, False)]


def test_a_subagent_of_a_discarded_decision_is_discarded(surveyed, decision):
    survey = surveyed(
        user("u1"),
        decision("d1", parent="u1"),
        decision("a1", parent="d1", actor="sub"),
        decision("b1", parent="a1", actor="nested"),
        decision("d2", parent="u1"),
        decision("c1", parent="d2", actor="other"),
    )
    live = dict(zip(survey.index.node_ids, survey.places.live, strict=True))
    assert live == {"u1": 1, "d1": 0, "a1": 0, "b1": 0, "d2": 1, "c1": 1}


def test_subagents_that_hang_off_each_other_are_live(surveyed, decision):
    survey = surveyed(
        decision("a1", parent="b1", actor="a"), decision("b1", parent="a1", actor="b")
    )
    assert bytes(survey.places.live) == b"\x01\x01"


def test_results_beside_the_path_belong_to_it(surveyed, decision, result):
    survey = surveyed(
        user("u1"),
        decision("d1", ("Read", {}), ("Read", {}), parent="u1"),
        result("d1.1", parent="d1"),
        result("d1.2", parent="d1"),
        decision("d2", parent="rd1.2"),
    )
    assert all(survey.places.live)
    assert len(of_branches(survey)) == 1


def test_a_marked_node_is_looked_for_upwards(surveyed, decision):
    survey = surveyed(
        user("u1"),
        decision("d1", parent="u1"),
        user("u2", "d1"),
        decision("d2", parent="u1"),
        decision("x", parent="d2", actor="sub"),
    )
    names = survey.index.node_ids
    marked = [name.startswith("u") for name in names]
    nearest = nearest_marked(survey.places, marked)
    asked = {name: names[nearest[n]] for n, name in enumerate(names)}
    assert asked == {"u1": "u1", "d1": "u1", "u2": "u2", "d2": "u1", "x": "u1"}


def test_a_ring_is_cut_where_the_path_to_the_head_enters_it(surveyed, decision):
    survey = surveyed(
        decision("d1", parent="d3"),
        decision("d2", parent="d1"),
        decision("d3", parent="d2"),
        decision("d4", parent="d1"),
    )
    names = survey.index.node_ids
    assert [names[n] for n in find_cycles(survey.index)] == ["d2"]
    assert of_branches(survey) == [("main", "d4", None, True)]
    trajectory = survey.opened.trajectory()
    assert trajectory.breaks.what == "cycle"
    steps = {step.node_id: step.step for step in trajectory.steps}
    assert steps == {name: survey.places.steps[n] for n, name in enumerate(names)}


def test_a_node_that_is_its_own_parent_is_a_ring(surveyed, decision):
    survey = surveyed(decision("d1"), decision("x", parent="x"))
    assert [survey.index.node_ids[n] for n in find_cycles(survey.index)] == ["x"]
    assert len(of_branches(survey)) == 2


def test_subagents_that_started_each_other_in_turn_are_live(surveyed, decision):
    survey = surveyed(
        decision("d1"),
        decision("b1", parent="d1", actor="b"),
        decision("a1", parent="b1", actor="a"),
        decision("b2", parent="a1", actor="b"),
    )
    live = {
        n for n, is_live in zip(survey.index.node_ids, survey.places.live, strict=True) if is_live
    }
    assert live == {"d1", "a1", "b2"}


def test_nested_actors_are_placed_in_linear_time(surveyed, decision):
    def chain(length):
        lines = [
            decision(f"d{n}", **({"parent": f"d{n - 1}", "actor": f"a{n}"} if n else {}))
            for n in range(length)
        ]
        index = surveyed(*lines, name=f"{length}.jsonl").index
        assert len(index.actors) == length
        return lambda: build_places(index)

    assert bytes(chain(50)().live) == b"\x01" * 50
    assert growth(chain, 50) < 5


def test_forks_in_real_sessions_are_as_many_as_counted_by_hand(samples):
    with (samples / "EXPECTED.tsv").open() as file:
        rows = [line.rstrip("\n").split("\t") for line in file if "\tclaude_code\t" in line]
    counts = {row[0]: int(row[7]) for row in rows}
    found = {}
    for name in counts:
        path = samples / "claude_code" / name
        if path.is_file():
            places = build_places(index_of(events_from(IMPORTER, path)))
            branches = list(find_branches(places))
            found[name] = 1 + sum(b.actor == "main" and b.fork is not None for b in branches)
    assert len(found) >= 10
    assert found == {name: counts[name] for name in found}
