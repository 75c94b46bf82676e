#!/bin/bash
# A hook for Claude Code, PreToolUse on Bash: denies commands that delete folders with `rm -rf`.
#
# Honest about what it is: it looks at the words of the command. It sees `rm -rf`, `rm -fr`,
# `rm -r -f`, `rm --recursive --force`, also behind `sudo`, `;`, `&&` or `$(`. It does not see a
# script that deletes, `find -delete`, an alias, or a name put together from variables. A guard that
# must hold is a sandbox.
#
# Settings: {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command",
#   "command": "\"$CLAUDE_PROJECT_DIR\"/examples/hooks/block_rm.sh"}]}]}}
#
# Exit 2 blocks, and standard error is what the model is told. Anything unexpected blocks as well:
# any other exit code would let the command through.
set -u
python3 -c '
import json, re, sys

try:
    event = json.load(sys.stdin)
    command = event["tool_input"]["command"] if event["tool_name"] == "Bash" else ""
    parts = re.split(r"[;&|()`\n]+", command)
except Exception as error:
    print(f"block_rm: the input is not understood: {error}", file=sys.stderr)
    sys.exit(2)

for part in parts:
    words = [word.strip("\"\x27") for word in part.split()]
    names = [word.rsplit("/", 1)[-1] for word in words]
    if "rm" not in names:
        continue
    options = [word for word in words[names.index("rm") + 1 :] if word.startswith("-")]
    short = "".join(option[1:] for option in options if not option.startswith("--"))
    is_recursive = "r" in short or "R" in short or "--recursive" in options
    is_forced = "f" in short or "--force" in options
    if is_recursive and is_forced:
        print(f"block_rm: rm with -r and -f is not allowed: {command}", file=sys.stderr)
        sys.exit(2)
'
code=$?
[ "$code" -eq 0 ] || exit 2
