"""`leasehook doctor`: is everything as it should be?"""

# ruff: noqa: PLC0415 - a command imports what it needs, so that the others start quickly

import sys

from infra.cli.options import AsJson


def doctor(as_json: AsJson = False) -> None:
    """Check configuration, database, secrets, queue and schedules; exits with 1 if something fails."""
    from infra.cli.connection import connect
    from infra.cli.diagnosis import Verdict, worst
    from infra.cli.examination import examine
    from infra.cli.output import print_json, say

    checks = []
    for check in examine(connect):
        checks.append(check)
        if not as_json:
            say(f"{check.verdict:<4}  {check.name}: {check.found}")
            if check.advice is not None:
                say(f"      → {check.advice}")
    verdict = worst(checks)
    if as_json:
        print_json({"verdict": verdict, "checks": checks})
    if verdict is Verdict.FAIL:
        sys.exit(1)
