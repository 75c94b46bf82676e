"""Programs that run another program, and how far their own words go.

Knows the options of wrappers such as `sudo` or `timeout`. Must not know what the wrapped program
does.
"""

from collections.abc import Mapping, Sequence

import msgspec

from redrive.policies.shell_command import base_name


class Wrapper(msgspec.Struct, frozen=True):
    """A wrapper: options with a value, operands of its own, options under which it runs nothing."""

    with_value: frozenset[str] = frozenset()
    operands: int = 0
    has_assignments: bool = False
    idle: frozenset[str] = frozenset()


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SUDO = Wrapper(
    _words("-u -g -h -p -C -r -t -T -D -R -U --user --group --host --prompt --chdir --chroot"),
    has_assignments=True,
    idle=_words("-l -v -k -K -e --list --validate --edit"),
)
_TIMEOUT = Wrapper(_words("-s -k --signal --kill-after"), operands=1)
WRAPPERS: Mapping[str, Wrapper] = {
    "sudo": _SUDO,
    "doas": Wrapper(_words("-u -C"), idle=_words("-L")),
    "env": Wrapper(_words("-u -C --unset --chdir"), has_assignments=True),
    "command": Wrapper(idle=_words("-v -V")),
    "builtin": Wrapper(),
    "exec": Wrapper(_words("-a")),
    "nohup": Wrapper(),
    "time": Wrapper(_words("-f -o --format --output")),
    "timeout": _TIMEOUT,
    "gtimeout": _TIMEOUT,
    "nice": Wrapper(_words("-n --adjustment")),
    "ionice": Wrapper(_words("-c -n --class --classdata"), idle=_words("-p")),
    "chrt": Wrapper(operands=1),
    "taskset": Wrapper(operands=1, idle=_words("-p")),
    "setsid": Wrapper(),
    "stdbuf": Wrapper(_words("-i -o -e --input --output --error")),
    "unbuffer": Wrapper(),
    "caffeinate": Wrapper(_words("-t -w")),
    "chroot": Wrapper(_words("--userspec --groups"), operands=1),
    "fakeroot": Wrapper(),
    "proxychains4": Wrapper(_words("-f")),
    "strace": Wrapper(_words("-e -o -s -p -u")),
    "ltrace": Wrapper(_words("-e -o -s -p -u")),
    "numactl": Wrapper(_words("-m -N -C")),
    "systemd-run": Wrapper(_words("-p -u --unit --property --uid --gid")),
    "xvfb-run": Wrapper(_words("-n -s -e -f --server-args --server-num")),
    "dotenv": Wrapper(_words("-f -e")),
    "direnv": Wrapper(operands=2),
    "busybox": Wrapper(idle=_words("--list --help --install")),
    "toybox": Wrapper(),
    "unshare": Wrapper(),
    "nsenter": Wrapper(_words("-t --target")),
    "npx": Wrapper(_words("-p --package -c --call")),
    "bunx": Wrapper(),
    "uvx": Wrapper(_words("--from --with -p --python")),
    "ts": Wrapper(idle=_words("-s -i")),
}
# Program and first words → a wrapper from there on.
SUBCOMMAND_WRAPPERS: Mapping[tuple[str, ...], Wrapper] = {
    ("uv", "run"): Wrapper(_words("--with --python -p --project --directory --env-file --extra")),
    ("poetry", "run"): Wrapper(),
    ("pipenv", "run"): Wrapper(),
    ("pdm", "run"): Wrapper(),
    ("hatch", "run"): Wrapper(),
    ("bundle", "exec"): Wrapper(),
    ("npm", "exec"): Wrapper(_words("-p --package")),
    ("pnpm", "exec"): Wrapper(),
    ("pnpm", "dlx"): Wrapper(),
    ("yarn", "exec"): Wrapper(),
    ("conda", "run"): Wrapper(_words("-n -p --name --prefix --cwd")),
    ("mamba", "run"): Wrapper(_words("-n -p --name --prefix --cwd")),
    ("mise", "exec"): Wrapper(),
    ("doppler", "run"): Wrapper(_words("-p -c --project --config")),
    ("op", "run"): Wrapper(_words("--env-file --account")),
    ("heroku", "run"): Wrapper(_words("-a --app -r --remote -s --size")),
    ("flyctl", "ssh", "console"): Wrapper(_words("-a --app")),
    ("docker", "exec"): Wrapper(
        _words("-e -u -w --env --user --workdir --env-file --detach-keys"), operands=1
    ),
    ("kubectl", "exec"): Wrapper(_words("-n -c --namespace --container --context"), operands=1),
}
_DOCKER_RUN_VALUES = _words(
    "-e -u -w -v -p -m -h -l -c --env --user --workdir --volume --publish --memory --hostname"
    " --label --name --network --entrypoint --mount --env-file --cpus --platform --gpus --add-host"
    " --restart --shm-size --ulimit --cap-add --cap-drop --device --dns --expose --ipc --pid"
    " --security-opt --log-driver --runtime --tmpfs --link --userns --pull --cidfile --volumes-from"
)
_DOCKER_GLOBAL = _words("-H -c --host --context --config -l --log-level")
_COMPOSE_VALUES = _words(
    "-f -p --file --project-name --profile --env-file --project-directory --index -u -w -e --user"
    " --workdir --env -v --volume --name --entrypoint --publish"
)
_KUBECTL_GLOBAL = _words("-n --namespace --context --kubeconfig --cluster --user -s --server")


def unwrap(words: Sequence[str]) -> tuple[str, ...] | None:
    """Take one wrapper off a command.

    Returns:
        The wrapped command, its assignments in front; empty if nothing is run; `None` if the
        program is no wrapper.
    """
    name = base_name(words[0])
    if name in {"docker", "podman", "nerdctl", "docker-compose"}:
        return _unwrap_docker(name, words)
    if name in {"kubectl", "oc"}:
        return _unwrap_kubectl(words)
    wrapper, skipped = WRAPPERS.get(name), 1
    if wrapper is None:
        for start, candidate in SUBCOMMAND_WRAPPERS.items():
            if (name, *words[1 : len(start)]) == start:
                wrapper, skipped = candidate, len(start)
    if wrapper is None:
        return None
    inner = _after(words[skipped:], wrapper)
    if name in {"npx", "bunx", "uvx", "pnpm"} and "@" in inner[:1][0][1:] if inner else False:
        return (inner[0][0] + inner[0][1:].partition("@")[0], *inner[1:])
    return inner


def is_assignment(word: str) -> bool:
    """Tell whether a word has the form NAME=value."""
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()


def _after(words: Sequence[str], wrapper: Wrapper) -> tuple[str, ...]:
    number = _skip_options(words, wrapper)
    if number is None:
        return ()
    start = number
    if wrapper.has_assignments:
        while number < len(words) and is_assignment(words[number]):
            number += 1
    assigned = tuple(words[start:number])
    rest = tuple(words[number + wrapper.operands :])
    if wrapper.operands and rest[:1] == ("--",):
        rest = rest[1:]
    return assigned + rest


def _skip_options(words: Sequence[str], wrapper: Wrapper) -> int | None:
    number = 0
    while number < len(words):
        word = words[number]
        if word == "--":
            return number + 1
        if word in wrapper.idle:
            return None
        if not word.startswith("-") or word == "-":
            return number
        number += 1
        is_open_cluster = not word.startswith("--") and f"-{word[-1]}" in wrapper.with_value
        has_attached = word[:2] in wrapper.with_value and len(word) > 2
        if word in wrapper.with_value or (is_open_cluster and not has_attached):
            number += 1
    return number


def _unwrap_docker(name: str, words: Sequence[str]) -> tuple[str, ...] | None:
    rest = list(words[1:])
    values = _DOCKER_GLOBAL
    if name == "docker-compose":
        rest.insert(0, "compose")
    rest = rest[_skip_options(rest, Wrapper(values)) or 0 :]
    if rest[:1] == ["compose"]:
        values = _COMPOSE_VALUES
        rest = rest[1:]
        rest = rest[_skip_options(rest, Wrapper(values)) or 0 :]
    if rest[:1] == ["container"]:
        rest = rest[1:]
    if rest[:1] not in (["exec"], ["run"]):
        return None
    wrapper = Wrapper(_DOCKER_RUN_VALUES | _COMPOSE_VALUES - {"-f", "-p"}, operands=1)
    entry = _entry_point(rest[1:])
    inner = _after(rest[1:], wrapper)
    return (entry, *inner) if entry else inner


def _entry_point(words: Sequence[str]) -> str:
    for number, word in enumerate(words):
        if word.startswith("--entrypoint="):
            return word.partition("=")[2]
        if word == "--entrypoint" and number + 1 < len(words):
            return words[number + 1]
    return ""


def _unwrap_kubectl(words: Sequence[str]) -> tuple[str, ...] | None:
    rest = words[1:]
    rest = rest[_skip_options(rest, Wrapper(_KUBECTL_GLOBAL)) or 0 :]
    if rest[:1] not in (("exec",), ["exec"]):
        return None
    return tuple(rest[rest.index("--") + 1 :]) if "--" in rest else ()
