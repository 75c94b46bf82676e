"""Runs policies in this process, sealed or not, and prints one JSON line per policy.

Usage: child.py sealed|open FOLDER < rows, one JSON object {name, text} a line. In `open` each
policy does what it likes, which is the control; a loopback server answers there on PORT.
"""

import json
import os
import sys
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import sqlglot
import tree_sitter
import tree_sitter_bash

from redrive.errors import PluginError, PurityFault
from redrive.sandbox.loading import import_policy, read_policy_file
from redrive.sandbox.standins import seal

LIBRARIES = (sqlglot.__name__, tree_sitter.__name__, tree_sitter_bash.__name__)
# Taken before the seal, as a worker takes hold of what it needs.
write = os.write
SOME_DAY = datetime(2020, 1, 1, tzinfo=UTC)


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"answered")

    def log_message(self, *arguments):
        pass


def start_server():
    server = HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def run_open(path):
    scope = {"__name__": "open_policy", "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), scope)  # noqa: S102 - the control
    return {"returned": repr(scope["Policy"]().evaluate(SOME_DAY, {}))}


def run_sealed(sealed, source):
    result = {}
    try:
        policy = import_policy(sealed, source, "Policy", libraries=LIBRARIES)
        with sealed.policy_code():
            result["returned"] = repr(policy().evaluate(SOME_DAY, {}))
    except PurityFault as fault:
        result["fault"] = str(fault)
    except PluginError as error:
        result["error"] = f"{error.where}: {error.message}"
    except Exception as error:  # noqa: BLE001 - reported to the test
        result["exception"] = f"{type(error).__name__}: {error}"
    result["violations"] = [[v.what, v.file, v.line] for v in sealed.take_violations()]
    result["printed"] = sealed.printed_chars
    return result


def main():
    mode, folder = sys.argv[1], Path(sys.argv[2])
    rows = [json.loads(line) for line in sys.stdin]
    port = start_server() if mode == "open" else 9
    paths = []
    for row in rows:
        path = folder / f"{row['name']}.py"
        path.write_text(row["text"].replace("PORT", str(port)).replace("FOLDER", str(folder)))
        paths.append(path)
    if mode == "open":
        results = [run_open(path) for path in paths]
    else:
        sources = [read_policy_file(path) for path in paths]
        sealed = seal()
        results = [run_sealed(sealed, source) for source in sources]
    for row, result in zip(rows, results, strict=True):
        write(1, json.dumps({"name": row["name"]} | result).encode() + b"\n")


if __name__ == "__main__":
    main()
