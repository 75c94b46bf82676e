"""The world outside a sandbox: a file and a loopback server, which tell what reached them."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Witness:
    """What happened outside.

    Attributes:
        file: exists as soon as something was written there.
        port: of a server on loopback.
        reached: the first bytes of each connection.
    """

    file: Path
    port: int
    reached: list[bytes] = field(default_factory=list)

    @property
    def saw_nothing(self) -> bool:
        return not self.file.exists() and not self.reached


@contextlib.contextmanager
def open_witness(folder: Path) -> Iterator[Witness]:
    """Open a witness until the context ends."""
    server = socket.create_server(("127.0.0.1", 0))
    witness = Witness(folder / "witness.txt", server.getsockname()[1])

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                witness.reached.append(connection.recv(100))
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield witness
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()
