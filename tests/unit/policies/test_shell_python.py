"""What Python code deletes or starts, as far as its literals show it."""

import pytest

from redrive.policies.shell_python import find_python_actions
from redrive.policies.shell_words import UNKNOWN


@pytest.mark.parametrize(
    ("code", "actions"),
    [
        ("import shutil; shutil.rmtree('a')", [("shutil.rmtree", "a")]),
        ("from shutil import rmtree as gone; gone(path='a')", [("shutil.rmtree", "a")]),
        ("import shutil as s\nD = 'a'\ns.rmtree(D + '/b')", [("shutil.rmtree", "a/b")]),
        ("import shutil, os; shutil.rmtree(os.path.join('a', 'b'))", [("shutil.rmtree", "a/b")]),
        ("import shutil; shutil.rmtree(f'a/{x}')", [("shutil.rmtree", f"a/{UNKNOWN}")]),
        ("import shutil; d = 1; d = 'a'; shutil.rmtree(d)", [("shutil.rmtree", UNKNOWN)]),
        ("import os; os.system('ls')", ["ls"]),
        ("from subprocess import run; run(['rm', '-r', x])", [("rm", "-r", UNKNOWN)]),
        ("import subprocess as sp; sp.check_call('ls -l', shell=True)", ["ls -l"]),
        ("import subprocess; c = ['ls']; subprocess.Popen(args=c)", [("ls",)]),
        (
            "import os\nfor d, _, fs in os.walk('a'):\n  for f in fs: os.remove(d + f)",
            [("shutil.rmtree", "a")],
        ),
        ("import re, os; re.sub('\\d', '', x); os.system('ls')", ["ls"]),
        ("import os; os.remove('a')", []),
        ("def run(c): pass\nrun('rm -rf a')", []),
        ("text = 'shutil.rmtree(1)'", []),
        ("import subprocess; subprocess.run(cmd)", []),
        ("no python (", []),
        ("\0", []),
        ("(" * 5000, []),
        ("x" + ".a" * 20_000, []),
        ("", []),
    ],
)
def test_actions_are_found_in_source_order(code: str, actions: list[object]):
    assert list(find_python_actions(code)) == actions
