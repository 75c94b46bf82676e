"""Hold that no file of the repository depends on one machine, and that relative links resolve.

Fails on an absolute path of a machine's own folders, on the host of a package registry, on the mark
of a merge, and on a link in a Markdown file whose target does not exist.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Written so that this file does not match itself.
MACHINE_PATH = re.compile(rb"(?<![\w.~-])/(?:work|home|root)/")
REGISTRY_HOST = re.compile(
    rb"\b(?:(?:test\.)?pypi\.(?:org|python)|pythonhosted\.org|registry\.(?:npmjs|yarnpkg)"
    rb"|npmjs\.(?:com|org)|crates\.io|proxy\.golang|anaconda\.(?:org|com)|rubygems\.org"
    rb"|repo1?\.maven)"
)
# What a merge leaves behind where nobody decided.
MERGE_MARK = re.compile(rb"^(?:<{7}|>{7}) ")
_CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]\n]*\]\(\s*<?([^)\s>]+)>?[^)\n]*\)|^\[[^\]\n]+\]:\s*(\S+)", re.MULTILINE)
_ABSOLUTE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|#|//)", re.IGNORECASE)


_TRACES = (
    (MACHINE_PATH, "absolute path"),
    (REGISTRY_HOST, "registry host"),
    (MERGE_MARK, "mark of a merge"),
)


def list_files(root: Path) -> list[Path]:
    """List the files of the repository, new ones included; ignored ones are left out."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, check=True, capture_output=True).stdout.split(b"\0")
    paths = (root / name.decode("utf-8", "surrogateescape") for name in names if name)
    return sorted({path for path in paths if path.is_file()})


def find_machine_traces(name: str, data: bytes) -> Iterator[str]:
    """Yield a message per line that holds a machine's path, a registry's host or a merge's mark."""
    for number, line in enumerate(data.split(b"\n"), start=1):
        for pattern, what in _TRACES:
            if found := pattern.search(line):
                yield f"{name}:{number}: {what} {found.group().decode()!r}"


def find_broken_links(path: Path, name: str, text: str) -> Iterator[str]:
    """Yield a message per relative link whose target does not exist."""
    for found in _LINK.finditer(_CODE.sub("", text)):
        target = (found.group(1) or found.group(2)).split("#")[0]
        if _ABSOLUTE.match(found.group(1) or found.group(2)) or not target:
            continue
        if not (path.parent / target).exists():
            yield f"{name}: link to {target!r}, which does not exist"


def main() -> int:
    """Check every file; give the exit status."""
    has_failed = False
    for path in list_files(ROOT):
        data = path.read_bytes()
        name = str(path.relative_to(ROOT))
        messages = list(find_machine_traces(name, data))
        if path.suffix == ".md":
            messages += find_broken_links(path, name, data.decode("utf-8", "replace"))
        for message in messages:
            has_failed = True
            print(message)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
