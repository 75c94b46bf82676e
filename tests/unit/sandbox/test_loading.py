import json
import subprocess
import sys
from pathlib import Path

import pytest

from redrive.errors import PluginError, UsageError
from redrive.sandbox.loading import (
    fault_place,
    import_declared,
    read_policy_file,
    read_policy_module,
)

# Loads argv[1] sealed, calls `check` if the policy has one, and prints what came of it.
CHILD = """
import json, os, sys
from pathlib import Path
from redrive.errors import PluginError, PurityFault
from redrive.sandbox.loading import fault_place, import_policy, read_policy_file
from redrive.sandbox.standins import seal
write = os.write
source = read_policy_file(Path(sys.argv[1]))
Path(sys.argv[1]).write_text("raise ValueError('read again')")
sealed = seal()
try:
    policy = import_policy(sealed, source, "Policy")
    with sealed:
        out = repr(policy().check())
except PurityFault as fault:
    out = f"fault {fault.where} {fault.what}"
except PluginError as error:
    out = f"error {error.where} {error.message}"
except Exception as error:
    out = f"raised {fault_place(error.__traceback__, source.file)}"
write(1, json.dumps([out, sealed.is_armed, os.path.basename(source.file)]).encode())
"""


def load(folder: Path, **texts: str) -> str:
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    command = [sys.executable, "-c", CHILD, str(folder / "policy.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    out, is_armed, _ = json.loads(done.stdout)
    assert is_armed is False
    assert not (folder / "__pycache__").exists()
    return str(out).replace(f"{folder}/", "")


CHECK = "class Policy:\n    def check(self):\n        return "


def test_a_policy_runs_from_the_text_that_was_read_before_the_seal(tmp_path):
    assert load(tmp_path, policy=f"{CHECK}(__name__[:16], __file__[-9:])") == (
        "('_redrive_policy_', 'policy.py')"
    )


def test_modules_beside_the_policy_run_from_their_text_too_and_once(tmp_path):
    out = load(
        tmp_path,
        policy=f"import rules\nfrom rules import MADE\n{CHECK}rules.MADE is MADE and MADE[0].n",
        rules="import dataclasses, more\n@dataclasses.dataclass\nclass Row:\n    n: int\n"
        "MADE = [Row(more.N)]",
        more="import rules\nN = 7",
    )
    assert out == "7"


def test_a_fault_beside_the_policy_names_the_file_where_it_stands(tmp_path):
    out = load(
        tmp_path, policy=f"import rules\n{CHECK}rules.look()", rules="def look():\n    open('x')"
    )
    assert out == "fault rules.py:2 file: builtins.open"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\n1 / 0", "error policy.py:2 raised while it was loaded: ZeroDivisionError: "),
        ("def f(:", "error policy.py:1 no Python: "),
        ("import sys\nsys.exit()", "error policy.py:2 raised while it was loaded: SystemExit"),
        ("x = 1", "error policy.py no Policy in the file"),
        ("import time\nT = time.time()", "fault policy.py:2 clock: time.time"),
        ("import numpy", "fault policy.py:1 undeclared library: import numpy"),
        ("from . import rules", "error policy.py:1 raised while it was loaded: ImportError"),
        (f"{CHECK}1 / 0", "raised ('policy.py', 3)"),
    ],
)
def test_a_policy_that_cannot_be_loaded_is_named_with_its_line(tmp_path, text, expected):
    assert load(tmp_path, policy=text).startswith(expected)


def test_what_is_beside_the_policy_is_read_as_it_is_imported(tmp_path):
    (tmp_path / "p.py").write_text("import rules, json, absent")
    (tmp_path / "rules.py").write_text("from more import x")
    (tmp_path / "more.py").write_text("x = 1")
    (tmp_path / "json.py").write_text("shadows = True")
    source = read_policy_file(tmp_path / "p.py")
    assert source.siblings == {
        "rules": (str(tmp_path / "rules.py"), "from more import x"),
        "more": (str(tmp_path / "more.py"), "x = 1"),
    }


def test_a_file_that_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        read_policy_file(tmp_path / "p.py")
    (tmp_path / "p.py").write_bytes(b"\xff")
    with pytest.raises(PluginError, match="cannot be read"):
        read_policy_file(tmp_path / "p.py")


def test_an_installed_module_is_read_and_not_run():
    source = read_policy_module("redrive.canonical")
    assert (source.package, Path(source.file).name) == ("redrive", "canonical.py")
    assert "def canonical(" in source.text


def test_an_installed_policy_runs_with_its_own_package(tmp_path):
    folder = tmp_path / "own_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "rules.py").write_text("N = 7")
    (folder / "policy.py").write_text(
        "from own_package.rules import N\nfrom . import rules\nfrom .rules import N as M\n"
        "POLICY = rules.N + N + M"
    )
    code = (
        "import os, sys; write = os.write; sys.path.insert(0, sys.argv[1])\n"
        "from redrive.sandbox.loading import import_policy, read_policy_module\n"
        "from redrive.sandbox.standins import seal\n"
        "source = read_policy_module('own_package.policy')\n"
        "policy = import_policy(seal(), source, 'POLICY')\n"
        "write(1, repr([policy, source.find_sibling('rules'), source.find_sibling('x')]).encode())"
    )
    command = [sys.executable, "-B", "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[21, 'N = 7', None]"


@pytest.mark.parametrize("name", ["redrive.absent", "absent.module", "math", ""])
def test_a_module_without_source_is_an_error(name):
    with pytest.raises(UsageError, match="module"):
        read_policy_module(name)


def test_a_declared_library_that_is_absent_is_named():
    import_declared(("json", "math"))
    with pytest.raises(PluginError, match="declared library absent_library cannot be imported"):
        import_declared(("absent_library",))


def test_a_place_outside_the_policy_is_the_policy_itself():
    assert fault_place(None, "p.py") == ("p.py", 0)
    with pytest.raises(ValueError, match="here") as caught:
        raise ValueError("here")
    assert fault_place(caught.tb, "p.py") == ("p.py", 0)
    assert fault_place(caught.tb, "p.py", __file__)[0] == __file__
