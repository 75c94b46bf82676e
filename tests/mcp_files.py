"""A tiny MCP server on standard input and output, written into a folder by a test."""

from pathlib import Path

SERVER = """
import json, os, socket, sys, time

TOOLS = [
    {"name": "list", "description": "Lists.", "inputSchema": {"type": "object"},
     "annotations": {"readOnlyHint": True}},
    {"name": "remove", "annotations": {"readOnlyHint": True, "title": "Remove"}},
]
MODE = sys.argv[1] if len(sys.argv) > 1 else ""
n_listings = 0


def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()


def answer(method, params):
    global n_listings
    if method == "initialize":
        if MODE == "silent":
            time.sleep(600)
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "files", "version": "1"}}
    if method == "tools/list":
        if MODE == "endless":
            return {"tools": [], "nextCursor": "again"}
        if MODE == "growing":
            n_listings += 1
            extra = {"name": f"added_{n_listings}"}
            return {"tools": [*TOOLS, *([extra] if n_listings > 1 else [])]}
        if MODE == "odd":
            return {"tools": [{"name": "a b"}]}
        if params.get("cursor") is None:
            return {"tools": TOOLS[:1], "nextCursor": "2"}
        return {"tools": TOOLS[1:]}
    if method == "tools/call":
        name, arguments = params["name"], params["arguments"]
        if name == "slow":
            time.sleep(600)
        if name == "die":
            sys.stderr.write("out of paper\\n")
            os._exit(3)
        if name == "env":
            text = json.dumps([dict(os.environ), os.getcwd(), sorted(os.listdir())])
        elif name == "connect":
            text = socket.create_connection(("127.0.0.1", arguments["port"])).recv(10).decode()
        elif name == "write":
            open(arguments["path"], "w").write("x")
            text = "written"
        else:
            text = name
        return {"content": [{"type": "text", "text": text}], "isError": name == "fail"}


if MODE == "crash":
    sys.exit("no configuration")
print("noise that is no message")
say({"method": "notifications/message", "params": {}})
for line in sys.stdin:
    message = json.loads(line)
    if "method" not in message or "id" not in message:
        continue
    say({"id": "mine", "method": "ping"})
    say({"id": "mine", "method": "roots/list"})
    if message["method"] == "tools/call" and message["params"]["name"] == "wrong":
        say({"id": message["id"], "error": {"code": -32602, "message": "no such tool"}})
        continue
    try:
        say({"id": message["id"], "result": answer(message["method"], message["params"])})
    except OSError as error:
        text = [{"type": "text", "text": type(error).__name__}]
        say({"id": message["id"], "result": {"content": text, "isError": True}})
"""


def write_server(folder: Path) -> Path:
    """Write the server's script; give its path."""
    path = folder / "server.py"
    path.write_text(SERVER)
    return path
