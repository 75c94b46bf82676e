"""Two paths of one session are compared from where they part."""

import pytest

from redrive.app.diffing import diff_paths
from redrive.errors import UsageError


@pytest.fixture
def rewound(recorded, decision):
    """A session in which the user went back to the first answer and asked something else."""
    store, _ = recorded(
        decision("d1", parent=None),
        {"type": "event", "id": "u2", "kind": "user", "parent": "d1", "text": "first"},
        decision("d2", ("Bash", {"command": "ls"}), parent="u2"),
        {"type": "event", "id": "u3", "kind": "user", "parent": "d1", "text": "other"},
        decision("d3", parent="u3"),
    )
    return store


def test_a_path_that_was_left_ends_where_the_other_goes_on(rewound):
    result = diff_paths(rewound, ("s", "s"), ("d3", "d1"))
    divergence = result.comparison.first_divergence
    assert divergence is not None
    assert (divergence.decision, divergence.node_id) == (2, "d3")
    assert divergence.found is None
    assert (result.left.name, result.right.name) == (
        "interchange:s to d3",
        "interchange:s to d1",
    )


def test_results_are_shown_where_they_differ(recorded, decision):
    def lines(value):
        return (
            decision("d1", ("Bash", {"command": "ls"}), parent=None),
            {
                "type": "tool_result",
                "id": "r1",
                "parent": "d1",
                "call_id": "d1.1",
                "status": "ok",
                "result": value,
            },
        )

    store, _ = recorded(*lines("one"), name="a")
    recorded(*lines("two"), name="b")
    divergence = diff_paths(store, ("a", "b")).comparison.first_divergence
    assert divergence is not None
    assert divergence.fields == ("result",)
    assert bytes(divergence.expected.calls[0].result) == b'"one"'
    assert bytes(divergence.found.calls[0].result) == b'"two"'


def test_the_same_path_twice_is_no_comparison(rewound):
    for paths in ((None, None), ("d3", None), ("d3", "d3")):
        with pytest.raises(UsageError, match="the same path"):
            diff_paths(rewound, ("s", "interchange:s"), paths)
