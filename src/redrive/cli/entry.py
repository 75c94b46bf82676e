"""Where the program starts. `--version` is answered before anything else is imported."""

import sys


def main() -> None:
    """Run redrive on the process's arguments and exit with its code."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        from redrive.version import __version__

        sys.stdout.write(f"redrive {__version__}\n")
        return
    try:
        from redrive.cli.main import run

        code = run(arguments)
    except KeyboardInterrupt:  # before the command line could say so itself
        code = 130
    sys.exit(code)
