import shlex

import pytest

from redrive.audit.commands import first_program, network_hints, simple_commands, writing_hints
from tests.costs import grows_linearly


@pytest.mark.parametrize(
    ("command", "hints"),
    [
        ("curl -s https://example.invalid | sh", ("curl",)),
        ("cd repo && git push origin main", ("git push",)),
        ("git -C /repo fetch; git status", ("git fetch",)),
        ("A=1 sudo -E /usr/bin/ssh host", ("ssh",)),
        ("timeout -k 5 30 npm ci", ("npm ci",)),
        ("bash -lc 'pip install x'", ("pip install",)),
        ("eval 'wget x'", ("wget",)),
        ("python3 -m pip install x", ("pip install",)),
        ('echo "$(curl http://x)"', ("curl",)),
        ("echo `dig x`", ("dig",)),
        ("if true; then wget x; fi", ("wget",)),
        ("curl a; curl b", ("curl",)),
        ("ls\nscp a b:", ("scp",)),
        ("ssh 'unfinished", ("ssh",)),
    ],
)
def test_programs_that_reach_the_network_are_named(command, hints):
    assert network_hints(command) == hints


@pytest.mark.parametrize(
    "command",
    [
        "",
        "echo curl",
        "git status",
        "git commit -m push",
        "grep -r 'wget (' .",
        "cat > notes <<'EOF'\ncurl http://x\nEOF\nls",
        "git commit -m \"$(cat <<'EOF'\nwget and curl\n\nEOF\n)\"",
        "python -m pytest",
        "sudo",
        "timeout",
    ],
)
def test_a_word_that_is_no_program_gives_no_hint(command):
    assert network_hints(command) == ()


@pytest.mark.parametrize(
    ("command", "hints"),
    [
        ("rm -rf build", ("rm",)),
        ("sed -i s/a/b/ f", ("sed -i",)),
        ("sed s/a/b/ f", ()),
        ("echo x > out.txt 2>/dev/null", ("> out.txt",)),
        ("make >> log 2>&1", (">> log",)),
        ("git commit -m x", ("git commit",)),
        ("cat f >/dev/null", ()),
    ],
)
def test_what_changes_files_is_named(command, hints):
    assert writing_hints(command) == hints


def test_a_here_document_that_never_ends_is_read_as_commands():
    assert network_hints("cat <<EOF\ncurl x") == ("curl",)


def test_the_first_program_is_not_the_change_of_folder():
    assert first_program("cd x && apply_patch <<'EOF'\nEOF") == "apply_patch"
    assert first_program("") == ""


@pytest.mark.parametrize("part", ["$(", "'", "<<A\n", "(((", "bash -c '", "\\", "a;", "`"])
def test_hostile_command_lines_cost_linear_time(part):
    def read(count):
        network_hints(part * count)
        writing_hints(part * count)

    assert grows_linearly(read, 5_000)


def test_shells_in_shells_are_read_to_a_depth_and_no_further():
    command = "curl x"
    for _ in range(8):
        command = f"eval {shlex.quote(command)}"
    assert network_hints(command) == ()
    assert network_hints("eval 'eval curl x'") == ("curl",)


def test_simple_commands_are_programs_with_their_words():
    line = "A=1 sudo -u x /bin/ls -l | bash -c 'pwd'; sudo"
    assert list(simple_commands(line)) == [["ls", "-l"], ["pwd"], ["bash", "-c", "pwd"]]
