"""`python -m chiasm_contract.probe SOCKET PATH`: does the process behind a Unix socket answer 200?

Run by the kubelet inside the worker's container, which has no network port. Standard library
only and nothing of ours: it starts in some tens of milliseconds, every few seconds.
"""

from __future__ import annotations

import socket
import sys

TIMEOUT_SECONDS = 4.0


def check(socket_path: str, path: str) -> str | None:
    """What is wrong, in a sentence; None when GET `path` is answered 200."""
    request = f"GET {path} HTTP/1.1\r\nHost: worker\r\nConnection: close\r\n\r\n"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(TIMEOUT_SECONDS)
            connection.connect(socket_path)
            connection.sendall(request.encode())
            answer = connection.recv(256)
    except OSError as error:
        return f"{socket_path} does not answer: {error}"
    status = answer.split(b"\r\n", maxsplit=1)[0].decode(errors="replace")
    return None if status.split(" ")[1:2] == ["200"] else f"{path} answered {status!r}"


def main() -> None:
    """Exit 0 when it answers, else print why and exit 1."""
    if len(sys.argv) != 3:
        raise SystemExit("usage: python -m chiasm_contract.probe SOCKET PATH")
    problem = check(sys.argv[1], sys.argv[2])
    if problem:
        raise SystemExit(problem)


if __name__ == "__main__":
    main()
