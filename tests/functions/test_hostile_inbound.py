"""A running server under requests that nobody signed: no 5xx, nothing stored, and no more memory than before.

LEASEHOOK_TEST_HOSTILE_SECONDS says for how long.
"""

import os
import random
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from shared.sources import NewSource, create_source
from tests.support.providers import GENERIC, SECRETS, sign
from tests.support.workers import Worker
from tests.support.world import World

SECONDS = float(os.environ.get("LEASEHOOK_TEST_HOSTILE_SECONDS", "8"))
WARM_UP = 400
THREADS = 4
MAX_GROWTH_KB = 40_000

TOKENS = [
    b"",
    b"\xff\xfe",
    b"sha256=",
    b"t=1,v1=",
    b"v1," * 400,
    b"9" * 400,
    b"-1",
    b"nan",
    "١٢٣٤٥٦٧٨٩٠".encode(),
    b"1_700_000_000",
    b"%00",
    b"' or 1=1 --",
    b"{" * 300,
    b"v0=" + b"f" * 64,
]
TYPES = [b"application/json", b"application/x-www-form-urlencoded", b"text/\xe9", b"a" * 3000, b""]


@dataclass(frozen=True)
class Fuzzer:
    """Requests, made of what providers send, that no secret of ours has signed."""

    chance: random.Random
    paths: list[str]

    def request(self) -> bytes:
        """The bytes of one."""
        provider = self.chance.choice(list(SECRETS))
        body = self._body()
        secret = SECRETS[provider] if provider == "standard_webhooks" else "not the secret " * 2
        signed = sign(provider, body, secret=secret, content_type=None)
        headers = [
            (name.encode(), self._value(value.encode())) for name, value in signed.headers.items()
        ]
        headers.append((b"content-type", self.chance.choice(TYPES)))
        if self.chance.random() < 0.2:
            headers.append(self.chance.choice(headers))
        if self.chance.random() < 0.2:
            headers.pop(self.chance.randrange(len(headers)))
        self.chance.shuffle(headers)
        if self.chance.random() < 0.5 or provider == "standard_webhooks":
            # One byte more than was signed.
            body += b"\0"
        method = self.chance.choices([b"POST", b"GET", b"PUT", b"BREW"], [95, 2, 2, 1])[0]
        path = self.chance.choice([*self.paths, "/in/nobody", "/in/%00", "/in/%ff%fe", "/in/a%2fb"])
        lines = [
            b"%b %b HTTP/1.1" % (method, path.encode()),
            b"host: gateway",
            b"connection: close",
            b"content-length: %d" % len(body),
            *(b"%b: %b" % header for header in headers),
        ]
        return b"\r\n".join(lines) + b"\r\n\r\n" + body

    def _body(self) -> bytes:
        match self.chance.randrange(5):
            case 0:
                return self.chance.randbytes(self.chance.randrange(2000))
            case 1:
                return b'{"id":"evt_1","type":"a.b","a":"\\ud83d\\u0000"}'
            case 2:
                return b"[" * self.chance.randrange(1, 100_000)
            case 3:
                return b'{"type":"url_verification","challenge":"x"}'
            case _:
                return b"payload=%7B%7D&" + b"a=1&" * self.chance.randrange(2000)

    def _value(self, value: bytes) -> bytes:
        match self.chance.randrange(4):
            case 0:
                return self.chance.choice(TOKENS)
            case 1:
                at = self.chance.randrange(len(value) + 1)
                odd = bytes([self.chance.choice([*range(32, 127), *range(128, 256)])])
                return value[:at] + odd + value[at:]
            case 2:
                return value[: self.chance.randrange(len(value) + 1)]
            case _:
                return value


def status_of(port: int, request: bytes) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(request)
        with connection.makefile("rb") as answer:
            return int(answer.readline().split()[1])


def memory_kb(pid: int) -> int:
    """Of a process, in use (Linux)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise LookupError(pid)


@pytest.mark.timeout(SECONDS + 120)
def test_what_nobody_signed_leaves_nothing_whatever_it_is(world: World, database_url: str) -> None:
    """WH-008, WH-011, WH-012, WH-013, WH-014, WH-024, WH-040, WH-042."""
    paths = []
    for provider, secret in SECRETS.items():
        configuration = GENERIC if provider == "hmac" else None
        new = NewSource(provider=provider, secret=secret, configuration=configuration)
        source = create_source(world.database, world.sealer, world.tenant_id, new)
        paths.append(str(source["path"]))
    seen: Counter[int] = Counter()

    with Worker("serve", world.environment(database_url)) as server:
        port = int(server.line())

        def attack(seed: int, until: float, at_least: int) -> Counter[int]:
            fuzzer = Fuzzer(random.Random(seed), paths)
            statuses: Counter[int] = Counter()
            while statuses.total() < at_least or time.monotonic() < until:
                statuses[status_of(port, fuzzer.request())] += 1
            return statuses

        with ThreadPoolExecutor(THREADS) as pool:
            for part in pool.map(lambda n: attack(n, 0.0, WARM_UP // THREADS), range(THREADS)):
                seen += part
            before_kb = memory_kb(server.pid)
            until = time.monotonic() + SECONDS
            for part in pool.map(lambda n: attack(100 + n, until, 50), range(THREADS)):
                seen += part
            after_kb = memory_kb(server.pid)

    assert {status for status in seen if not 400 <= status < 500} == set(), seen
    assert seen[401] > seen.total() / 2
    assert after_kb - before_kb < MAX_GROWTH_KB
    for table in ("events", "received", "deliveries", "idempotency_keys"):
        assert world.sql(f"select 1 from leasehook.{table}") == []
    [rows] = world.sql("select count(*) as n from leasehook.source_refusals")
    assert rows["n"] < 100
