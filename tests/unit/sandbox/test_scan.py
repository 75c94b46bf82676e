import pytest

from redrive.sandbox.scan import scan_source


def found(source: str) -> list[tuple[int, str]]:
    return [(finding.line, finding.what) for finding in scan_source(source, "p.py")]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import time as t\nt.time()", [(2, "clock: time.time")]),
        ("from time import time as now\nnow()", [(1, "clock: time.time")]),
        ("from time import *", [(1, "clock: time import *")]),
        ("import time\nf = time", [(2, "clock: time is handed on as a value")]),
        ("from datetime import datetime as d\nd.now()", [(2, "clock: datetime.datetime.now")]),
        ("import datetime\ndatetime.date.today", [(2, "clock: datetime.date.today")]),
        (
            "from datetime import datetime\ndatetime.fromtimestamp(1)",
            [(2, "clock: datetime.datetime.fromtimestamp")],
        ),
        ("from time import gmtime\ngmtime()", [(2, "clock: time.gmtime")]),
        ("x.ts.now()", [(1, "clock: .now()")]),
        ("x.utcnow()", [(1, "clock: .utcnow()")]),
        ("x.astimezone()", [(1, "environment: .astimezone() without a zone")]),
        ("import random", [(1, "randomness: random is imported")]),
        ("from secrets import token_hex", [(1, "randomness: secrets is imported")]),
        ("import uuid\nuuid.uuid4()", [(2, "randomness: uuid.uuid4")]),
        ("import os\nos.urandom(2)", [(2, "randomness: os.urandom")]),
        ("open('x')", [(1, "file: open")]),
        ("import os\nos.path.exists('x')", [(2, "file: os.path.exists")]),
        ("from os import path\npath.getsize('x')", [(2, "file: os.path.getsize")]),
        ("from pathlib import Path", [(1, "file: pathlib.Path")]),
        ("import io, shutil\nio.open", [(1, "file: shutil is imported"), (2, "file: io.open")]),
        ("import urllib.request", [(1, "network: urllib.request is imported")]),
        ("from http import client", [(1, "network: http.client")]),
        ("from os import environ", [(1, "environment: os.environ")]),
        ("import sys\nsys.modules", [(2, "dynamic code: sys.modules")]),
        ("import subprocess", [(1, "process: subprocess is imported")]),
        ("import concurrent.futures", [(1, "thread: concurrent.futures is imported")]),
        ("import ctypes", [(1, "foreign code: ctypes is imported")]),
        ("import turtle", [(1, "unknown module: turtle is imported")]),
        ("import logging.handlers", [(1, "network: logging.handlers")]),
        ("from types import FunctionType", [(1, "dynamic code: types.FunctionType")]),
        ("__import__('time')", [(1, "dynamic code: __import__")]),
        ("f.__globals__", [(1, "dynamic code: __globals__")]),
        ("getattr(f, '__globals__')", [(1, "dynamic code: __globals__")]),
        ("import re\nre.__loader__", [(2, "dynamic code: __loader__")]),
        ("hash(1), id(2)", [(1, "identity: hash"), (1, "identity: id")]),
        ("try: f()\nexcept: pass", [(2, "swallowing: bare except")]),
        ("try: f()\nexcept BaseException: pass", [(2, "swallowing: BaseException")]),
        (
            "def f():\n    try: g()\n    finally:\n        return 1",
            [(4, "swallowing: return in finally")],
        ),
        (
            "import redrive.app",
            [(1, "unknown module: redrive.app, of which redrive.policy is open")],
        ),
        ("def f(", [(1, "no Python: '(' was never closed")]),
    ],
)
def test_a_use_is_found_with_its_kind_and_line(source, expected):
    assert found(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("N = 0\ndef f():\n    global N\n    N += 1", ["3 global N"]),
        ("S = []\ndef f():\n    S.append(1)", ["3 a write to the module's S"]),
        ("S = {}\ndef f():\n    S['a'] = 1", ["3 a write to the module's S"]),
        (
            "class A:\n    n = 0\n    def f(self):\n        A.n += 1",
            ["4 a write to the module's A"],
        ),
        ("import re\ndef f():\n    re.x = 1", ["3 a write to the imported re"]),
        ("def f(x=[]): pass", ["1 a default of f that can be changed"]),
        ("def f(*, x=dict()): pass", ["1 a default of f that can be changed"]),
        (
            "class P:\n    def evaluate(self, e, s):\n        self.n = 1\n        self.a.add(1)\n",
            ["3 a write to self outside __init__", "4 a write to self outside __init__"],
        ),
    ],
)
def test_state_that_outlives_an_evaluation_is_found(source, expected):
    assert [what.replace("state: ", f"{line} ") for line, what in found(source)] == expected


@pytest.mark.parametrize(
    "source",
    [
        "import re, json, math, collections, dataclasses, enum, typing, itertools, functools",
        "import statistics, textwrap, string, shlex, fnmatch, posixpath, urllib.parse",
        "from datetime import datetime, timedelta, timezone\ndatetime.fromisoformat('2020-01-01')",
        "from datetime import datetime, UTC\ndatetime.fromtimestamp(1, UTC)",
        "import time\ntime.gmtime(1), time.strftime('%Y', x)",
        "import os\nos.path.join('a', os.sep)",
        "from pathlib import PurePosixPath",
        "from redrive.policy import Event\nimport redrive.policies.shell",
        "state.now, event.id, event.open()",
        "def f(open, hash):\n    return open(hash)",
        "def f(time):\n    return time.time()",
        "def open(x): pass\nopen(1)",
        "SEEN = []\nSEEN.append(1)",
        "SEEN = []\ndef f():\n    SEEN = []\n    SEEN.append(1)",
        "class P:\n    def __init__(self):\n        self.a = 1\n    def evaluate(self, e, s): pass",
        "class Reader:\n    def step(self):\n        self.at += 1",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy\nelse:\n    x = 1",
        "import logging\nlogging.getLogger('x').info('y')\nprint('z')",
        "match x:\n    case {'a': 1, **hash} | [*id]:\n        hash, id",
        "f = lambda open: open(1)",
        "try: f()\nexcept ValueError as id: id",
    ],
)
def test_what_is_harmless_is_no_finding(source):
    assert found(source) == []


def test_a_third_party_module_is_a_finding_unless_it_is_declared():
    source = "import sqlglot.expressions as e\nfrom numpy.random import rand\nimport numpy as np\n"
    first = scan_source(source, "p.py")
    assert [f.what for f in first] == [
        "undeclared library: sqlglot is imported",
        "randomness: numpy.random",
        "undeclared library: numpy is imported",
    ]
    assert first[0].hint == (
        'declare it: LIBRARIES = ("sqlglot",) in the file, or libraries = ("sqlglot",) in the class'
    )
    declared = "LIBRARIES = ('sqlglot', 'numpy')\nnp.random.rand()\nnp.array\n"
    assert found(source + declared) == [
        (2, "randomness: numpy.random"),
        (5, "randomness: numpy.random"),
    ]


def test_modules_beside_the_policy_are_followed_once_and_named():
    texts = {"rules": "import more\nimport time\ntime.time()", "more": "import rules\nopen('x')"}
    source = "from rules import check\nfrom . import more\nimport absent"
    findings = scan_source(source, "folder/p.py", texts.get)
    assert [(f.file, f.line, f.what) for f in findings] == [
        ("folder/more.py", 2, "file: open"),
        ("folder/p.py", 3, "undeclared library: absent is imported"),
        ("folder/rules.py", 3, "clock: time.time"),
    ]


def test_the_modules_of_a_policys_own_package_are_followed_too():
    source = "from own.part import rules\nfrom .more import x\nimport own.other, own.part.rules"
    texts = {"rules": "open('x')", "more": "import random", "other": "import time"}
    findings = scan_source(source, "part/p.py", texts.get, package="own.part")
    assert [(f.file, f.what) for f in findings] == [
        ("part/more.py", "randomness: random is imported"),
        ("part/rules.py", "file: open"),
    ]


def test_a_module_beside_the_policy_does_not_hide_one_of_the_standard_library():
    assert scan_source("import json", "p.py", {"json": "open('x')"}.get) == ()
