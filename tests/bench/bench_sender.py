"""Posts per second: our transport against the stock `httpx.AsyncClient`, same receiver, same run.

    python tests/bench/bench_sender.py [--posts N] [--concurrency N] [--rounds N]

The receiver is a process of its own that answers as cheaply as Python can. Rounds alternate, medians are printed.
"""

import argparse
import asyncio
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection as Pipe

import httpx

from shared.domain.outcome import Answered
from shared.domain.targets import TargetPolicy, parse_networks, parse_target
from shared.sender.transport import Transport

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
BODY = json.dumps({"type": "invoice.paid", "data": "x" * 1000}).encode()
HEADERS = [
    ("content-type", "application/json"),
    ("user-agent", "leasehook/bench"),
    ("webhook-id", "evt_0123456789abcdef"),
    ("webhook-timestamp", "1700000000"),
    ("webhook-signature", "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4="),
    ("idempotency-key", "dlv_0123456789abcdef"),
]


class FastReceiver(asyncio.Protocol):
    """Counts body bytes by Content-Length and answers; parses nothing else."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            at = head.index(b"content-length:") + 15
            stop = head.find(b"\r\n", at)
            size = end + 4 + int(head[at : stop if stop >= 0 else end])
            if len(self.buffer) < size:
                return
            self.buffer = self.buffer[size:]
            self.transport.write(ANSWER)


def run_receiver(pipe: Pipe) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(FastReceiver, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await asyncio.to_thread(pipe.recv)

    asyncio.run(serve())


async def posts_per_second(
    post: Callable[[], Awaitable[None]], posts: int, concurrency: int
) -> float:
    remaining = iter(range(posts))

    async def work() -> None:
        for _ in remaining:
            await post()

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(concurrency)))
    return posts / (time.perf_counter() - began)


async def measure_ours(url: str, posts: int, concurrency: int) -> float:
    transport = Transport(TargetPolicy(parse_networks("127.0.0.0/8")))
    target = parse_target(url)
    headers = [(name.encode(), value.encode()) for name, value in HEADERS]

    async def post() -> None:
        outcome = await transport.post(target, headers, BODY, timeout_seconds=30)
        if outcome != Answered(200, b"ok"):
            raise RuntimeError(f"the receiver was expected to answer, got {outcome}")

    try:
        await posts_per_second(post, concurrency * 2, concurrency)
        return await posts_per_second(post, posts, concurrency)
    finally:
        await transport.aclose()


async def measure_httpx(url: str, posts: int, concurrency: int) -> float:
    limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    async with httpx.AsyncClient(limits=limits, trust_env=False, timeout=30) as client:

        async def post() -> None:
            answer = await client.post(url, content=BODY, headers=HEADERS)
            answer.raise_for_status()

        await posts_per_second(post, concurrency * 2, concurrency)
        return await posts_per_second(post, posts, concurrency)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--posts", type=int, default=20_000)
    arguments.add_argument("--concurrency", type=int, default=200)
    arguments.add_argument("--rounds", type=int, default=3)
    options = arguments.parse_args()

    pipe, receivers_end = multiprocessing.Pipe()
    receiver = multiprocessing.Process(target=run_receiver, args=(receivers_end,), daemon=True)
    receiver.start()
    url = f"http://127.0.0.1:{pipe.recv()}/hooks"
    ours: list[float] = []
    stock: list[float] = []
    for _ in range(options.rounds):
        ours.append(asyncio.run(measure_ours(url, options.posts, options.concurrency)))
        # The stock client is far slower: a tenth of the posts is a long enough look at it.
        stock.append(asyncio.run(measure_httpx(url, options.posts // 10, options.concurrency)))
    pipe.send(None)
    receiver.join(5)
    mine, theirs = statistics.median(ours), statistics.median(stock)
    sys.stdout.write(
        f"leasehook transport   {mine:>9,.0f} posts/s\n"
        f"httpx.AsyncClient     {theirs:>9,.0f} posts/s\n"
        f"ratio                 {mine / theirs:>9.1f}\n"
    )


if __name__ == "__main__":
    main()
