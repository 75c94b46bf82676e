"""Which functions a running policy may not call, as tables for the stand-ins.

Knows names alone: nothing is imported, read or replaced here. What stands in no table and is no
audit event is let through, and `LET_THROUGH` says so.

Source: DESIGN.md §7 "Purity".
"""

from typing import Final


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


LET_THROUGH: Final[tuple[str, ...]] = (
    "C extensions: what a compiled library does in itself raises no audit event; only the memory "
    "limit and the watchdog hold it",
    "references that a declared library took before the seal, such as its own `from time import "
    "time`; files, sockets, processes and threads are caught there too, by the audit hook",
    "exec, eval and compile inside libraries: dataclasses, namedtuple and enum are made by them; "
    "called from the policy's own file they are caught",
    "sys._getframe and inspection of frames: namedtuple, enum and typing need it",
    "reading .py, .pyc and extension modules while the import system looks for a module, and what "
    "a module of the standard library asks of the clock or the environment while it is loaded",
    "datetime.now and utcnow called on an instance that a library made; the static scan finds it",
    "random.Random(seed): the same seed gives the same draws",
    "time.localtime, ctime and strftime of a given time: the worker runs in one time zone",
    "hash() and id(): the worker runs with PYTHONHASHSEED=0, and the static scan finds both",
    "waiting without a clock, on a lock, a queue or select: the watchdog ends it",
    "print and log lines: they go nowhere, and the characters printed are counted",
    "coverage, where it measures the process: its own frames may read and write files",
)

# (kind, module, functions). The module is imported by the seal if it is not loaded yet.
REPLACED: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    (
        "clock",
        "time",
        _words(
            "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time "
            "process_time_ns thread_time thread_time_ns clock_gettime clock_gettime_ns "
            "clock_settime clock_settime_ns sleep pthread_getcpuclockid get_clock_info"
        ),
    ),
    (
        "randomness",
        "random",
        _words(
            "random uniform triangular randint choice randrange sample shuffle choices "
            "normalvariate lognormvariate expovariate vonmisesvariate gammavariate gauss "
            "betavariate binomialvariate paretovariate weibullvariate getstate setstate "
            "getrandbits randbytes seed _urandom"
        ),
    ),
    ("randomness", "_random", ("Random",)),
    ("randomness", "uuid", ("uuid1", "uuid4", "uuid6", "uuid7", "uuid8", "getnode")),
    ("file", "io", ("open", "open_code")),
    ("file", "builtins", ("open",)),
    ("process", "builtins", ("input", "breakpoint")),
    ("process", "_posixsubprocess", ("fork_exec",)),
    ("thread", "_thread", ("start_new_thread", "start_new", "start_joinable_thread")),
    ("thread", "threading", ("_start_new_thread", "_start_joinable_thread", "settrace")),
    ("thread", "threading.Thread", ("start",)),
    (
        "signal",
        "signal",
        _words(
            "signal alarm setitimer getitimer raise_signal pthread_kill pthread_sigmask "
            "set_wakeup_fd siginterrupt pause sigwait sigwaitinfo sigtimedwait pidfd_send_signal"
        ),
    ),
    ("memory", "gc", ("get_objects", "get_referrers", "get_referents")),
    (
        "process",
        "sys",
        _words(
            "settrace setprofile addaudithook _current_frames _current_exceptions "
            "setrecursionlimit setswitchinterval set_asyncgen_hooks remote_exec"
        ),
    ),
    ("foreign code", "importlib", ("reload",)),
)

# As above, but only where the module is loaded at the seal: one that is loaded later is built on
# functions that are already refused.
REPLACED_IF_LOADED: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    (
        "randomness",
        "secrets",
        _words("choice randbelow randbits token_bytes token_hex token_urlsafe"),
    ),
    ("randomness", "_uuid", ("generate_time_safe",)),
    ("process", "subprocess", ("_fork_exec",)),
    ("process", "subprocess.Popen", ("__init__",)),
    ("process", "multiprocessing.process.BaseProcess", ("start",)),
    ("network", "socket.socket", ("__init__",)),
    ("network", "socket", ("socketpair", "fromfd", "gethostname")),
    ("network", "ssl.SSLContext", ("load_cert_chain", "load_verify_locations")),
    ("file", "sqlite3", ("connect",)),
    ("file", "_sqlite3", ("connect",)),
)

# Modules whose every function is refused where they are loaded.
REPLACED_WHOLE: Final = (("randomness", "numpy.random"),)

# Functions of the operating system are refused all but these.
OS_KEPT: Final = frozenset(
    _words(
        "fspath strerror register_at_fork major minor makedev waitstatus_to_exitcode "
        "_path_normpath _path_splitroot _path_splitroot_ex WCOREDUMP WEXITSTATUS WIFCONTINUED "
        "WIFEXITED WIFSIGNALED WIFSTOPPED WSTOPSIG WTERMSIG"
    )
)
OS_WRAPPERS: Final = _words(
    "getenv getenvb popen fdopen walk fwalk makedirs removedirs renames get_exec_path execl execle "
    "execlp execlpe execvp execvpe spawnl spawnle spawnlp spawnlpe spawnv spawnve spawnvp spawnvpe"
)
ENVIRON_METHODS: Final = _words(
    "__getitem__ __setitem__ __delitem__ __iter__ __len__ __contains__ __repr__ __or__ __ror__ "
    "__ior__ copy setdefault get"
)
OS_KINDS: Final[tuple[tuple[str, frozenset[str]], ...]] = (
    ("randomness", frozenset(("urandom", "getrandom"))),
    ("clock", frozenset(("times",))),
    (
        "environment",
        frozenset(
            _words(
                "getenv getenvb putenv unsetenv getpid getppid getpgid getpgrp getsid getuid "
                "geteuid getgid getegid getgroups getlogin uname cpu_count process_cpu_count "
                "getloadavg sysconf confstr get_terminal_size getpriority getresuid getresgid "
                "sched_getaffinity ctermid getcwd getcwdb umask get_exec_path"
            )
        ),
    ),
    (
        "process",
        frozenset(
            _words(
                "fork fork1 forkpty posix_spawn posix_spawnp system popen kill killpg abort _exit "
                "execv execve wait wait3 wait4 waitid waitpid nice setuid setgid pidfd_open "
                "execl execle execlp execlpe execvp execvpe spawnl spawnle spawnlp spawnlpe spawnv "
                "spawnve spawnvp spawnvpe"
            )
        ),
    ),
)

# Audit events: whole names, then the first word of a name. A kind is what the report prints.
EVENTS: Final[dict[str, str]] = {
    "builtins.breakpoint": "process",
    "builtins.input": "process",
    "cpython.run_command": "process",
    "cpython.run_file": "file",
    "gc.get_objects": "memory",
    "gc.get_referents": "memory",
    "gc.get_referrers": "memory",
    "open": "file",
    "pathlib.Path.glob": "file",
    "pathlib.Path.rglob": "file",
    "sys._current_exceptions": "process",
    "sys._current_frames": "process",
    "sys.addaudithook": "process",
    "sys.remote_exec": "process",
    "sys.setprofile": "process",
    "sys.settrace": "process",
    "sys.set_asyncgen_hooks_finalizer": "process",
    "sys.set_asyncgen_hooks_firstiter": "process",
    "time.sleep": "clock",
}
EVENT_FAMILIES: Final[dict[str, str]] = {
    "_posixsubprocess": "process",
    "_thread": "thread",
    "ctypes": "foreign code",
    "fcntl": "file",
    "ftplib": "network",
    "glob": "file",
    "http": "network",
    "imaplib": "network",
    "mmap": "file",
    "nntplib": "network",
    "os": "file",
    "poplib": "network",
    "pty": "process",
    "resource": "process",
    "shutil": "file",
    "signal": "signal",
    "smtplib": "network",
    "socket": "network",
    "sqlite3": "file",
    "subprocess": "process",
    "syslog": "file",
    "telnetlib": "network",
    "tempfile": "file",
    "urllib": "network",
    "webbrowser": "network",
}
# Loading these gives access to raw memory or to a second interpreter.
REFUSED_IMPORTS: Final = frozenset(
    _words(
        "_cffi_backend _ctypes _interpreters _testcapi _testinternalcapi _testlimitedcapi "
        "_xxsubinterpreters"
    )
)
