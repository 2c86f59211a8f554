"""What routes take from a request before they know anything about it."""

import re
from contextlib import aclosing

from fastapi import Request
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase

from shared.crypto import hash_api_key
from shared.errors import TooLarge, Unauthorized
from shared.intake import MAX_REQUEST_BYTES

_BEARER = re.compile(r"bearer ([\x21-\x7e]{1,200})", re.ASCII | re.IGNORECASE)


async def raw_body(request: Request) -> bytes:
    """The body's bytes, as they came.

    Raises:
        TooLarge: there are more than MAX_REQUEST_BYTES; the rest is not read.
    """
    chunks, size = [], 0
    # Closed here and now, also in the middle: left to the garbage collector it would outlive the event loop.
    async with aclosing(request.stream()) as stream:
        async for chunk in stream:
            size += len(chunk)
            if size > MAX_REQUEST_BYTES:
                raise TooLarge(f"a request may have {MAX_REQUEST_BYTES} bytes")
            chunks.append(chunk)
    return b"".join(chunks)


class _ApiKey(SecurityBase):
    """A dependency that OpenAPI shows as what it is."""

    def __init__(self) -> None:
        self.model = HTTPBearer(
            description="An API key, `lh_…`: a tenant's, with the scopes `publish`, `read` and `manage` or some of "
            "them, or an operator's, for every tenant."
        )
        self.scheme_name = "apiKey"

    async def __call__(self, request: Request) -> bytes:
        match = _BEARER.fullmatch(request.headers.get("authorization", ""))
        if match is None:
            raise Unauthorized("send an API key as 'Authorization: Bearer lh_…'")
        return hash_api_key(match[1])


api_key_hash = _ApiKey()
"""The hash of the API key in the Authorization header.

Raises:
    Unauthorized: there is none, or nothing that could be one.
"""
