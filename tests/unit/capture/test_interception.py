"""Interception changes modules of the process, so each test runs a process of its own."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from redrive.capture.interception import captured_by, intercept
from redrive.errors import UsageError
from tests.reading_backend import ReadingBackend

ROOT = Path(__file__).resolve().parents[3]

PREAMBLE = """
import sys
from tests.reading_backend import ReadingBackend
from redrive.capture.interception import intercept
"""


class Project:
    """An agent's folder, with a folder of installed packages beside its modules."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))

    def run(self, text: str, *options: str) -> str:
        """Run a main script; what it prints."""
        self.write("main.py", PREAMBLE + textwrap.dedent(text))
        done = subprocess.run(
            [sys.executable, "-W", "ignore", *options, str(self.root / "main.py")],
            env={
                **os.environ,
                "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}:{self.root / 'site-packages'}",
            },
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "agent")


AGENT = """
import datetime as d, os, random as r, secrets, time, uuid
from datetime import UTC, date, datetime, timezone
from os import urandom
from random import choice, uniform
from time import monotonic, sleep, time as now
from uuid import uuid4
from zoneinfo import ZoneInfo

rng = r.Random(5)
jitter = rng.uniform
system = r.SystemRandom()
utc = datetime.utcnow

class Moment(datetime):
    pass

class Draws(r.Random):
    def twice(self):
        return 2 * self.random()

own = Draws(3)

def act():
    items = [1, 2, 3, 4]
    r.shuffle(items)
    import time as late
    from time import perf_counter
    return [
        time.time(), now(), time.time_ns(), monotonic(), late.monotonic_ns(), perf_counter(),
        time.localtime(), time.gmtime(None), time.strftime("%Y"), time.ctime(), time.asctime(),
        time.clock_gettime(time.CLOCK_REALTIME), time.process_time(), time.thread_time_ns(),
        datetime.now(), datetime.now(UTC), d.datetime.now(tz=ZoneInfo("Europe/Berlin")),
        datetime.utcnow(), utc(), datetime.today(), date.today(), Moment.now(UTC), Moment.today(),
        r.random(), uniform(0, 1), choice("abc"), r.choices("abc", k=2), r.sample(items, 2), items,
        rng.random(), jitter(1, 2), rng.randint(1, 6), system.random(), system.choice("abc"),
        own.random(), own.twice(), r.Random(1).gauss(0, 1), r.getrandbits(9), r.randbytes(2),
        uuid.uuid1(), uuid4(), secrets.token_hex(4), secrets.token_bytes(4), secrets.choice("ab"),
        secrets.token_urlsafe(4), secrets.randbelow(9), secrets.randbits(9),
        os.urandom(4), urandom(4), *(os.getrandom(4) for _ in range(hasattr(os, "getrandom"))),
    ]
"""
EXPECTED = [
    "random.shuffle(len=4)", "time.time", "time.time", "time.time_ns", "time.monotonic",
    "time.monotonic_ns", "time.perf_counter", "time.localtime", "time.gmtime",
    "time.strftime('%Y')", "time.ctime", "time.asctime", "time.clock_gettime(CLOCK_REALTIME)",
    "time.process_time", "time.thread_time_ns", "datetime.now", "datetime.now(UTC)",
    "datetime.now(Europe/Berlin)", "datetime.utcnow", "datetime.utcnow", "datetime.today",
    "date.today", "datetime.now(UTC)", "datetime.today", "random.random", "random.uniform(0, 1)",
    "random.choice(len=3)", "random.choices(len=3, k=2)", "random.sample(len=4, k=2)",
    "random.random", "random.uniform(1, 2)", "random.randint(1, 6)", "random.random",
    "random.choice(len=3)", "random.random", "random.random", "random.gauss(0, 1)",
    "random.getrandbits(9)", "random.randbytes(2)", "uuid.uuid1", "uuid.uuid4",
    "secrets.token_hex(4)", "secrets.token_bytes(4)", "secrets.choice(len=2)",
    "secrets.token_urlsafe(4)", "secrets.randbelow(9)", "secrets.randbits(9)", "os.urandom(4)",
    "os.urandom(4)", *(["os.getrandom(4)"] if hasattr(os, "getrandom") else []),
]  # fmt: skip


@pytest.mark.parametrize("when", ["before", "during"])
def test_every_read_of_the_agent_is_recorded_and_served_whenever_its_module_is_imported(
    project: Project, when: str
) -> None:
    project.write("agent.py", AGENT)
    early = "import agent" if when == "before" else ""
    out = project.run(f"""
        {early}
        recording = ReadingBackend()
        with intercept(recording):
            import agent
            first = agent.act()
        serving = recording.rerun()
        with intercept(serving):
            second = agent.act()
        third = agent.act()
        print(recording.names)
        print(first == second, [type(a) for a in first] == [type(b) for b in second])
        print(serving.names == recording.names, third == first)
    """)
    assert out.splitlines() == [str(EXPECTED), "True True", "True False"]


def test_recorded_values_are_the_real_ones_and_served_ones_are_what_the_agent_sees(
    project: Project,
) -> None:
    out = project.run("""
        import time
        from time import time as now
        recording = ReadingBackend()
        with intercept(recording, ["time"]):
            seen = [time.time(), now()]
        print(seen == recording.values, abs(time.time() - seen[0]) < 60)
        with intercept(ReadingBackend([("time.time", 12.5), ("time.time", 13)]), ["time"]):
            print(time.time(), now())
    """)
    assert out == "True True\n12.5 13.0\n"


def test_at_the_end_everything_is_as_it_was_also_after_an_error(project: Project) -> None:
    project.write("agent.py", AGENT)
    out = project.run("""
        import agent, datetime, os, random, secrets, time, uuid
        modules = [datetime, os, random, secrets, time, uuid, agent]
        classes = [datetime.datetime, datetime.date, random.Random, random.SystemRandom]
        def look():
            places = [vars(m) for m in modules] + [vars(c) for c in classes]
            return [dict(place) for place in places], [type(m) for m in modules]
        before = look()
        try:
            with intercept(ReadingBackend()):
                during = look()
                import agent
                raise KeyError("x")
        except KeyError:
            pass
        after = look()
        print(before == after, before == during, [type(v) for v in (agent.now, agent.utc)])
    """)
    builtin = "<class 'builtin_function_or_method'>"
    assert out == f"True False [{builtin}, {builtin}]\n"


def test_a_failure_while_it_begins_leaves_nothing_behind(project: Project) -> None:
    out = project.run("""
        import time, types
        from redrive.capture import interception
        def fail(self):
            raise OSError("no")
        real = interception._STARTERS
        interception._STARTERS = {**real, "uuid": fail}
        try:
            with intercept(ReadingBackend()):
                print("never")
        except OSError:
            print(type(time) is types.ModuleType, type(time.time).__name__)
        interception._STARTERS = real
        with intercept(ReadingBackend()):
            print("again")
    """)
    assert out == "True builtin_function_or_method\nagain\n"


def test_other_code_gets_the_very_functions_that_it_always_got(project: Project) -> None:
    project.write(
        "site-packages/lib.py",
        """
        import datetime, random, time, uuid
        def look():
            return time.time, datetime.datetime.now, uuid.uuid4, random.Random.uniform
        def read():
            rng = random.Random(1)
            dice = rng.uniform(0, 1), rng.choice([1])
            return time.time(), datetime.datetime.now(), uuid.uuid4(), datetime.date.today(), dice
        """,
    )
    out = project.run("""
        import lib
        before = lib.look()
        backend = ReadingBackend([])
        with intercept(backend):
            print(lib.look() == before, len(lib.read()), backend.reads)
    """)
    assert out == "True 5 []\n"


def test_asyncio_logging_and_an_http_client_read_the_real_clock(project: Project) -> None:
    out = project.run("""
        import asyncio, logging, threading, time
        import httpx2
        from http.server import BaseHTTPRequestHandler, HTTPServer

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(204)
                self.end_headers()
            def log_message(self, *args):
                pass

        async def wait():
            start = asyncio.get_running_loop().time()
            await asyncio.sleep(0.02)
            async with asyncio.timeout(30):
                pass
            return asyncio.get_running_loop().time() - start >= 0.02

        server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        backend = ReadingBackend([])
        with intercept(backend):
            made = logging.LogRecord("x", 10, "x", 1, "x", (), None).created
            is_slept = asyncio.run(wait())
            with httpx2.Client(trust_env=False) as client:
                answer = client.get(f"http://127.0.0.1:{server.server_port}/")
            status, elapsed = answer.status_code, answer.elapsed.total_seconds()
        print(abs(made - time.time()) < 60, is_slept, status, elapsed > 0, backend.reads)
        server.shutdown()
        server.server_close()
    """)
    assert out == "True True 204 True []\n"


def test_what_the_agent_hands_to_a_library_is_recorded_where_the_library_calls_it(
    project: Project,
) -> None:
    out = project.run("""
        import dataclasses, datetime, functools, time, uuid
        import pydantic
        backend = ReadingBackend()
        with intercept(backend):
            class Task(pydantic.BaseModel):
                id: uuid.UUID = pydantic.Field(default_factory=uuid.uuid4)
                at: datetime.datetime = pydantic.Field(default_factory=datetime.datetime.now)

            @dataclasses.dataclass
            class Note:
                at: float = dataclasses.field(default_factory=time.time)

            task, note = Task(), Note()
            list(map(lambda f: f(), [time.monotonic, functools.partial(time.time)]))
        print(backend.names)
        print(backend.values[:3] == [str(task.id), task.at.isoformat(), note.at])
        print(Task().at > task.at, Note().at > note.at, len(backend.reads))
    """)
    names = "['uuid.uuid4', 'datetime.now', 'time.time', 'time.monotonic', 'time.time']"
    assert out.splitlines() == [names, "True", "True True 5"]


def test_datetime_stays_one_class_for_everybody(project: Project) -> None:
    project.write("site-packages/early.py", "import datetime\nCLASS = datetime.datetime\n")
    out = project.run("""
        import copy, pickle, early, msgspec
        with intercept(ReadingBackend()):
            from datetime import date, datetime
            value = datetime.now()
            print(datetime is early.CLASS, type(value) is datetime, isinstance(value, date))
            class Task(msgspec.Struct):
                due: datetime
            print(msgspec.json.decode(b'{"due":"2026-01-02T03:04:05"}', type=Task).due.year)
            print(pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == value)
            match value:
                case datetime():
                    print("matched")
    """)
    assert out == "True True True\n2026\nTrue\nmatched\n"


def test_a_sleep_of_the_agent_is_skipped_in_a_rerun_and_a_librarys_is_not(project: Project) -> None:
    project.write("site-packages/lib.py", "import time\ndef wait():\n    time.sleep(0.02)\n")
    out = project.run("""
        import lib, time
        from time import sleep
        clock = time.monotonic
        def lasts(function, *args):
            before = sys.modules["lib"].time.__dict__["monotonic"]()
            function(*args)
            return sys.modules["lib"].time.__dict__["monotonic"]() - before
        with intercept(ReadingBackend([])):
            print(lasts(time.sleep, 3600) < 60, lasts(sleep, 3600) < 60, lasts(lib.wait) >= 0.02)
            try:
                time.sleep(-1)
            except ValueError:
                print("refused")
        with intercept(ReadingBackend()):
            print(lasts(time.sleep, 0.02) >= 0.02)
    """)
    assert out == "True True True\nrefused\nTrue\n"


def test_a_thread_of_the_agent_reads_as_its_main_flow_does(project: Project) -> None:
    out = project.run("""
        import random, threading, time
        from concurrent.futures import ThreadPoolExecutor
        backend = ReadingBackend()
        seen = []
        def work():
            for _ in range(200):
                seen.append(time.monotonic_ns())
                seen.append(random.getrandbits(64))
        with intercept(backend):
            threads = [threading.Thread(target=work) for _ in range(8)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            with ThreadPoolExecutor(2) as pool:
                seen.append(pool.submit(time.time_ns).result())
        print(sorted(seen) == sorted(backend.values), len(seen))
    """)
    assert out == "True 3201\n"


def test_a_mock_of_a_test_is_what_is_read(project: Project) -> None:
    out = project.run("""
        import time
        from unittest import mock
        backend = ReadingBackend()
        with intercept(backend):
            with mock.patch("time.time", return_value=5.0):
                print(time.time())
            with mock.patch.object(time, "monotonic", lambda: 6.0):
                print(time.monotonic())
            print(time.time() > 7)
        print(backend.values[:2], type(time.time).__name__)
    """)
    assert out == "5.0\n6.0\nTrue\n[5.0, 6.0] builtin_function_or_method\n"


def test_a_name_that_is_deleted_is_gone_for_libraries_as_without_us(project: Project) -> None:
    project.write(
        "site-packages/lib.py", "import time\ndef has():\n    return hasattr(time, 'time_ns')\n"
    )
    out = project.run("""
        import lib, time
        with intercept(ReadingBackend()):
            del time.time_ns
            print(lib.has())
    """)
    assert out == "False\n"


def test_a_stand_in_that_is_left_behind_reads_the_real_thing(project: Project) -> None:
    out = project.run("""
        import copy, random, time
        from datetime import datetime
        backend = ReadingBackend([])
        with intercept(backend):
            kept = [time.time, random.Random(1).random, datetime.now, copy.deepcopy(time.time)]
            print(kept[0] is kept[3] is copy.copy(kept[0]), repr(kept[0]), kept[0].__name__)
        print([type(function()).__name__ for function in kept], backend.reads)
    """)
    assert out.splitlines() == [
        "True <recorded <built-in function time>> time",
        "['float', 'float', 'datetime', 'float'] []",
    ]


def test_wrong_arguments_are_refused_as_python_refuses_them(project: Project) -> None:
    out = project.run("""
        import datetime, time
        calls = [
            lambda: time.time(1), lambda: time.time(a=1), lambda: datetime.datetime.now(1),
            lambda: datetime.datetime.now(zone=None), lambda: datetime.datetime.now(None, None),
            lambda: datetime.date.today(1), lambda: time.sleep(seconds=1),
        ]
        for backend in (ReadingBackend(), ReadingBackend([])):
            with intercept(backend):
                for call in calls:
                    try:
                        call()
                        print("accepted")
                    except TypeError:
                        pass
            print(backend.reads)
    """)
    assert out == "[]\n[]\n"


def test_code_made_from_text_and_typed_in_counts_by_whose_names_it_uses(project: Project) -> None:
    project.write(
        "site-packages/lib.py",
        "def run(text, names):\n    exec(text, names)\n    return names['out']\n",
    )
    text = f"""
import time
from collections import namedtuple
import lib
{PREAMBLE}
backend = ReadingBackend()
with intercept(backend):
    out = [time.time(), eval("time.time()")]
    lib.run("import time\\nout = time.time()", {{"__name__": "lib", "__file__": lib.__file__}})
    lib.run("import time\\nout = time.time()", dict(globals()))
print(len(backend.reads))
"""
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}:{project.root / 'site-packages'}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("3\n", "")


def test_a_forked_child_reads_the_real_thing_unrecorded(project: Project) -> None:
    out = project.run("""
        import os, time
        backend = ReadingBackend([("time.time", 1.0)])
        with intercept(backend):
            child = os.fork()
            if child == 0:
                os._exit(0 if time.time() > 2 and type(time.time).__name__[0] == "b" else 1)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), time.time())
    """)
    assert out == "0 1.0\n"


def test_a_module_can_be_pickled_by_name_meanwhile(project: Project) -> None:
    out = project.run("""
        import pickle, time
        with intercept(ReadingBackend()):
            print(pickle.loads(pickle.dumps(time)) is time)
    """)
    assert out == "True\n"


def test_what_is_handed_to_a_process_of_a_pool_is_pickled_as_without_us(project: Project) -> None:
    out = project.run("""
        import concurrent.futures, multiprocessing, pickle, random, time, uuid
        from datetime import datetime
        backend = ReadingBackend()
        rng = random.Random(7)
        with intercept(backend):
            functions = [time.time, uuid.uuid4, random.random, rng.random, datetime.now]
            fork = multiprocessing.get_context("fork")
            with concurrent.futures.ProcessPoolExecutor(1, mp_context=fork) as pool:
                values = [pool.submit(function).result() for function in functions]
            print([type(value).__name__ for value in values], len(backend.reads))
            for function in pickle.loads(pickle.dumps(functions)):
                function()
            print(len(backend.reads), values[3] == rng.random())
        print(pickle.loads(pickle.dumps(functions[0])) is time.time)
    """)
    assert out.splitlines() == [
        "['float', 'UUID', 'float', 'float', 'datetime'] 0",
        "5 True",
        "True",
    ]


def test_a_method_that_is_looked_up_again_is_equal_as_without_us(project: Project) -> None:
    out = project.run("""
        import random
        from datetime import datetime
        with intercept(ReadingBackend()):
            one, other = random.Random(1), random.Random(1)
            print(one.random == one.random, one.random == other.random, one.random == 1)
            print(len({datetime.now, datetime.now}))
    """)
    assert out == "True False False\n1\n"


def test_a_class_that_cannot_be_reached_is_said_not_to_be_intercepted(project: Project) -> None:
    out = project.run("""
        from datetime import date, datetime
        from redrive.capture import interception
        real = interception.replace_in_class
        def refuse(cls, name, value):
            if cls is date and name == "today" and type(value).__name__ == "Method":
                raise TypeError("not here")
            return real(cls, name, value)
        interception.replace_in_class = refuse
        backend = ReadingBackend()
        with intercept(backend) as found:
            print(*sorted(found.names))
            print(interception.captured_by(found.names))
        print(type(datetime.now).__name__)
    """)
    assert out.splitlines() == [
        "os random secrets time uuid",
        "{'clock': 'not_captured', 'prng': 'captured'}",
        "builtin_function_or_method",
    ]


def test_only_what_is_asked_for_is_intercepted_and_whose_code_counts_can_be_said(
    project: Project,
) -> None:
    project.write("tools.py", "import time\ndef now():\n    return time.time()\n")
    out = project.run("""
        import random, time, tools
        backend = ReadingBackend()
        with intercept(backend, ["time"], is_agent_code=lambda name: name.endswith("tools.py")):
            time.time(), tools.now(), random.random()
        with intercept(backend, ["random"], roots=[]):
            random.random()
        print(backend.names)
    """)
    assert out == "['time.time']\n"


def test_the_machinery_is_never_the_agent_whatever_a_rule_says(project: Project) -> None:
    out = project.run("""
        import queue, time
        backend = ReadingBackend()
        with intercept(backend, is_agent_code=lambda name: True):
            time.time()
            try:
                queue.Queue().get(timeout=0.01)
            except queue.Empty:
                print(backend.names)
    """)
    assert out == "['time.time']\n"


def test_a_second_interception_is_refused_and_the_first_goes_on(project: Project) -> None:
    out = project.run("""
        import time
        from redrive.errors import UsageError
        backend = ReadingBackend()
        with intercept(backend):
            try:
                with intercept(ReadingBackend()):
                    print("never")
            except UsageError as error:
                print(error)
            time.time()
        with intercept(backend):
            time.time()
        print(len(backend.reads))
    """)
    assert out == "reads are being intercepted already\n2\n"


def test_an_unknown_source_is_refused_before_anything_is_replaced() -> None:
    with pytest.raises(UsageError, match="reads of numpy cannot be intercepted"):
        intercept(ReadingBackend(), ["time", "numpy"])


@pytest.mark.parametrize(
    ("names", "clock", "prng"),
    [
        (["time", "datetime"], "captured", "not_captured"),
        (["time", "random", "uuid", "secrets"], "not_captured", "not_captured"),
        (["random", "uuid", "secrets", "os"], "not_captured", "captured"),
        ([], "not_captured", "not_captured"),
    ],
)
def test_a_class_is_captured_only_where_all_its_sources_are(
    names: list[str], clock: str, prng: str
) -> None:
    assert captured_by(names) == {"clock": clock, "prng": prng}
