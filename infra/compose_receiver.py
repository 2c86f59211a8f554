"""The demo receiver as compose.yaml runs it: `python -m infra.compose_receiver PORT`, with the standard library alone."""

import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from infra.receiver import signature_fault

SECRET_VARIABLE = "RECEIVER_SECRET"  # noqa: S105 - where it is, not what it is


class Receiver(ThreadingHTTPServer):
    """Answers 204 to webhooks signed with `secret` (`whsec_…`), 401 to anything else, and prints a line for each."""

    def __init__(self, address: tuple[str, int], secret: str) -> None:
        super().__init__(address, _Webhook)
        self.secret = secret


class _Webhook(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        fault = signature_fault(self.server.secret, headers, body, time.time())
        verdict = f"refused, {fault}" if fault else "signature good"
        text = body.decode(errors="replace")
        sys.stdout.write(f"got {headers.get('webhook-id', 'no id')}, {verdict}: {text}\n")
        sys.stdout.flush()
        self.send_response(401 if fault else 204)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing: the line above says more."""


def main() -> None:
    """Serve until interrupted."""
    with Receiver(("", int(sys.argv[1])), os.environ[SECRET_VARIABLE]) as receiver:
        try:
            receiver.serve_forever()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
