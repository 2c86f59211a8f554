"""Webhooks of other people: how providers sign them, and whether one request is signed as it should be.

`schemes` says how providers sign, as data; `generic` reads a user's own description of one; `keys` reads secrets;
`verification` judges a request; `contents` finds its id and type, afterwards.
"""

from shared.domain.inbound.contents import FALLBACK_TYPE, kept_headers, safe_event_type
from shared.domain.inbound.generic import generic
from shared.domain.inbound.keys import parse_inbound_secret
from shared.domain.inbound.schemes import PROVIDERS, InvalidScheme, Scheme, check_tolerance
from shared.domain.inbound.verification import Reason, Refused, Verified, verify
from shared.domain.signing import InvalidSecret

__all__ = [
    "FALLBACK_TYPE",
    "PROVIDERS",
    "InvalidScheme",
    "InvalidSecret",
    "Reason",
    "Refused",
    "Scheme",
    "Verified",
    "check_tolerance",
    "generic",
    "kept_headers",
    "parse_inbound_secret",
    "safe_event_type",
    "verify",
]
