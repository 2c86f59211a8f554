"""Makes container images where no registry can be reached: `python -m tests.e2e.images lambda postgres:16`.

An image of the same name that came from elsewhere, such as a registry, is left as it is and used.
"""

import argparse
import sys
import time

from tests.e2e.images import lambda_base
from tests.e2e.images.files import ImageError, exists_apart, remove
from tests.e2e.images.postgres import make_postgres


def main() -> None:
    """Make the images that are named on the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.images", description=__doc__)
    parser.add_argument(
        "image",
        nargs="+",
        help="lambda, or postgres:15 (the version is one that is installed here)",
    )
    for name in parser.parse_args().image:
        started = time.monotonic()
        try:
            said = make(name)
        except ImageError as error:
            sys.exit(f"{name}: {error}")
        print(f"{said} ({time.monotonic() - started:.0f} s)", flush=True)  # noqa: T201 - it is a command


def make(name: str) -> str:
    """Make one image unless there is another of its name; what is used, in a sentence.

    Raises:
        ImageError: it cannot be made here, or the name means nothing.
    """
    kind, _, version = name.partition(":")
    tag = lambda_base.TAG if name == "lambda" else name
    if exists_apart(tag):
        return f"{tag}: not made here, so it is used as it is"
    match kind:
        case "lambda" if not version:
            remove(lambda_base.EMULATOR_TAG)
            remove(tag)
            of_what = lambda_base.make_lambda_base()
            return f"{tag}: made from this machine's files, not AWS's image ({of_what})"
        case "postgres" if version.isdecimal():
            remove(tag)
            of_what = make_postgres(tag, int(version))
            return f"{tag}: made from this machine's files, not the official image ({of_what})"
        case _:
            raise ImageError("expected `lambda` or `postgres:` and a major version")


if __name__ == "__main__":
    main()
