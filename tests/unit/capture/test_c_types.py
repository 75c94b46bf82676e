import subprocess
import sys

import pytest

from redrive.capture.c_types import replace_in_class


def run(script: str) -> str:
    """Run Python in a process of its own, so that no class of this one is touched."""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def test_a_class_in_c_is_changed_and_put_back_also_for_code_that_ran_before() -> None:
    script = """
from datetime import datetime
from redrive.capture.c_types import replace_in_class
def ask():
    return datetime.utcnow.__name__, datetime.utcnow() is None
for _ in range(100):
    first = ask()
before = replace_in_class(datetime, "utcnow", staticmethod(lambda: None))
during = ask()
replace_in_class(datetime, "utcnow", before)
print(during, ask() == first)
"""
    assert run("import warnings; warnings.simplefilter('ignore')" + script) == (
        "('<lambda>', True) True\n"
    )


def test_a_class_in_python_is_changed_as_any_other() -> None:
    class Plain:
        value = 1

    assert replace_in_class(Plain, "value", 2) == 1
    assert Plain.value == 2


def test_a_name_that_the_class_only_inherits_is_refused() -> None:
    class Child(dict[str, int]):
        pass

    with pytest.raises(KeyError):
        replace_in_class(Child, "get", None)


def test_a_class_that_does_not_take_the_value_is_refused() -> None:
    class Meta(type):
        def __setattr__(cls, name: str, value: object) -> None:
            pass

    class Stubborn(metaclass=Meta):
        value = 1

    with pytest.raises(TypeError, match=r"Stubborn\.value cannot be replaced"):
        replace_in_class(Stubborn, "value", 2)
