import pytest

from redrive.sandbox.modules import declared_libraries, find_neighbours, is_importable


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("LIBRARIES = ('sqlglot', 'numpy')", ("sqlglot", "numpy")),
        ("LIBRARIES: tuple[str, ...] = ['sqlglot']", ("sqlglot",)),
        ("class P:\n    libraries = ('a',)\nclass Q:\n    libraries = ('a', 'b', 3)", ("a", "b")),
        ("LIBRARIES = make()", ()),
        ("x = 1\nclass P: pass", ()),
        ("def f(:", ()),
    ],
)
def test_declared_libraries_are_read_without_running_the_policy(source, expected):
    assert declared_libraries(source) == expected


@pytest.mark.parametrize(
    ("package", "expected"),
    [("", ("a", "c", "d", "h", "own")), ("own.part", ("a", "h", "k"))],
)
def test_modules_beside_a_policy_are_found_wherever_they_are_imported(package, expected):
    source = (
        "import a.b, c\ndef f():\n    from d.e import g\n    from . import h\n"
        "    from .. import i\nimport own.part.k.l\nfrom own.part import a"
    )
    assert find_neighbours(source, package) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("json.decoder", True),
        ("redrive.policy", True),
        ("redrive.policies.shell", True),
        ("redrive.policyx", False),
        ("redrive.app", False),
        ("sqlglot.expressions", True),
        ("sqlglotx", False),
        ("numpy", False),
    ],
)
def test_what_may_be_imported(name, expected):
    assert is_importable(name, ("sqlglot",)) is expected
