"""What hostile code tries, one function a case; the standard library alone.

Run as a script, inside and outside the sandbox, with a JSON object: `names` (cases), and what they
aim at. Each case has a process of its own, which first leaves a canary in the writable folder, so
that what it does not reach outside is not for lack of trying. Whether something happened is judged
by a witness outside and never by what is said here.
"""

import atexit
import ctypes
import errno
import fcntl
import json
import mmap
import multiprocessing
import os
import resource
import signal
import socket
import sqlite3
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

Aims = Mapping[str, Any]
CASES: dict[str, Callable[[Aims, str], None]] = {}
CASE_S = 30.0
MIB = 1024 * 1024


def case(function: Callable[[Aims, str], None]) -> Callable[[Aims, str], None]:
    """Register a case under its function's name."""
    CASES[function.__name__] = function
    return function


def shown(aims: Aims, name: str) -> str:
    """Give the path of a host file in a folder that is shown, read-only."""
    return os.path.join(aims["shown"], name)


def work(aims: Aims, name: str) -> str:
    """Give the path of a file in the folder that may be written."""
    return os.path.join(aims["work"], name)


def write(path: str) -> None:
    """Write a file."""
    with open(path, "w", encoding="utf-8") as file:
        file.write("written")


def found(aims: Aims, name: str, what: str) -> None:
    """Leave what was found where the witness looks."""
    with open(work(aims, f"found-{name}"), "w", encoding="utf-8") as file:
        file.write(what)


def script_for(path: str) -> str:
    """Give a shell script that writes a file."""
    return f"echo written > '{path}'"


def libc() -> Any:
    """Load the C library."""
    return ctypes.CDLL(None, use_errno=True)


def check(result: int) -> int:
    """Raise where a C function failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


# --- ways to run code --------------------------------------------------------------------------
@case
def os_system(aims: Aims, name: str) -> None:
    os.system(script_for(shown(aims, name)))


@case
def subprocess_run(aims: Aims, name: str) -> None:
    subprocess.run(["/bin/sh", "-c", script_for(shown(aims, name))])


@case
def posix_spawn(aims: Aims, name: str) -> None:
    argv = ["/bin/sh", "-c", script_for(shown(aims, name))]
    os.waitpid(os.posix_spawn("/bin/sh", argv, {}), 0)


@case
def exec_shell(aims: Aims, name: str) -> None:
    os.execv("/bin/sh", ["/bin/sh", "-c", script_for(shown(aims, name))])


@case
def fork(aims: Aims, name: str) -> None:
    if os.fork() == 0:
        write(shown(aims, name))
        os._exit(0)
    os.wait()


@case
def fork_exec(aims: Aims, name: str) -> None:
    # The way under `subprocess`, whose parameters differ by version; it does not look at Python.
    import _posixsubprocess

    argv = [b"/bin/sh", b"-c", script_for(shown(aims, name)).encode()]
    read_end, write_end = os.pipe()
    words = (argv, [b"/bin/sh"], True, (write_end,), None, None, -1, -1, -1, -1, -1, -1)
    tail = (read_end, write_end, True, False, -1, None, None, None, -1, None)
    for extra in ((False,), ()):
        with suppress(TypeError):
            os.waitpid(_posixsubprocess.fork_exec(*words, *tail, *extra), 0)
            return


@case
def multiprocessing_process(aims: Aims, name: str) -> None:
    context = multiprocessing.get_context("fork")
    process = context.Process(target=write, args=(shown(aims, name),))
    process.start()
    process.join()


@case
def thread(aims: Aims, name: str) -> None:
    one = threading.Thread(target=write, args=(shown(aims, name),))
    one.start()
    one.join()


@case
def at_exit(aims: Aims, name: str) -> None:
    atexit.register(write, shown(aims, name))


class _Late:
    def __init__(self, path: str) -> None:
        # Names of modules and of the language are gone by then.
        self.open = os.open
        self.words = (path, os.O_WRONLY | os.O_CREAT, 0o600)

    def __del__(self) -> None:
        self.open(*self.words)


@case
def del_at_shutdown(aims: Aims, name: str) -> None:
    sys.kept_until_the_end = _Late(shown(aims, name))  # type: ignore[attr-defined]


@case
def outliving_the_run(aims: Aims, name: str) -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for descriptor in (0, 1, 2):
                os.close(descriptor)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            until_s = time.monotonic() + 60
            # Whether it still grows after the run is what counts.
            with open(work(aims, f"found-{name}"), "ab", buffering=0) as file:
                while time.monotonic() < until_s and not os.path.exists(work(aims, "over")):
                    file.write(b"x")
                    time.sleep(0.02)
        os._exit(0)
    os.wait()


@case
def signal_handler(aims: Aims, name: str) -> None:
    done = []
    signal.signal(signal.SIGALRM, lambda *_: done.append(write(shown(aims, name))))
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    while not done:
        time.sleep(0.01)


@case
def memfd_and_fexecve(aims: Aims, name: str) -> None:
    descriptor = os.memfd_create("program")
    with open("/bin/sh", "rb") as file:
        os.write(descriptor, file.read())
    os.execve(descriptor, ["sh", "-c", script_for(shown(aims, name))], {})


# --- ways round a guard in the process ---------------------------------------------------------
@case
def ctypes_cdll(aims: Aims, name: str) -> None:
    path = shown(aims, name).encode()
    os.close(check(libc().open(path, os.O_WRONLY | os.O_CREAT, 0o600)))


class _Guard:
    """Lets a write through if a constant says so, as a guard inside the process would."""

    def __init__(self) -> None:
        # Made at run time, so that no other value shares it.
        self.word = b"".join((b"de", b"ny!"))

    def write(self, path: str) -> None:
        if self.word != b"allow":
            raise PermissionError("the guard says no")
        write(path)


_BYTES_HEAD = bytes.__basicsize__ - 1


@case
def raw_memory(aims: Aims, name: str) -> None:
    guard = _Guard()
    ctypes.memmove(id(guard.word) + _BYTES_HEAD, b"allow", 5)
    guard.write(shown(aims, name))


@case
def proc_self_mem(aims: Aims, name: str) -> None:
    guard = _Guard()
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(id(guard.word) + _BYTES_HEAD)
        memory.write(b"allow")
    guard.write(shown(aims, name))


@case
def audit_hook_removal(aims: Aims, name: str) -> None:
    def refuse(event: str, words: tuple[Any, ...]) -> None:
        if event == "open" and words[1] != "r":
            raise PermissionError("the hook says no")

    sys.addaudithook(refuse)
    with suppress(PermissionError):
        write(shown(aims, f"{name}-hooked"))
    # What raises no event is not seen by any hook: as good as its removal.
    path = shown(aims, name).encode()
    os.close(check(libc().open(path, os.O_WRONLY | os.O_CREAT, 0o600)))


# --- files -------------------------------------------------------------------------------------
@case
def write_outside(aims: Aims, name: str) -> None:
    write(shown(aims, name))


@case
def write_to_what_is_not_shown(aims: Aims, name: str) -> None:
    write(os.path.join(aims["hidden"], name))


@case
def read_what_is_not_shown(aims: Aims, name: str) -> None:
    with open(os.path.join(aims["hidden"], "secret"), encoding="utf-8") as file:
        found(aims, name, file.read())


@case
def truncate(aims: Aims, name: str) -> None:
    os.truncate(shown(aims, f"kept-{name}"), 0)


@case
def open_and_truncate(aims: Aims, name: str) -> None:
    os.close(os.open(shown(aims, f"kept-{name}"), os.O_RDONLY | os.O_TRUNC))


@case
def remove(aims: Aims, name: str) -> None:
    os.unlink(shown(aims, f"kept-{name}"))


@case
def symlink(aims: Aims, name: str) -> None:
    os.symlink(shown(aims, name), work(aims, "symlink"))
    write(work(aims, "symlink"))


@case
def hardlink(aims: Aims, name: str) -> None:
    os.link(shown(aims, f"kept-{name}"), work(aims, "hardlink"))
    write(work(aims, "hardlink"))


@case
def rename_out(aims: Aims, name: str) -> None:
    write(work(aims, "renamed"))
    os.rename(work(aims, "renamed"), shown(aims, name))


@case
def rename_exchange(aims: Aims, name: str) -> None:
    write(work(aims, "exchanged"))
    paths = (work(aims, "exchanged").encode(), shown(aims, f"kept-{name}").encode())
    check(libc().renameat2(-100, paths[0], -100, paths[1], 2))


@case
def rename_race(aims: Aims, name: str) -> None:
    place, real, link = (work(aims, f"race-{n}") for n in ("place", "real", "link"))
    os.mkdir(real)
    os.symlink(aims["shown"], link)
    os.rename(real, place)
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            os.rename(place, real)
            os.rename(link, place)
            os.rename(place, link)
            os.rename(real, place)

    swapper = threading.Thread(target=swap)
    swapper.start()
    until_s = time.monotonic() + 0.5
    while time.monotonic() < until_s and not os.path.exists(shown(aims, name)):
        with suppress(OSError):
            write(f"{place}/{name}")
    over.set()
    swapper.join()


@case
def make_pipe(aims: Aims, name: str) -> None:
    os.mkfifo(shown(aims, name))


@case
def make_device(aims: Aims, name: str) -> None:
    os.mknod(work(aims, f"device-{name}"), stat.S_IFCHR | 0o600, os.makedev(1, 3))


@case
def make_device_outside(aims: Aims, name: str) -> None:
    os.mknod(shown(aims, name), stat.S_IFCHR | 0o600, os.makedev(1, 3))


@case
def sqlite_write(aims: Aims, name: str) -> None:
    with sqlite3.connect(shown(aims, name)) as database:
        database.execute("create table t (a)")
    database.close()


@case
def mmap_write(aims: Aims, name: str) -> None:
    with open(shown(aims, f"kept-{name}"), "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[:4] = b"lost"


@case
def change_mode(aims: Aims, name: str) -> None:
    os.chmod(shown(aims, f"kept-{name}"), 0o666)


@case
def change_mode_by_descriptor(aims: Aims, name: str) -> None:
    with open(shown(aims, f"kept-{name}"), "rb") as file:
        os.fchmod(file.fileno(), 0o666)


@case
def change_times(aims: Aims, name: str) -> None:
    os.utime(shown(aims, f"kept-{name}"), (1, 1))


@case
def change_attributes(aims: Aims, name: str) -> None:
    os.setxattr(shown(aims, f"kept-{name}"), "user.redrive", b"set")


@case
def change_flags(aims: Aims, name: str) -> None:
    # `chattr +A`, on a file that can only be read.
    with open(shown(aims, f"kept-{name}"), "rb") as file:
        flags = bytearray(fcntl.ioctl(file.fileno(), 0x80086601, bytes(8)))
        flags[0] |= 0x80
        fcntl.ioctl(file.fileno(), 0x40086602, bytes(flags))


@case
def shared_memory_folder(aims: Aims, name: str) -> None:
    write(os.path.join("/dev/shm", f"{aims['token']}-{name}"))


@case
def shared_memory_of_the_host(aims: Aims, name: str) -> None:
    library = libc()
    library.shmat.restype = ctypes.c_void_p
    segment = check(library.shmget(aims["shm_key"], 4096, 0))
    address = library.shmat(segment, None, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "shmat")
    ctypes.memmove(address, b"lost", 4)


# --- for the host to run later -----------------------------------------------------------------
@case
def git_hook(aims: Aims, name: str) -> None:
    write(shown(aims, "repository/.git/hooks/post-checkout"))


@case
def pth_file(aims: Aims, name: str) -> None:
    write(shown(aims, "site-packages/planted.pth"))


@case
def sitecustomize(aims: Aims, name: str) -> None:
    write(shown(aims, "site-packages/sitecustomize.py"))


@case
def evidence_store(aims: Aims, name: str) -> None:
    with open(shown(aims, f"kept-{name}"), "r+b") as file:
        file.write(b"lost")


@case
def evidence_cache(aims: Aims, name: str) -> None:
    write(shown(aims, "cache/answer"))


# --- network -----------------------------------------------------------------------------------
@case
def tcp(aims: Aims, name: str) -> None:
    socket.create_connection(("127.0.0.1", aims["tcp"]), 2).close()


@case
def udp(aims: Aims, name: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.sendto(b"sent", ("127.0.0.1", aims["udp"]))


@case
def dns(aims: Aims, name: str) -> None:
    question = b"\x07secrets\x07example\x00" + struct.pack("!HH", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect(("127.0.0.1", aims["dns"]))
        one.send(struct.pack("!6H", 1, 0x0100, 1, 0, 0, 0) + question)


@case
def raw_socket(aims: Aims, name: str) -> None:
    port = aims["raw"]
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP) as one:
        one.sendto(struct.pack("!4H", 40000, port, 12, 0) + b"sent", ("127.0.0.1", 0))


@case
def unix_path_socket(aims: Aims, name: str) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(shown(aims, "socket"))


@case
def unix_abstract_socket(aims: Aims, name: str) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect("\0" + aims["abstract"])


@case
def unix_datagram(aims: Aims, name: str) -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        one.connect(shown(aims, "datagrams"))
        one.send(b"sent")


@case
def cloud_metadata(aims: Aims, name: str) -> None:
    socket.create_connection(("169.254.169.254", 80), 0.5).close()


# --- what is inherited -------------------------------------------------------------------------
@case
def inherited_descriptor(aims: Aims, name: str) -> None:
    for number in range(3, 1024):
        with suppress(OSError, UnicodeDecodeError):
            data = os.pread(number, 100, 0).decode()
            if aims["token"] in data:
                found(aims, name, data)
                return


@case
def secrets_in_the_environment(aims: Aims, name: str) -> None:
    for process in os.listdir("/proc"):
        if process.isdigit():
            with suppress(OSError), open(f"/proc/{process}/environ", "rb") as file:
                data = file.read()
                if aims["token"].encode() in data:
                    found(aims, name, aims["token"])
                    return


@case
def secret_in_its_own_environment(aims: Aims, name: str) -> None:
    if any(aims["token"] in value for value in os.environ.values()):
        found(aims, name, aims["token"])


# --- other processes ---------------------------------------------------------------------------
@case
def ptrace(aims: Aims, name: str) -> None:
    library = libc()
    library.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    library.ptrace.restype = ctypes.c_long
    process, address = aims["traced"]
    check(library.ptrace(16, process, None, None))
    os.waitpid(process, 0)
    word = int.from_bytes(b"lostlost", sys.byteorder)
    library.ptrace(5, process, address, word)
    library.ptrace(17, process, None, None)


@case
def process_vm_writev(aims: Aims, name: str) -> None:
    class Vector(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    process, address = aims["written"]
    data = ctypes.create_string_buffer(b"lostlost", 8)
    ours = Vector(ctypes.cast(data, ctypes.c_void_p), 8)
    theirs = Vector(address, 8)
    library = libc()
    library.process_vm_writev.restype = ctypes.c_ssize_t
    check(library.process_vm_writev(process, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0))


@case
def memory_file_of_another(aims: Aims, name: str) -> None:
    process, address = aims["by_file"]
    with open(f"/proc/{process}/mem", "r+b", buffering=0) as memory:
        memory.seek(address)
        memory.write(b"lostlost")


@case
def kill_a_host_process(aims: Aims, name: str) -> None:
    os.kill(aims["killed"], signal.SIGKILL)


@case
def kill_by_a_descriptor(aims: Aims, name: str) -> None:
    # The owner of a descriptor is signalled when something can be read.
    ours, theirs = socket.socketpair()
    fcntl.fcntl(ours, fcntl.F_SETOWN, aims["killed_by_descriptor"])
    fcntl.fcntl(ours, 10, signal.SIGKILL)
    fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    theirs.send(b"x")
    time.sleep(0.05)


@case
def limits_of_a_host_process(aims: Aims, name: str) -> None:
    resource.prlimit(aims["limited"], resource.RLIMIT_NOFILE, (7, 7))


@case
def priority_of_a_host_process(aims: Aims, name: str) -> None:
    os.setpriority(os.PRIO_PROCESS, aims["limited"], 19)


# --- more rights -------------------------------------------------------------------------------
@case
def nested_namespaces(aims: Aims, name: str) -> None:
    check(libc().unshare(0x10000000 | 0x20000))
    found(aims, name, aims["token"])


@case
def nested_namespaces_by_clone(aims: Aims, name: str) -> None:
    number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    child = check(int(libc().syscall(number, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)))
    if child == 0:
        found(aims, name, aims["token"])
        os._exit(0)
    os.wait()


@case
def mount(aims: Aims, name: str) -> None:
    check(libc().mount(b"none", shown(aims, "mounted").encode(), b"tmpfs", 0, None))


@case
def chroot(aims: Aims, name: str) -> None:
    folder = os.open(aims["work"], os.O_RDONLY)
    os.chroot(aims["shown"])
    descriptor = os.open(f"found-{name}", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=folder)
    os.write(descriptor, aims["token"].encode())


@case
def setuid_binary(aims: Aims, name: str) -> None:
    # Its owner is root: what it makes is root's, if it has its way.
    subprocess.run([aims["setuid"], work(aims, f"made-{name}")], check=True)


# --- spending ----------------------------------------------------------------------------------
@case
def core_dump(aims: Aims, name: str) -> None:
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    folder = work(aims, "dumped")
    os.mkdir(folder)
    os.chdir(folder)
    os.abort()


@case
def memory_bomb(aims: Aims, name: str) -> None:
    held = []
    while len(held) < 40:
        held.append(mmap.mmap(-1, 32 * MIB))
    found(aims, name, aims["token"])


@case
def cpu_bomb(aims: Aims, name: str) -> None:
    while time.process_time() < 1.5:
        pass
    found(aims, name, aims["token"])


# Each of these has a sandbox of its own, which it brings to its end.
@case
def process_bomb(aims: Aims, name: str) -> None:
    children = []
    for _ in range(aims["many_processes"]):
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
        children.append(child)
    found(aims, name, aims["token"])
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@case
def disk_bomb(aims: Aims, name: str) -> None:
    for number in range(16):
        with open(work(aims, f"filling-{number}"), "wb") as file:
            file.write(bytes(MIB))
    found(aims, name, aims["token"])


@case
def output_flood(aims: Aims, name: str) -> None:
    for _ in range(8):
        sys.stdout.write("\x1b[2J" + "x" * MIB)
    sys.stdout.flush()


@case
def endless(aims: Aims, name: str) -> None:
    time.sleep(aims["endless_s"])
    found(aims, name, aims["token"])


# --- running them ------------------------------------------------------------------------------
def attempt(name: str, aims: Aims) -> None:
    """Leave the canary, then try; what comes of it is left beside."""
    write(work(aims, f"canary-{name}"))
    try:
        CASES[name](aims, name)
    except BaseException as error:
        write_error(work(aims, f"error-{name}"), error)


def write_error(path: str, error: BaseException) -> None:
    """Leave why an attempt failed, for whoever looks into it."""
    code = errno.errorcode.get(getattr(error, "errno", None) or 0, "")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{type(error).__name__} {code} {error}")


def main(aims: Aims) -> None:
    """Try each case in a process of its own, a few at a time; end those that hang."""
    waiting, running = list(aims["names"]), {}
    while waiting or running:
        while waiting and len(running) < 4:
            name = waiting.pop(0)
            child = os.fork()
            if child == 0:
                attempt(name, aims)
                # As any program ends: with its exit handlers and finalizers.
                return
            running[child] = time.monotonic() + CASE_S
        for child, until_s in tuple(running.items()):
            if time.monotonic() > until_s:
                os.kill(child, signal.SIGKILL)
            if os.waitpid(child, os.WNOHANG)[0] == child:
                del running[child]
        time.sleep(0.005)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
