"""Runs the hostile workflow without a sandbox: the control. Its argument is the workflow's file."""

import importlib.util
import json
import pickle
import sys
import unicodedata
from typing import Any


class CarelessContext:
    """Resolves names as helpfully as live registries do, and keeps what it is given."""

    def __init__(self, module: Any) -> None:
        names = ("send", "liar", "turncoat", "go_between", "import_it_again")
        self.registry: dict[str, Any] = {name: getattr(module, name) for name in names}
        self.registry |= {"mail": module.send, "mcp__mail__send": module.send}

    def call(self, name: str, /, **arguments: Any) -> Any:
        """Call a tool, whatever its effect."""
        held = self.registry[unicodedata.normalize("NFKC", name).casefold()]
        return held(**pickle.loads(pickle.dumps(arguments)))

    def complete(self, request: Any) -> Any:
        """Name the unsafe tool."""
        return {"choices": [{"message": {"content": "send"}}]}

    def post(self, path: str, body: bytes) -> Any:
        """Read what comes."""
        return pickle.loads(body)


if __name__ == "__main__":
    spec = importlib.util.spec_from_file_location("workflows", sys.argv[1])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["workflows"] = module
    spec.loader.exec_module(module)
    json.dump(module.run(None, CarelessContext(module)), sys.stdout)
