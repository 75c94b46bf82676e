"""What the static scan knows of modules, functions and attributes, as tables.

Knows names alone. A kind is the first word of a finding; `HINTS` says what to do instead.

Source: DESIGN.md §7 "Purity".
"""

from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


HINTS: Final[dict[str, str]] = {
    "clock": "the event's ts is the policy's now",
    "randomness": "derive what varies from the event, such as a digest of its id",
    "file": "a policy sees the event and the state alone; write data into the policy's own text",
    "network": "a policy sees the event and the state alone; ask for an inference with `needs`",
    "environment": "make it a constant of the policy, and raise its version when it changes",
    "process": "return an action; a policy carries nothing out",
    "thread": "evaluate one event in one thread",
    "signal": "leave signals to the worker, which stops a policy that hangs",
    "dynamic code": "write the code out, so that it can be read before it runs",
    "foreign code": "use Python, or declare a library whose functions are pure",
    "state": "read it from the state, which is folded from the event's own ancestors",
    "identity": "it differs from process to process; compare values, or take a digest",
    "swallowing": "catch Exception or narrower, so that a stop reaches the worker",
    "unknown module": "not known to be without effects; do without it",
    "undeclared library": 'declare it: LIBRARIES = ("{name}",) in the file, '
    'or libraries = ("{name}",) in the class',
}

# Modules without effects, with all that is below them.
PURE_MODULES: Final = _words(
    "__future__ abc array ast base64 binascii bisect calendar cmath collections colorsys "
    "contextlib copy csv dataclasses decimal difflib enum errno fnmatch fractions functools "
    "graphlib hashlib heapq hmac html ipaddress itertools json keyword logging math ntpath "
    "numbers operator posixpath pprint quopri re reprlib shlex statistics string struct textwrap "
    "token tomllib types typing unicodedata urllib.parse warnings weakref xml.sax.saxutils zlib"
)

# Modules of which these attributes alone are without effects: module → (kind, attributes).
MIXED_MODULES: Final[dict[str, tuple[str, frozenset[str]]]] = {
    "builtins": ("dynamic code", frozenset()),
    "bz2": ("file", _words("compress decompress")),
    "codecs": ("file", _words("encode decode escape_decode escape_encode lookup BOM_UTF8")),
    "datetime": (
        "clock",
        _words("MAXYEAR MINYEAR UTC date datetime time timedelta timezone tzinfo"),
    ),
    "gzip": ("file", _words("decompress BadGzipFile")),
    "http": ("network", _words("HTTPStatus HTTPMethod")),
    "io": ("file", _words("StringIO BytesIO TextIOBase SEEK_SET SEEK_CUR SEEK_END")),
    "lzma": ("file", _words("compress decompress LZMAError")),
    "os": (
        "file",
        _words(
            "PathLike altsep curdir devnull extsep fsdecode fsencode fspath linesep pardir path "
            "pathsep sep"
        ),
    ),
    "os.path": (
        "file",
        _words(
            "altsep basename commonpath commonprefix curdir dirname extsep isabs join normcase "
            "normpath pardir pathsep sep split splitdrive splitext splitroot"
        ),
    ),
    "pathlib": ("file", _words("PurePath PurePosixPath PureWindowsPath")),
    "sys": (
        "environment",
        _words(
            "byteorder float_info hash_info int_info intern maxsize maxunicode version_info "
            "getrecursionlimit implementation"
        ),
    ),
    "time": ("clock", _words("struct_time strptime")),
    "urllib": ("network", _words("parse")),
    "uuid": (
        "randomness",
        _words(
            "NAMESPACE_DNS NAMESPACE_OID NAMESPACE_URL NAMESPACE_X500 NIL MAX RESERVED_FUTURE "
            "RESERVED_MICROSOFT RESERVED_NCS RFC_4122 SafeUUID UUID uuid3 uuid5"
        ),
    ),
}
# Where an attribute of a mixed module is of another kind than the module.
OTHER_KINDS: Final[dict[str, str]] = {
    "os.environ": "environment",
    "os.environb": "environment",
    "os.fork": "process",
    "os.getcwd": "environment",
    "os.getenv": "environment",
    "os.getpid": "environment",
    "os.getrandom": "randomness",
    "os.kill": "process",
    "os.popen": "process",
    "os.putenv": "environment",
    "os.system": "process",
    "os.urandom": "randomness",
    "sys._getframe": "dynamic code",
    "sys.exit": "process",
    "sys.modules": "dynamic code",
    "sys.setprofile": "dynamic code",
    "sys.setrecursionlimit": "process",
    "sys.settrace": "dynamic code",
    "sys.stderr": "file",
    "sys.stdin": "file",
    "sys.stdout": "file",
    "time.timezone": "environment",
    "time.tzname": "environment",
}
# Modules whose import is a finding in itself; one that stands nowhere is an "unknown module".
IMPURE_MODULES: Final[dict[str, str]] = {
    name: kind
    for kind, names in (
        ("randomness", "_random random secrets"),
        ("clock", "_datetime _time sched timeit zoneinfo"),
        (
            "file",
            "_io _pyio _sqlite3 dbm fcntl filecmp fileinput glob linecache mmap pickle pkgutil "
            "posix shelve shutil sqlite3 tarfile tempfile traceback zipfile zipimport",
        ),
        (
            "network",
            "_socket _ssl ftplib imaplib nntplib poplib select selectors smtplib socket "
            "socketserver ssl telnetlib webbrowser wsgiref xmlrpc",
        ),
        ("environment", "getpass grp locale platform pwd site sysconfig"),
        ("process", "_posixsubprocess atexit multiprocessing pty resource subprocess"),
        ("thread", "_thread asyncio concurrent contextvars threading"),
        ("signal", "_signal faulthandler signal"),
        (
            "dynamic code",
            "_imp code codeop dis gc imp importlib inspect marshal runpy symtable trace "
            "tracemalloc",
        ),
        ("foreign code", "_cffi_backend _ctypes cffi ctypes"),
    )
    for name in names.split()
}
# Names below an importable module that are refused, with all that is below them.
REFUSED_NAMES: Final[dict[str, str]] = {
    "datetime.date.fromtimestamp": "clock",
    "datetime.date.today": "clock",
    "datetime.datetime.fromtimestamp": "clock",
    "datetime.datetime.now": "clock",
    "datetime.datetime.today": "clock",
    "datetime.datetime.utcnow": "clock",
    "logging.FileHandler": "file",
    "logging.basicConfig": "process",
    "logging.config": "process",
    "logging.handlers": "network",
    "numpy.fromfile": "file",
    "numpy.load": "file",
    "numpy.loadtxt": "file",
    "numpy.memmap": "file",
    "numpy.random": "randomness",
    "numpy.save": "file",
    "numpy.savetxt": "file",
    "types.CodeType": "dynamic code",
    "types.FunctionType": "dynamic code",
}
# Calls that are pure with at least so many arguments, and ask the clock or the zone with fewer.
PURE_WITH_ARGUMENTS: Final[dict[str, int]] = {
    "datetime.datetime.fromtimestamp": 2,
    "time.asctime": 1,
    "time.gmtime": 1,
    "time.strftime": 2,
}
BUILTINS: Final[dict[str, str]] = {
    "BaseException": "swallowing",
    "BaseExceptionGroup": "swallowing",
    "__builtins__": "dynamic code",
    "__import__": "dynamic code",
    "__loader__": "dynamic code",
    "__spec__": "dynamic code",
    "breakpoint": "process",
    "compile": "dynamic code",
    "eval": "dynamic code",
    "exec": "dynamic code",
    "exit": "process",
    "globals": "dynamic code",
    "hash": "identity",
    "id": "identity",
    "input": "process",
    "open": "file",
    "quit": "process",
}
ATTRIBUTES: Final = _words(
    "__builtins__ __closure__ __code__ __globals__ __import__ __loader__ __spec__ __subclasses__ "
    "ag_frame cr_frame f_back f_builtins f_globals f_locals gi_frame tb_frame"
)
# Methods that ask the clock, whatever the object before the dot.
CLOCK_METHODS: Final = _words("now today utcnow")
MUTATORS: Final = _words(
    "__delitem__ __setattr__ __setitem__ add append appendleft clear difference_update discard "
    "extend extendleft insert intersection_update move_to_end pop popitem popleft remove reverse "
    "rotate setdefault sort subtract symmetric_difference_update update"
)
# In these methods a policy sets itself up; elsewhere it may not write to itself.
SETUP_METHODS: Final = _words("__init__ __init_subclass__ __new__ __post_init__ __set_name__")
MUTABLE_MAKERS: Final = _words("Counter OrderedDict bytearray defaultdict deque dict list set")
