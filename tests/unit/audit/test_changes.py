import pytest
from msgspec import UNSET

from redrive.audit.changes import changed_paths, inside, module_of
from redrive.record.event import ToolCall, raw_of


def paths(tool, arguments=UNSET, text=None):
    given = arguments if arguments is UNSET else raw_of(arguments)
    return changed_paths(ToolCall(tool, arguments=given, arguments_text=text))


PATCH = (
    "*** Begin Patch\n*** Update File: a.go\n@@\n*** Move to: b.go\n*** Add File: c/d.py\n*** End"
)


@pytest.mark.parametrize(
    ("tool", "arguments", "found"),
    [
        ("Edit", {"file_path": "src/../a.py"}, ("a.py",)),
        ("Write", {"filePath": "/srv/a.py"}, ("/srv/a.py",)),
        ("move_file", {"path": "a", "destination": "b"}, ("a", "b")),
        ("str_replace_editor", {"command": "create", "path": "a.py"}, ("a.py",)),
        ("str_replace_editor", {"command": "view", "path": "a.py"}, ()),
        ("apply_patch", {"input": PATCH}, ("a.go", "b.go", "c/d.py")),
        ("shell", {"command": ["apply_patch", PATCH]}, ("a.go", "b.go", "c/d.py")),
        ("Bash", {"command": "echo x > out.py 2>&1"}, ("out.py",)),
        ("Bash", {"command": "cat a >> log.txt; b 2> /dev/null"}, ("log.txt",)),
        ("Bash", {"command": "awk '$1 > 5' f"}, ()),
        ("Bash", {"command": "ls\necho > x.py"}, ()),
        ("execute_ipython_cell", {"code": "a > b.py"}, ()),
        ("insert", {"text": "x.py"}, ()),
        ("Edit", {"file_path": "a\nb.py"}, ()),
        ("Edit", {"file_path": "a" * 5000}, ()),
        ("Edit", {"file_path": 7}, ()),
        ("Edit", UNSET, ()),
        ("Read", {"file_path": "a.py"}, ()),
        ("unknown", {"path": "a.py"}, ()),
    ],
)
def test_a_call_names_the_files_that_it_writes(tool, arguments, found):
    assert paths(tool, arguments) == found


def test_a_patch_given_as_text_names_its_files():
    assert paths("apply_patch", text=PATCH) == ("a.go", "b.go", "c/d.py")


def test_at_most_200_paths_are_listed():
    patch = "".join(f"*** Add File: f{n}.py\n" for n in range(300))
    assert len(paths("apply_patch", {"input": patch})) == 200


def test_a_module_is_the_folder_below_the_working_folder():
    assert module_of("/srv/app/src/a/b.py", "/srv/app/") == "src/a"
    assert module_of("/srv/app/a.py", "/srv/app") == "."
    assert module_of("/srv/application/a.py", "/srv/app") == "/srv/application"
    assert module_of("src/a.py") == "src"
    assert inside("/a.py", "/") == "a.py"
    assert inside("a.py", None) == "a.py"
