"""A gate before the proxy's upstreams: what it does not admit goes nowhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from redrive.capture.passed_headers import replaced
from redrive.capture.ports import Outcome, Passing, SentRequest, ServedAnswer
from tests.proxying import Exchange, MemoryBackend, body_of, request
from tests.unit.capture.test_proxy import code_of, exchange_with


@dataclass
class _Gate:
    """Admits with what it holds, or raises it."""

    admits: Passing | ServedAnswer | BaseException
    asked: list[tuple[str, SentRequest, Mapping[bytes, bytes]]] = field(default_factory=list)

    async def admit(
        self, name: str, request: SentRequest, fields: Mapping[bytes, bytes]
    ) -> Passing | ServedAnswer:
        self.asked.append((name, request, fields))
        if isinstance(self.admits, BaseException):
            raise self.admits
        return self.admits


def _exchange() -> Exchange:
    return Exchange(SentRequest("POST", "", (), b"", 0))


def test_what_a_gate_admits_leaves_with_its_body_and_headers_and_tells_its_observer() -> None:
    seen = _exchange()
    headers = (("authorization", "Bearer real"), ("x-new", "1"))
    gate = _Gate(Passing(seen, b"another body", headers, frozenset(("cookie",))))
    own = [b"Authorization: Bearer fake", b"Cookie: c", b"X-Kept: k"]
    answer, backend, talks = exchange_with(
        lambda proxy: request(proxy, body=b"own", headers=own), gate=gate
    )
    assert body_of(answer) == b"another body"
    sent = talks[0].head.lower()
    assert b"bearer real" in sent
    assert b"bearer fake" not in sent
    assert b"cookie" not in sent
    assert b"x-kept: k" in sent
    assert b"content-length: 12" in sent
    assert (seen.outcome, seen.body) == (Outcome.COMPLETE, b"another body")
    assert backend.exchanges == []
    name, asked, fields = gate.asked[0]
    assert (asked.body, fields[b"cookie"]) == (b"own", b"c")
    assert name


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (LookupError("broken"), b"503", "gate_failed"),
        (BaseException("over"), b"400", "run_stopped"),
    ],
)
def test_a_gate_that_fails_or_ends_the_run_lets_nothing_out(
    fault: BaseException, status: bytes, code: str
) -> None:
    answer, _, talks = exchange_with(lambda proxy: request(proxy, body=b"x"), gate=_Gate(fault))
    assert answer.split(b" ", 2)[1] == status
    assert code_of(answer) == code
    assert talks == []


def test_a_gate_may_answer_in_the_upstreams_place() -> None:
    served = ServedAnswer(418, (("x-a", "b"),), b"tea")
    answer, _, talks = exchange_with(lambda proxy: request(proxy), gate=_Gate(served))
    assert (answer.split(b" ", 2)[1], body_of(answer), talks) == (b"418", b"tea", [])


def test_a_control_route_may_answer_as_it_likes() -> None:
    async def accept(_: bytes) -> ServedAnswer:
        return ServedAnswer(202, (), b"")

    def raw(proxy: Any) -> bytes:
        path = proxy.path_for("redrive")
        host = f"127.0.0.1:{proxy._port}"
        head = f"POST {path}/note HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n"
        return head.encode() + b"Connection: close\r\n\r\n"

    answer, _, _ = exchange_with(raw, control={"note": accept})
    assert answer.startswith(b"HTTP/1.1 202")
    assert body_of(answer) == b""


def test_headers_are_replaced_whatever_their_case() -> None:
    headers = [(b"Host", b"h"), (b"X-Api-KEY", b"old"), (b"Cookie", b"c")]
    given = (("x-api-key", "new"),)
    assert replaced(headers, given, frozenset(("cookie",))) == [
        (b"Host", b"h"),
        (b"x-api-key", b"new"),
    ]


def test_a_backend_that_is_told_nothing_of_is_no_gate() -> None:
    answer, backend, _ = exchange_with(lambda proxy: request(proxy, body=b"x"))
    assert body_of(answer) == b"x"
    assert isinstance(backend, MemoryBackend)
    assert len(backend.exchanges) == 1
