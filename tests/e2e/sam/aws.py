"""What stands in for AWS: moto's server, at an address that the functions' containers reach."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import boto3

from tests.e2e.sam.sam import BIN

_START_SECONDS = 30.0


@contextmanager
def moto(address: str, log: Path) -> Iterator[str]:
    """A server while the block runs; its URL, to be used in place of every AWS service's."""
    with socket.create_server((address, 0)) as listener:
        port: int = listener.getsockname()[1]
    with (
        log.open("w") as output,
        subprocess.Popen(
            [BIN / "moto_server", "-H", address, "-p", str(port)],
            env=os.environ,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not _listens(address, port):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield f"http://{address}:{port}"
        finally:
            process.terminate()


def create_secrets(url: str, texts: Mapping[str, str]) -> dict[str, str]:
    """Put secrets into Secrets Manager; their ARNs by name."""
    client = boto3.client(
        "secretsmanager",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    arns = {
        name: client.create_secret(Name=name, SecretString=text)["ARN"]
        for name, text in texts.items()
    }
    client.close()
    return arns


def _listens(address: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0
