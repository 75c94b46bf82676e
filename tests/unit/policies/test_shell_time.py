"""A gate has to answer: no long command keeps the reader for longer than its length asks."""

import pytest

from redrive.policies.shell import find_dangers
from tests.costs import grows_linearly

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
def test_the_cost_of_anything_is_linear(piece: str):
    assert grows_linearly(lambda size: find_dangers(piece * (size // len(piece))), 4 * 1024)
