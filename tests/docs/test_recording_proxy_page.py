"""The tables of docs/recording-proxy.md say what the code does."""

from pathlib import Path

from redrive.capture import agent_side
from redrive.capture.passed_headers import DECODABLE
from redrive.capture.ports import Outcome
from redrive.capture.targets import TARGETS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "recording-proxy.md").read_text("utf-8")


def test_every_variable_is_listed_in_its_order() -> None:
    block = PAGE.split("<!-- table: variables -->\n")[1].split("<!-- end -->")[0]
    lines = block.strip().splitlines()[2:]
    rows = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]
    assert rows == [[t.variable, t.when, t.url, t.suffix, t.read_by] for t in TARGETS]


def test_every_outcome_is_explained() -> None:
    assert {outcome for outcome in Outcome if f"`{outcome}`" in PAGE} == set(Outcome)


def test_the_codings_that_are_kept_are_named() -> None:
    sentence = PAGE.split("`Accept-Encoding` keeps ")[1].split(", and loses")[0]
    named = {word.strip("`,").encode() for word in sentence.split() if word != "and"}
    assert named == DECODABLE - {b"x-gzip"}


def test_the_caps_are_as_said() -> None:
    assert agent_side.MAX_BODY_BYTES == 64 * 1024 * 1024
    assert agent_side.MAX_HEADER_BYTES == 64 * 1024
    assert "64 MiB of body (413) and 64 KiB of headers (431)" in PAGE
