"""A gate has to answer: no 64 KiB of anything keeps the reader long."""

import time

import pytest

from redrive.policies.shell import find_dangers

PIECES = [
    *(
        "(",
        "((",
        "$(",
        "$((",
        "${a:-",
        "{ ",
        "{a,",
        "`",
        "'",
        '"',
        '"$(',
        '"${a[',
        "$'",
        "<(",
        "$[",
    ),
    *(
        "if ",
        "while ",
        "for i in ",
        "case a in a) ",
        "f(){ ",
        "f() ",
        "[[ ",
        "x=( ",
        "a=(b ",
        "a@(",
    ),
    *(
        "<<A ",
        "<<A\n",
        "a <<E\nE\n",
        "a<<E;",
        "<<<",
        "1>",
        "\\",
        "\\`",
        "&",
        ";;",
        "!",
        "* ",
        "#\n",
    ),
    *("a && ", "a | ", "a|", "((a) ;", "$((a) ", 'echo "a" $(b) ; ', '"a$(b "c` ', "\0", "\ue000"),
    *("X=$X$X;", "X+=aaaaaaaa;$X ", "sudo ", "xargs ", "bash -c ", "{a,b}", "rm -rf v;", "env -S "),
    *("for i in a b c d e f g h; do ", "f(){ f; }; f;", "f(){ f|f; }; f;", "find ( ", "cd a;"),
    *(
        "X=(a b);${X[@]} ",
        "echo x|sh;",
        "cat <<A|sh\nrm x\nA\n",
        "eval 'eval x';",
        "psql -c 'DROP';",
    ),
    *(
        "fd -x rm;",
        "node -e 'rm(\\'';",
        "pwsh -c 'rm x';",
        "python -c 'a.execute(1)';",
        "f(){ f;g; };",
    ),
    *("git ls-files|xargs rm;", "docker rm -f $(docker ps -q);", "__import__('a').b.", "'\\'"),
    *("git -c alias.a=a a;", "python -c 'x()';", "rm -r$X ", "find . -o ", "find . -exec rm {} + "),
]


@pytest.mark.parametrize("piece", PIECES)
def test_64_kib_of_anything_are_read_in_time(piece: str):
    command = piece * (64 * 1024 // len(piece))
    begun = time.monotonic()
    find_dangers(command)
    assert time.monotonic() - begun < 10


def test_a_real_command_is_read_in_a_moment():
    begun = time.monotonic()
    for _ in range(100):
        find_dangers("cd src && git add -A && git commit -m \"$(cat <<'EOF'\nfix\nEOF\n)\" | tail")
    assert time.monotonic() - begun < 2
