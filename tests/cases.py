"""The known ways in which systems like this one fail, and the tests that hold ours to the right answer.

A test claims a case by naming it in its docstring (or in its class's or module's). `python -m tests.cases` writes the
table tests/CASES.md; a test compares the two, and fails when a case has no test.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent
TABLE = ROOT / "CASES.md"

CASES = {
    "WH-001": "Stored payload is re-serialised before signing or sending",
    "WH-002": "Inbound verification over parsed-then-dumped JSON",
    "WH-003": "Emoji and other multi-byte text in a signed inbound body",
    "WH-005": "Secrets in every base64 dress",
    "WH-006": "Empty or junk secret gives a predictable HMAC key",
    "WH-007": "Secret pasted with the signature prefix",
    "WH-008": "Several signatures in one header, some unusable",
    "WH-010": "Secret rotation window, outbound",
    "WH-011": "Stripe header with two v1 values, v0, duplicated t",
    "WH-012": "Timestamps that break or bypass the tolerance check",
    "WH-013": "Non-ASCII byte in a signature or API-key header → 500",
    "WH-014": "Header name casing, digest casing and weaker alternatives",
    "WH-015": "Retry sent without a fresh signature or with a stale timestamp",
    "WH-016": "Endpoint edited, disabled or deleted while deliveries wait",
    "WH-017": "Client-chosen event id used as `webhook-id`",
    "WH-020": "Body arrives base64-encoded depending on Content-Type",
    "WH-021": "REST API with BinaryMediaTypes turns JSON into base64",
    "WH-022": "Named stage in the path",
    "WH-024": "Absent, null and empty bodies",
    "WH-026": "ALB events: query encoding, single-value headers, cookies",
    "WH-027": "Non-HTTP event reaches the ingest handler (and the reverse)",
    "WH-028": "Async clients and pools kept across warm invocations",
    "WH-029": "Lifespan/startup work repeated on every request",
    "WH-030": "Request-size limits",
    "WH-032": 'Work scheduled "after the response" on Lambda',
    "WH-033": "Scheduler or Lambda invokes the drain more than once",
    "WH-034": "Overlapping scheduled drains",
    "WH-035": "Lambda killed at its timeout in the middle of a batch",
    "WH-040": "`\\u0000` inside a JSON string",
    "WH-041": "NUL bytes and malformed ids in path, query, headers, cursor",
    "WH-042": "Unpaired UTF-16 surrogate",
    "WH-043": "NaN / Infinity literals",
    "WH-044": "Very deep nesting, giant numbers, giant key counts",
    "WH-047": "Claim takes more rows than its LIMIT",
    "WH-048": "Dead connection after the container was frozen",
    "WH-049": "Prepared statements behind transaction pooling",
    "WH-052": "Transaction held open during the HTTP call",
    "WH-053": "Deadlocks between batch updates",
    "WH-054": "App clock and database clock disagree; now() inside a long transaction",
    "WH-057": "Claim cost with a big backlog",
    "WH-058": "Old snapshot keeps dead tuples alive",
    "WH-059": "Retention purge",
    "WH-060": "Two cold starts run migrations together",
    "WH-063": "Database unavailable or out of connections",
    "WH-064": "Aborted transaction leaks into the next warm request",
    "WH-070": "Redirects",
    "WH-071": "SSRF by address literal",
    "WH-073": "DNS rebinding and mixed answers",
    "WH-075": "TLS checks survive IP pinning and customer mistakes",
    "WH-076": "Response that never finishes",
    "WH-077": "Huge, compressed or lying response bodies",
    "WH-078": "Reused keep-alive connection closed by the server",
    "WH-080": "Exceptions that aren't httpx errors",
    "WH-081": "Custom headers overriding protocol headers",
    "WH-082": "Header values that can't travel",
    "WH-084": "URL hygiene",
    "WH-085": "Retry-After",
    "WH-086": "410 Gone",
    "WH-087": "Which failures are retried",
    "WH-090": "One lease for a whole batch, handled one after another",
    "WH-091": "Stale worker overwrites a newer state",
    "WH-092": "Row that kills the worker every time",
    "WH-094": "Row stuck `in_progress` with no way back",
    "WH-095": "One slow or dead endpoint starves the others",
    "WH-096": "Drain stops at the first failed row",
    "WH-097": "Back-off arithmetic and synchronised retries",
    "WH-098": "Half-open probe that never reports",
    "WH-099": "Half-open stampede",
    "WH-101": "Breaker-blocked or paused rows burn attempts",
    "WH-102": "Events during a disabled endpoint",
    "WH-103": "Endpoint URL change inherits breaker and failure counters",
    "WH-104": "Replay semantics",
    "WH-106": "Same idempotency key at the same moment",
    "WH-107": "Same key, different body",
    "WH-108": "Dedupe key not scoped to tenant and source",
    "WH-110": "Wrong material in the dedupe key",
    "WH-112": 'Provider retry after our failure is answered "duplicate"',
    "WH-115": "Silent auto-disable",
    "WH-120": "Delivery/event looked up by id alone (IDOR)",
    "WH-121": "Fan-out crosses tenants",
    "WH-122": "Secrets shown or logged",
    "WH-123": "Payload shown in the operator console",
    "WH-124": "CSRF on console actions",
    "WH-125": "API keys",
}

_CASE = re.compile(r"WH-\d{3}")


@cache
def claims() -> dict[str, list[str]]:
    """Case → the tests that claim it, as pytest names them."""
    found: dict[str, list[str]] = {case: [] for case in CASES}
    for path in sorted(ROOT.rglob("test_*.py")):
        for case, test in _claims_of(path):
            found.setdefault(case, []).append(f"{path.relative_to(ROOT)}::{test}")
    return found


def table() -> str:
    """The text of tests/CASES.md."""
    lines = [
        "# Known failure cases, and the tests that pin the right answer",
        "",
        "| case | what fails elsewhere | tests |",
        "| --- | --- | --- |",
    ]
    for case, tests in claims().items():
        lines.append(f"| {case} | {CASES[case]} | {'<br>'.join(f'`{test}`' for test in tests)} |")
    return "\n".join(lines) + "\n"


def _claims_of(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test_"
        ):
            text = ast.get_docstring(node) or ""
            for case in sorted(set(_CASE.findall(text))):
                yield case, node.name


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
