"""Where deliveries may go: the one URL parser, and the rule for the addresses a URL leads to.

Checking a URL with one parser and connecting with another is how address checks are bypassed, so everything that
stores, shows, checks or connects uses `parse_target` and nothing else. The parser judges how a URL is written;
`TargetPolicy` judges an address, at every attempt, because only then is it known what a name resolves to.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import (
    AddressValueError,
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from urllib.parse import quote

URL_MAX_CHARACTERS = 2_000

_DEFAULT_PORTS = {"http": 80, "https": 443}

_URL = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?]*)(.*)", re.IGNORECASE)
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")

# `quote` leaves letters, digits and "_.-~" alone; these are the other characters a path and query may hold (RFC 3986).
_PATH_SAFE = "/?:@!$&'()*+,;=%"

# IDNA 2003 (the standard library's codec) turns these into other letters, IDNA 2008 keeps them: two different domains.
_AMBIGUOUS_IN_IDNA = frozenset("\u00df\u1e9e\u03c2")


class InvalidTarget(ValueError):
    """The URL cannot be delivered to, ever. The message names the rule and the remedy, and never repeats the URL."""


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed endpoint URL. Made by `parse_target`, which guarantees every statement below.

    `host` is ASCII, lowercase and without brackets or trailing dot: a name in A-label form, a dotted quad, or a
    compressed IPv6 address. `path` begins with a slash, includes the query and is ASCII without spaces or control
    characters. `url` is the normal form that is stored and shown; parsing it again gives an equal target.
    """

    scheme: str
    host: str
    port: int
    path: str
    url: str

    @property
    def authority(self) -> str:
        """The Host header: brackets around IPv6, the port only where it is not the scheme's default."""
        return _authority(self.scheme, self.host, self.port)

    @property
    def is_address(self) -> bool:
        """Whether the host is an address, so that there is no name to resolve."""
        return ":" in self.host or self.host.rpartition(".")[2].isdigit()


def parse_target(url: str) -> Target:
    """Parse an endpoint URL into its normal form.

    Scheme and host become lowercase, a default port and the host's trailing dot disappear, international names
    become A-labels, dot segments of the path are resolved, and characters of the path and query that a URL cannot
    hold are percent-encoded as UTF-8. Whitespace is refused instead: it is a slip of the pen more often than meant.

    Raises:
        InvalidTarget: the URL breaks a rule; the message is fit to be shown to whoever typed it.
    """
    if len(url) > URL_MAX_CHARACTERS:
        raise InvalidTarget(f"the URL is longer than {URL_MAX_CHARACTERS:,} characters; shorten it")
    if any(not character.isprintable() or character.isspace() for character in url):
        raise InvalidTarget(
            "the URL contains whitespace or a control character; remove it, or percent-encode it in the path"
        )
    if "\\" in url:
        raise InvalidTarget("the URL contains a backslash; write / or, in the path, %5C")
    if "#" in url:
        raise InvalidTarget(
            "the URL has a fragment, which is never sent; remove # and what follows"
        )
    match = _URL.fullmatch(url)
    if match is None or match[1].lower() not in _DEFAULT_PORTS:
        raise InvalidTarget("the URL must begin with http:// or https://")
    scheme, authority = match[1].lower(), match[2]
    if "@" in authority:
        raise InvalidTarget(
            "the URL contains credentials; remove what is before @ and use a custom header"
        )
    host, port_text = _split_port(authority)
    host = _normal_host(host)
    port = _port(port_text, scheme)
    path = _normal_path(match[3])
    normal = f"{scheme}://{_authority(scheme, host, port)}{path}"
    if len(normal) > URL_MAX_CHARACTERS:
        raise InvalidTarget(
            f"the URL is longer than {URL_MAX_CHARACTERS:,} characters once percent-encoded; shorten it"
        )
    return Target(scheme, host, port, path, normal)


def _authority(scheme: str, host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return shown if port == _DEFAULT_PORTS[scheme] else f"{shown}:{port}"


def _split_port(authority: str) -> tuple[str, str | None]:
    if authority.startswith("["):
        host, bracket, rest = authority.partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise InvalidTarget("the IPv6 address must be written as [address] or [address]:port")
        return host + bracket, rest[1:] if rest else None
    host, colon, port = authority.partition(":")
    return host, port if colon else None


def _port(text: str | None, scheme: str) -> int:
    if text is None:
        return _DEFAULT_PORTS[scheme]
    if text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65_535:
        return int(text)
    raise InvalidTarget("the port must be a number from 1 to 65535")


def _normal_host(written: str) -> str:
    if written.startswith("["):
        return _normal_ipv6(written[1:-1])
    host = _ascii_host(written).lower().removesuffix(".")
    if not host:
        raise InvalidTarget("the URL has no host; write it after http:// or https://")
    if len(host) > 253:
        raise InvalidTarget("the host name is longer than 253 characters")
    labels = host.split(".")
    for label in labels:
        if not label:
            raise InvalidTarget("the host name has an empty label; remove the extra dot")
        if len(label) > 63:
            raise InvalidTarget("the host name has a label of more than 63 characters")
        if _LABEL.fullmatch(label) is None:
            raise InvalidTarget(
                "the host name may only contain letters, digits, dots, and hyphens inside a label"
            )
    if _NUMERIC_LABEL.fullmatch(labels[-1]):
        _require_dotted_quad(host, typed_as_such=written.isascii())
    return host


def _ascii_host(written: str) -> str:
    if written.isascii():
        return written
    if not _AMBIGUOUS_IN_IDNA.isdisjoint(written):
        raise InvalidTarget(
            "the host name contains a character that IDNA versions read differently; write its xn-- form"
        )
    try:
        return written.encode("idna").decode("ascii")
    except UnicodeError:
        raise InvalidTarget(
            "the international host name cannot be encoded; check its labels, or write its xn-- form"
        ) from None


def _require_dotted_quad(host: str, *, typed_as_such: bool) -> None:
    """Refuse what `inet_aton` would read as IPv4: `127.1`, `0x7f.1`, `2130706433`, octal, full-width digits."""
    try:
        IPv4Address(host)
    except AddressValueError:
        typed_as_such = False
    if not typed_as_such:
        raise InvalidTarget(
            "the IPv4 address must be written as four decimal numbers without leading zeros"
        )


def _normal_ipv6(text: str) -> str:
    if "%" in text:
        raise InvalidTarget("the IPv6 address has a zone; remove % and what follows")
    try:
        address = IPv6Address(text)
    except AddressValueError:
        raise InvalidTarget(
            "the brackets do not hold an IPv6 address; write it like [2001:db8::1]"
        ) from None
    if (mapped := address.ipv4_mapped) is not None:
        # Python 3.13 prints these in dotted form and 3.11 does not; what is stored must not depend on it.
        return f"::ffff:{int(mapped) >> 16:x}:{int(mapped) & 0xFFFF:x}"
    return address.compressed


def _normal_path(text: str) -> str:
    if _BROKEN_ESCAPE.search(text):
        raise InvalidTarget(
            "a % in the URL is not followed by two hexadecimal digits; write %25 for a percent sign"
        )
    encoded = quote(text, safe=_PATH_SAFE)
    path, question_mark, query = encoded.partition("?")
    return _without_dot_segments(path) + question_mark + query


def _without_dot_segments(path: str) -> str:
    """RFC 3986, section 5.2.4, for a path that is empty or begins with a slash."""
    segments = path.split("/")[1:]
    kept: list[str] = []
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments and segments[-1] in {".", ".."}:
        kept.append("")
    return "/" + "/".join(kept)


_REFUSED_V4 = tuple(
    (IPv4Network(network), reason)
    for network, reason in (
        ("0.0.0.0/8", "an unspecified address"),
        ("10.0.0.0/8", "a private address"),
        ("100.64.0.0/10", "a carrier-grade NAT address"),
        ("127.0.0.0/8", "a loopback address"),
        ("169.254.0.0/16", "a link-local address"),
        ("172.16.0.0/12", "a private address"),
        ("192.0.0.0/24", "a reserved address"),
        ("192.0.2.0/24", "a documentation address"),
        ("192.88.99.0/24", "a 6to4 relay address"),
        ("192.168.0.0/16", "a private address"),
        ("198.18.0.0/15", "a benchmarking address"),
        ("198.51.100.0/24", "a documentation address"),
        ("203.0.113.0/24", "a documentation address"),
        ("224.0.0.0/4", "a multicast address"),
        ("240.0.0.0/4", "a reserved address"),
    )
)

_NAT64 = IPv6Network("64:ff9b::/96")
_REFUSED_V6 = tuple(
    (IPv6Network(network), reason)
    for network, reason in (
        ("::/128", "an unspecified address"),
        ("::1/128", "a loopback address"),
        ("64:ff9b::/96", "a NAT64 address"),
        ("64:ff9b:1::/48", "a NAT64 address"),
        ("fc00::/7", "a private address"),
        ("fe80::/10", "a link-local address"),
        ("fec0::/10", "a site-local address"),
        ("ff00::/8", "a multicast address"),
        ("2001::/23", "a reserved address"),
        ("2001:db8::/32", "a documentation address"),
        ("2002::/16", "a 6to4 address"),
        ("3fff::/20", "a documentation address"),
    )
)
_UNICAST_V6 = IPv6Network("2000::/3")

# What answers here hands out credentials or invocations: the metadata services of EC2, ECS and EKS,
# the Lambda runtime's and X-Ray's link-local addresses.
_INSTANCE_SERVICES = frozenset(
    ip_address(address)
    for address in (
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "169.254.100.1",
        "169.254.79.129",
        "fd00:ec2::254",
        "fd00:ec2::23",
    )
)

# The Lambda runtime API, and the extension that serves parameters and secrets.
_LAMBDA_PORTS = frozenset({9001, 2773})
_LAMBDA_NETWORKS: tuple[IPv4Network | IPv6Network, ...] = (
    IPv4Network("0.0.0.0/8"),
    IPv4Network("127.0.0.0/8"),
    IPv4Network("169.254.0.0/16"),
    IPv6Network("::/127"),
    IPv6Network("fe80::/10"),
)


@dataclass(frozen=True, slots=True)
class _Judged:
    """An address as the rules see it: a v4-mapped IPv6 address is its IPv4, and refused for being mapped."""

    address: IPv4Address | IPv6Address | None
    reason: str | None


@lru_cache(maxsize=4096)
def _judge(text: str) -> _Judged:
    """Judge an address by the fixed rules. Written out, since `is_global` differs between Python versions."""
    try:
        address = ip_address(text)
    except ValueError:
        return _Judged(None, "not an IP address")
    if isinstance(address, IPv4Address):
        return _Judged(address, _first_reason(address, _REFUSED_V4))
    if address.scope_id is not None:
        return _Judged(None, "an address with a zone")
    if address.ipv4_mapped is not None:
        return _Judged(address.ipv4_mapped, "an IPv4-mapped IPv6 address")
    reason = _first_reason(address, _REFUSED_V6)
    if reason is None and address not in _UNICAST_V6:
        reason = "a reserved address"
    return _Judged(address, reason)


def _first_reason(
    address: IPv4Address | IPv6Address, rules: tuple[tuple[IPv4Network | IPv6Network, str], ...]
) -> str | None:
    return next((reason for network, reason in rules if address in network), None)


@dataclass(frozen=True, slots=True)
class TargetPolicy:
    """Which addresses deliveries may reach: public unicast, and what `allowed_networks` opens.

    Two things an allowed network does not open. An instance service (the cloud's metadata and credentials
    addresses, the Lambda runtime's) needs an entry for that single address, so that `0.0.0.0/0` cannot give away
    credentials by accident. The ports of the Lambda runtime API and its secrets extension (9001 and 2773) on
    loopback, unspecified and link-local addresses stay closed whatever the list says.
    """

    allowed_networks: tuple[IPv4Network | IPv6Network, ...] = ()

    def refusal(self, address: str, port: int) -> str | None:
        """Say why this address and port may not be connected to, or None if they may.

        The reason is a short phrase such as "a private address"; it does not repeat the address.
        """
        judged = _judge(address)
        if judged.reason is None or judged.address is None:
            return judged.reason
        return self._refusal_of_special(judged.address, judged.reason, port)

    def _refusal_of_special(
        self, address: IPv4Address | IPv6Address, reason: str, port: int
    ) -> str | None:
        if port in _LAMBDA_PORTS and any(address in network for network in _LAMBDA_NETWORKS):
            return "a port of the Lambda runtime"
        opening = [network for network in self.allowed_networks if address in network]
        if address in _INSTANCE_SERVICES and not any(n.num_addresses == 1 for n in opening):
            return "an instance service's address"
        if not opening:
            return reason
        if isinstance(address, IPv6Address) and address in _NAT64:
            # The translator connects to the IPv4 address inside, so that one has to pass as well.
            return self.refusal(str(IPv4Address(int(address) & 0xFFFF_FFFF)), port)
        return None

    def literal_refusal(self, target: Target) -> str | None:
        """Say why a target can be refused without resolving anything, or None if only an attempt can tell.

        Meant for the moment an endpoint is configured. Names are not judged, except `localhost` and what is below
        it, which are refused unless a loopback address is allowed.
        """
        if target.is_address:
            return self.refusal(target.host, target.port)
        if target.host == "localhost" or target.host.endswith(".localhost"):
            refusals = [self.refusal(loopback, target.port) for loopback in ("127.0.0.1", "::1")]
            return None if None in refusals else refusals[0]
        return None


def parse_networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Parse comma-separated CIDR networks or single addresses; an empty text gives an empty tuple.

    Raises:
        ValueError: an item is neither; the message names it.
    """
    return tuple(_network(item) for part in text.split(",") if (item := part.strip()))


def _network(item: str) -> IPv4Network | IPv6Network:
    try:
        if "%" in item:
            raise ValueError("a zone means nothing here")  # noqa: TRY301 - joins the one message below
        return ip_network(item)
    except ValueError as error:
        raise ValueError(
            f"{item!r} is not a network to allow ({error}); write an address or a CIDR network such as 10.0.0.0/8"
        ) from None
