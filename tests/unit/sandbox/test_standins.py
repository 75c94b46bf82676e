import json
import subprocess
import sys
from pathlib import Path

import pytest

from redrive.sandbox.refused import LET_THROUGH
from redrive.sandbox.scan import scan_source
from tests.unit.sandbox.effects import EFFECTS

TEXTS = {effect.name: effect.text for effect in EFFECTS}
FRAME = "class Policy:\n    def evaluate(self, event, state):\n        return "


def test_without_the_nets_each_effect_happens(run):
    results = run("open", TEXTS)
    assert {name for name in TEXTS if results[name]["returned"] == "None"} == set()


def test_each_effect_is_caught_by_the_nets_that_the_table_names(run):
    results = run("sealed", TEXTS)
    caught = {}
    for effect in EFFECTS:
        nets = {"scan"} if scan_source(effect.text, "p.py") else set()
        if results[effect.name]["violations"]:
            nets.add("stand-in")
        caught[effect.name] = nets
    assert caught == {effect.name: set(effect.nets) for effect in EFFECTS}


def test_a_refusal_names_kind_file_and_line_and_nothing_ran(run, tmp_path):
    results = run("sealed", TEXTS)
    for effect in EFFECTS:
        result = results[effect.name]
        if "stand-in" not in effect.nets:
            continue
        assert ("fault" in result) == (not effect.is_swallowed), effect.name
        what, file, line = result["violations"][0]
        assert what.partition(":")[0].isprintable()
        assert (file, line > 0) == (str(tmp_path / f"{effect.name}.py"), True), effect.name
    made = {path.name for path in tmp_path.iterdir() if path.suffix != ".py"}
    assert made == set()


def test_libraries_that_were_declared_work_after_the_seal(run):
    sql, shell = "import sqlglot\n", "import tree_sitter as t\nimport tree_sitter_bash as b\n"
    parser = "t.Parser(t.Language(b.language()))"
    results = run(
        "sealed",
        {
            "sql": f"{sql}{FRAME}sqlglot.parse_one('a IN (1, 2)').sql()",
            "command": f"{sql}{FRAME}sqlglot.parse_one('VACUUM x y z', read='sqlite').sql()",
            "shell": f"{shell}{FRAME}{parser}.parse(b'ls | sort').root_node.child(0).type",
        },
    )
    assert {name: (row.get("returned"), row["violations"]) for name, row in results.items()} == {
        "sql": ("'a IN (1, 2)'", []),
        "command": ("'VACUUM x y z'", []),
        "shell": ("'pipeline'", []),
    }


def test_the_harmless_standard_library_works_in_a_policy(run):
    text = (Path(__file__).with_name("harmless.py")).read_text()
    result = run("sealed", {"harmless": text})["harmless"]
    assert scan_source(text, "harmless.py") == ()
    assert result["violations"] == []
    assert result["returned"] == "'fine'"


def test_modules_may_be_loaded_for_the_first_time_after_the_seal(run):
    names = (
        "asyncio",
        "zoneinfo",
        "email.mime.text",
        "urllib.request",
        "multiprocessing",
        "secrets",
    )
    results = run("sealed", {n.replace(".", "_"): f"import {n}\n{FRAME}1" for n in names})
    assert {name: row["violations"] for name, row in results.items()} == {
        name.replace(".", "_"): [] for name in names
    }


LET_THROUGH_CODE = {
    "C extensions": "database.execute('SELECT random()').fetchone()[0] != 0.5",
    "references that a declared library": "library.time() > 0",
    "exec, eval and compile inside": "namedtuple('A', 'b')(1).b == 1",
    "sys._getframe": "sys._getframe().f_lineno > 0",
    "reading .py": "__import__('chunk' if sys.version_info < (3, 13) else 'bdb') is not None",
    "datetime.now and utcnow": "event.now() is not None",
    "random.Random(seed)": "random.Random(4).random() == random.Random(4).random()",
    "time.localtime": "time.localtime(0).tm_year in (1969, 1970)",
    "hash() and id()": "hash('a') == hash('a') and id(event) > 0",
    "waiting without a clock": "__import__('select').select([], [], [], 0) == ([], [], [])",
    "print and log": "print('seen') is None",
}
LET_THROUGH_CHILD = """
import datetime, json, os, sqlite3, sys, types, warnings
from collections import namedtuple
warnings.simplefilter("ignore")
from redrive.sandbox.loading import PolicySource, import_policy
from redrive.sandbox.standins import seal
write = os.write
library = types.ModuleType("library")
exec("from time import time", vars(library))
given = {"event": datetime.datetime(2020, 1, 1), "library": library,
         "database": sqlite3.connect(":memory:"), "namedtuple": namedtuple}
codes = json.loads(sys.argv[1])
sealed = seal()
for key, code in codes.items():
    text = "import random, sys, time\\ndef check(event, library, database, namedtuple):"
    text += " return " + code
    check = import_policy(sealed, PolicySource("p.py", text), "check")
    with sealed:
        answer = check(**given)
    row = [key, answer, sealed.take_violations() == (), sealed.printed_chars]
    write(1, json.dumps(row).encode())
    write(1, b"\\n")
"""


def test_what_is_let_through_is_named_and_does_pass():
    command = [sys.executable, "-c", LET_THROUGH_CHILD, json.dumps(LET_THROUGH_CODE)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    rows = {key: rest for key, *rest in map(json.loads, done.stdout.splitlines())}
    assert {key for key, row in rows.items() if row[:2] != [True, True]} == set()
    assert rows.keys() == LET_THROUGH_CODE.keys()
    assert rows["print and log"][2] == len("seen\n")
    unnamed = [text for text in LET_THROUGH if not text.startswith(tuple(LET_THROUGH_CODE))]
    assert [text.partition(",")[0] for text in unnamed] == ["coverage"]


def run_code(code: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


SEALED = """
import os, sys
write = os.write
from redrive.sandbox.standins import seal
{before}
sealed = seal()
{after}
"""


def test_coverage_goes_on_measuring_a_sealed_process(tmp_path):
    (tmp_path / "measured.py").write_text("def f():\n    return 1\n")
    code = SEALED.format(
        before=f"import coverage\nsys.path.insert(0, {str(tmp_path)!r})\n"
        f"c = coverage.Coverage(data_file={str(tmp_path / 'data')!r}, include='*measured.py',"
        " config_file=False)\nc.start()",
        after="with sealed:\n    import measured\n    measured.f()\nc.stop()\nc.save()\n"
        "write(1, repr(c.get_data().lines(measured.__file__)).encode())",
    )
    # A child that coverage measures already would measure the inner coverage too.
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={}
    )
    assert (done.stdout, done.stderr) == ("[1, 2]", "")


def test_what_the_worker_took_hold_of_before_the_seal_goes_on_working():
    out = run_code(
        SEALED.format(
            before="import sqlite3, zstandard, msgspec\nread, (a, b) = os.read, os.pipe()\n"
            "database = sqlite3.connect(':memory:')",
            after="write(b, msgspec.json.encode({'a': 1}))\n"
            "data = zstandard.decompress(zstandard.compress(read(a, 9)))\n"
            "database.execute('CREATE TABLE t AS SELECT 1 AS n')\n"
            "write(1, data + repr(database.execute('SELECT n FROM t').fetchall()).encode())",
        )
    )
    assert out == '{"a":1}[(1,)]'


def test_arming_is_a_flag_that_ends_with_the_block_also_after_an_error():
    out = run_code(
        SEALED.format(
            before="",
            after="states = [sealed.is_armed]\n"
            "try:\n    with sealed.policy_code():\n        states.append(sealed.is_armed); 1 / 0\n"
            "except ZeroDivisionError:\n    states.append(sealed.is_armed)\n"
            "write(1, repr(states).encode())",
        )
    )
    assert out == "[False, True, False]"


def test_violations_are_bounded_and_taken_once():
    out = run_code(
        SEALED.format(
            before="import time",
            after="for _ in range(300):\n    try:\n        time.time()\n"
            "    except BaseException as error:\n        last = error\n"
            "taken = sealed.take_violations()\n"
            "rest = sealed.take_violations()\n"
            "write(1, repr([len(taken), taken[0].what, str(last), rest]).encode())",
        )
    )
    assert out == "[100, 'clock: time.time', 'clock: time.time', ()]"


def test_numpy_draws_nothing_where_it_is_a_declared_library():
    pytest.importorskip("numpy")
    out = run_code(
        SEALED.format(
            before="import numpy as np, numpy.random",
            after="calls = (np.random.rand, np.random.default_rng, np.random.RandomState,"
            " np.random.PCG64, lambda: np.array([1, 2]).sum())\nfound = []\n"
            "for call in calls:\n    try:\n        call()\n"
            "    except BaseException as error:\n        pass\n"
            "    found.append(len(sealed.take_violations()))\n"
            "found.append(isinstance(1, np.random.Generator))\n"
            "write(1, repr(found).encode())",
        )
    )
    assert out == "[1, 1, 1, 1, 0, False]"


def test_values_of_datetime_stay_what_they_were():
    out = run_code(
        SEALED.format(
            before="import datetime, msgspec\nreal = datetime.datetime",
            after="decoded = msgspec.json.decode(b'\"2020-01-01T00:00:00Z\"', type=real)\n"
            "made = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)\n"
            "class Own(datetime.datetime): pass\n"
            "own = Own(2020, 1, 1)\n"
            "write(1, repr([type(made) is real, made == decoded,"
            " isinstance(decoded, datetime.datetime), isinstance(decoded, datetime.date),"
            " isinstance(1, datetime.date),"
            " issubclass(datetime.datetime, datetime.date), isinstance(own, Own),"
            " isinstance(decoded, Own), type(datetime.datetime.strptime('2020', '%Y')) is real,"
            " made - datetime.timedelta(1) < datetime.datetime.max.replace(tzinfo=made.tzinfo)"
            "]).encode())",
        )
    )
    assert out == "[True, True, True, True, False, True, True, False, True, True]"
