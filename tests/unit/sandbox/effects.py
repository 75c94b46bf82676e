"""What a policy may not do, one row each: how it is written, and which net catches it."""

from textwrap import indent
from typing import NamedTuple

BOTH = frozenset(("scan", "stand-in"))
SCAN = frozenset(("scan",))
STAND_IN = frozenset(("stand-in",))


class Effect(NamedTuple):
    name: str
    body: str
    top: str = ""
    nets: frozenset[str] = BOTH
    is_swallowed: bool = False

    @property
    def text(self) -> str:
        body = indent(self.body, " " * 8)
        return f"{self.top}\nclass Policy:\n    def evaluate(self, event, state):\n{body}\n"


EFFECTS = (
    Effect("clock_attribute", "return time.time()", "import time"),
    Effect("clock_from_import", "return time()", "from time import time"),
    Effect("clock_now", "return datetime.now()", "from datetime import datetime"),
    Effect("clock_now_utc", "return dt.datetime.now(dt.timezone.utc)", "import datetime as dt"),
    Effect("clock_utcnow", "return datetime.utcnow()", "from datetime import datetime"),
    Effect("clock_getattr", 'return getattr(time, "mono" + "tonic")()', "import time"),
    Effect("clock_dunder_import", 'return __import__("ti" + "me").time()'),
    Effect("clock_importlib", 'return importlib.import_module("time").time()', "import importlib"),
    Effect("clock_today", "return datetime.date.today()", "import datetime"),
    Effect("clock_gmtime", "return time.gmtime()", "import time as t; time = t"),
    Effect("clock_strftime", 'return time.strftime("%s")', "import time"),
    Effect("clock_sleep", "return time.sleep(0.001) or 1", "import time"),
    Effect("clock_instance", "return [event][0].now()", nets=SCAN),
    Effect("clock_through_logging", "return logging.time.time()", "import logging", STAND_IN),
    Effect("random_function", "return random.random()", "import random"),
    Effect("random_from_import", "return choice([1, 2])", "from random import choice"),
    Effect("random_generator", "return random.Random().random()", "import random"),
    Effect("random_system", "return random.SystemRandom().random()", "import random"),
    Effect("random_c", "return _random.Random().random()", "import _random"),
    Effect(
        "random_through_statistics", "return s.random.random()", "import statistics as s", STAND_IN
    ),
    Effect("secrets_token", "return secrets.token_hex()", "import secrets"),
    Effect("uuid_4", "return uuid.uuid4()", "import uuid"),
    Effect("uuid_1", "return uuid1()", "from uuid import uuid1"),
    Effect("os_urandom", "return os.urandom(4)", "import os"),
    Effect("identity_hash", 'return hash("x")', nets=SCAN),
    Effect("identity_id", "return id(event)", nets=SCAN),
    Effect("read_open", "return open(__file__).read()"),
    Effect("read_io_open", "return io.open(__file__).read()", "import io"),
    Effect("read_pathlib", "return Path(__file__).read_text()", "from pathlib import Path"),
    Effect("read_os_open", "return os.open(__file__, 0)", "import os"),
    Effect("read_posix_open", "return posix.open(__file__, 0)", "import posix"),
    Effect("read_fileio", "return io.FileIO(__file__).read()", "import io"),
    Effect("read_loader", "return json.__spec__.loader.get_data(__file__)", "import json"),
    Effect("read_codecs", "return codecs.open(__file__).read()", "import codecs"),
    Effect("read_sqlite", 'return sqlite3.connect("FOLDER/x.db")', "import sqlite3"),
    Effect("read_exists", "return os.path.exists(__file__)", "import os"),
    Effect("read_stat", "return posix.stat(__file__)", "import posix"),
    Effect("read_listdir", 'return os.listdir("FOLDER")', "import os"),
    Effect("read_scandir", 'return list(os.scandir("FOLDER"))', "from os import path; import os"),
    Effect("read_glob", 'return glob.glob("FOLDER/*")', "import glob"),
    Effect("read_cwd", "return os.getcwd()", "import os"),
    Effect("write_open", 'return open("FOLDER/made", "w").write("x")'),
    Effect("write_pathlib", 'return pathlib.Path("FOLDER/m").write_text("x")', "import pathlib"),
    Effect("write_mkdir", 'return os.makedirs("FOLDER/d") or 1', "import os"),
    Effect("write_tempfile", "return tempfile.mkstemp()", "import tempfile"),
    Effect("write_os_write", 'return os.write(2, b"")', "import os"),
    Effect("net_socket", "return socket.socket()", "import socket"),
    Effect("net_socket_c", "return _socket.socket()", "import _socket"),
    Effect("net_resolve", 'return socket.getaddrinfo("127.0.0.1", 80)', "import socket"),
    Effect(
        "net_urllib",
        'return urllib.request.urlopen("http://127.0.0.1:PORT").read()',
        "import urllib.request",
    ),
    Effect(
        "net_http",
        'c = http.client.HTTPConnection("127.0.0.1", PORT)\nc.request("GET", "/")\n'
        "return c.getresponse().read()",
        "import http.client",
    ),
    Effect("env_item", 'return os.environ["PATH"]', "import os"),
    Effect("env_get", 'return environ.get("PATH")', "from os import environ"),
    Effect("env_getenv", 'return os.getenv("PATH")', "import os"),
    Effect("env_posix", "return dict(posix.environ)", "import posix"),
    Effect("env_pid", "return os.getpid()", "import os"),
    Effect("process_run", 'return subprocess.run(["true"])', "import subprocess"),
    Effect(
        "process_fork_exec",
        'return subprocess._fork_exec and subprocess.getoutput("true") == ""',
        "import subprocess",
    ),
    Effect("process_system", 'return os.system("true") + 1', "import os"),
    Effect(
        "process_fork",
        "child = os.fork()\nreturn os.waitpid(child, 0) if child else os._exit(0)",
        "import os",
    ),
    Effect("process_spawn", 'return os.posix_spawn("/bin/sh", ["sh", "-c", ":"], {})', "import os"),
    Effect("process_kill", "return os.kill(os.getpid(), 0) or 1", "import os"),
    Effect("thread_start", "return threading.Thread(target=int).start() or 1", "import threading"),
    Effect("thread_c", "return _thread.start_new_thread(int, ())", "import _thread"),
    Effect("signal_alarm", "return signal.alarm(0) + 1", "import signal"),
    Effect("foreign_ctypes", "return ctypes.CDLL(None).getpid()", "import ctypes"),
    Effect("dynamic_eval", 'return eval("1 + 1")'),
    Effect("dynamic_exec", 'exec("x = 1")\nreturn 1'),
    Effect("dynamic_compile", 'return compile("1", "x", "eval")'),
    Effect("dynamic_builtins", 'return builtins.eval("1 + 1")', "import builtins"),
    Effect("memory_objects", "return len(gc.get_objects())", "import gc"),
    Effect("process_settrace", "return sys.settrace(None) or 1", "import sys"),
    Effect("state_global", "global N\nN += 1\nreturn N", "N = 0", SCAN),
    Effect("state_module", "SEEN.append(1)\nreturn SEEN", "SEEN = []", SCAN),
    Effect("state_self", "self.n = 1\nreturn self.n", nets=SCAN),
    Effect(
        "swallowed_exception",
        "try:\n    return time.time()\nexcept Exception:\n    return 0",
        "import time",
    ),
    Effect(
        "swallowed_base",
        "try:\n    return time.time()\nexcept BaseException:\n    return 0",
        "import time",
        is_swallowed=True,
    ),
    Effect(
        "swallowed_bare",
        "try:\n    return open(__file__).read()\nexcept:\n    return 0",
        is_swallowed=True,
    ),
    Effect(
        "swallowed_finally",
        "try:\n    return time.time()\nfinally:\n    return 1",
        "import time",
        is_swallowed=True,
    ),
)
