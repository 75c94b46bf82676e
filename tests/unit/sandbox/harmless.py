"""A policy that uses what a policy may use of the standard library."""

import collections
import dataclasses
import datetime
import decimal
import enum
import fnmatch
import functools
import hashlib
import itertools
import json
import math
import os.path
import posixpath
import re
import shlex
import statistics
import string
import textwrap
import time
import typing
import uuid
from urllib.parse import urlsplit


class Kind(enum.StrEnum):
    FINE = "fine"


Pair = collections.namedtuple("Pair", "a b")


class Named(typing.NamedTuple):
    a: int


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    when: datetime.datetime
    names: tuple[str, ...] = ()


@functools.lru_cache
def double(n: int) -> int:
    return 2 * n


class Policy:
    def evaluate(self, event, state):
        seen = Seen(datetime.datetime.fromisoformat("2020-01-01T00:00:00+00:00"), ("a",))
        moved = dataclasses.replace(seen, when=seen.when + datetime.timedelta(hours=1))
        names = list(moved.names)
        names.append("b")
        checks = (
            moved.when > event,
            isinstance(moved.when, datetime.date),
            re.sub("a+", "b", "caa") == "cb",
            json.loads(json.dumps({"a": [1]})) == {"a": [1]},
            decimal.Decimal("0.1") * 3 == decimal.Decimal("0.3"),
            Pair(1, 2).b == double(1) == len(names),
            Named(1)._asdict() == {"a": 1},
            typing.get_type_hints(Seen)["names"] == tuple[str, ...],
            math.isclose(statistics.mean([1, 2]), 1.5),
            shlex.split("rm -rf 'a b'") == ["rm", "-rf", "a b"],
            fnmatch.fnmatch("a.py", "*.py"),
            posixpath.join("a", "b") == os.path.join("a", "b"),
            hashlib.sha256(b"").hexdigest().startswith("e3b0"),
            datetime.datetime.strptime("2020+00:00", "%Y%z").year
            == time.gmtime(1577836800).tm_year,
            datetime.datetime.fromtimestamp(0, datetime.UTC).year == 1970,
            uuid.uuid5(uuid.NAMESPACE_URL, "a").version == 5,
            urlsplit("https://example.org/a").netloc == "example.org",
            string.Template("$a").substitute(a=textwrap.dedent(" b")) == "b",
            list(itertools.chain([1], [2])) == [1, 2],
        )
        return str(Kind.FINE) if all(checks) else repr(checks)
