from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.targets import InvalidTarget, TargetPolicy, parse_networks, parse_target

PUBLIC_ONLY = TargetPolicy()


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("https://example.com", "https://example.com/"),
        ("HTTPS://EXAMPLE.com:443", "https://example.com/"),
        ("http://example.com:80/a", "http://example.com/a"),
        ("http://example.com:0443/a", "http://example.com:443/a"),
        ("https://example.com./hook", "https://example.com/hook"),
        ("https://example.com?a=1", "https://example.com/?a=1"),
        ("https://example.com/a?b=/../c", "https://example.com/a?b=/../c"),
        ("https://example.com/../a/./b/../c", "https://example.com/a/c"),
        ("https://example.com/a/..", "https://example.com/"),
        ("https://example.com//a", "https://example.com//a"),
        ("https://example.com/b%C3%BC%2e%2e", "https://example.com/b%C3%BC%2e%2e"),
        ("https://example.com/bü?q=é", "https://example.com/b%C3%BC?q=%C3%A9"),
        ('https://example.com/{id}|"', "https://example.com/%7Bid%7D%7C%22"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("https://BÜCHER。example/", "https://xn--bcher-kva.example/"),
        ("https://☃.example/", "https://xn--n3h.example/"),
        ("http://192.0.2.1:8080/", "http://192.0.2.1:8080/"),
        ("http://[2001:DB8:0::1]:8080/", "http://[2001:db8::1]:8080/"),
        ("http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/"),
    ],
)
def test_a_url_has_one_normal_form_that_parses_to_itself(written: str, normal: str) -> None:
    """WH-084."""
    target = parse_target(written)
    assert target.url == normal
    assert parse_target(normal) == target


@pytest.mark.parametrize(
    ("written", "rule"),
    [
        ("", "http:// or https://"),
        ("example.com/hook", "http:// or https://"),
        ("ftp://example.com/", "http:// or https://"),
        ("http:example.com", "http:// or https://"),
        (" https://example.com/", "whitespace"),
        ("https://example.com/ ", "whitespace"),
        ("https://ok.example/\n", "whitespace"),
        ("https://ok.example/\t", "whitespace"),
        ("https://ok.example/a b", "whitespace"),
        ("https://ok.example/\x00", "control character"),
        ("https://ok.example/\u200b", "control character"),
        ("https://ok.example/\ud800", "control character"),
        ("https://user:hunter2@example.com/", "credentials"),
        ("https://user@example.com/", "credentials"),
        ("https://example.com/#top", "fragment"),
        ("https://ex.com\\@10.0.0.1/", "backslash"),
        ("http:///x", "no host"),
        ("https://./", "no host"),
        ("https://:443/", "no host"),
        ("http://a..b.example/", "empty label"),
        ("http://example.com../", "empty label"),
        ("http://" + "a" * 64 + "/", "63 characters"),
        ("http://" + ".".join(["a" * 60] * 5) + "/", "253 characters"),
        ("http://under_score.example/", "letters, digits"),
        ("http://-dash.example/", "letters, digits"),
        ("http://a%2eb.example/", "letters, digits"),
        ("http://example.com:0/", "port"),
        ("http://example.com:99999/", "port"),
        ("http://example.com:65536/", "port"),
        ("http://example.com:/", "port"),
        ("http://example.com:+80/", "port"),
        ("http://example.com:٨٠/", "port"),
        ("http://2130706433/", "IPv4"),
        ("http://127.1/", "IPv4"),
        ("http://0x7f.1/", "IPv4"),
        ("http://0177.0.0.1/", "IPv4"),
        ("http://1.2.3.4.5/", "IPv4"),
        ("http://256.0.0.1/", "IPv4"),
        ("http://\uff11\uff12\uff17.0.0.1/", "IPv4"),
        ("http://[::1/", "[address]"),
        ("http://[::1]x/", "[address]"),
        ("http://[fe80::1%25eth0]/", "zone"),
        ("http://[127.0.0.1]/", "IPv6"),
        ("http://[]/", "IPv6"),
        ("http://::1/", "no host"),
        ("https://faß.example/", "xn--"),
        ("https://℀.example/", "letters, digits"),
        ("https://" + "ü" * 64 + ".example/", "xn--"),
        ("https://example.com/100%", "%25"),
        ("https://example.com/" + "a" * 5000, "2,000 characters"),
        ("https://example.com/" + "ü" * 1000, "percent-encoded"),
    ],
)
def test_a_url_that_breaks_a_rule_is_refused_with_the_rule(written: str, rule: str) -> None:
    """WH-080, WH-084."""
    with pytest.raises(InvalidTarget) as refused:
        parse_target(written)
    assert rule in str(refused.value)
    assert "hunter2" not in str(refused.value)


@given(st.text(alphabet=st.characters(), max_size=60))
def test_any_text_is_either_refused_or_has_a_sendable_normal_form(text: str) -> None:
    for written in (
        text,
        f"http://{text}",
        f"https://example.com/{text}",
        f"http://{text}.example/",
    ):
        try:
            target = parse_target(written)
        except InvalidTarget:
            continue
        assert parse_target(target.url) == target
        assert target.url.isascii()
        assert target.url.isprintable()
        assert " " not in target.url
        assert target.path.startswith("/")


def test_the_host_header_names_the_port_only_when_it_is_not_the_default() -> None:
    assert parse_target("https://example.com/").authority == "example.com"
    assert parse_target("http://example.com:443/").authority == "example.com:443"
    assert parse_target("http://[2001:db8::1]:81/").authority == "[2001:db8::1]:81"


def test_only_addresses_count_as_addresses() -> None:
    assert parse_target("http://192.0.2.1/").is_address
    assert parse_target("http://[2001:db8::1]/").is_address
    assert not parse_target("http://1.2.3.com/").is_address


FORBIDDEN = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "169.254.169.254",
    "169.254.100.1",
    "169.254.170.2",
    "172.31.0.1",
    "192.168.1.1",
    "192.0.0.1",
    "192.88.99.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "::ffff:127.0.0.1",
    "::ffff:a9fe:a9fe",
    "::ffff:93.184.216.34",
    "::127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2001:0:4136:e378::1",
    "2001:db8::1",
    "fe80::1",
    "fe80::1%eth0",
    "2600::1%eth0",
    "fec0::1",
    "fd00:ec2::254",
    "ff02::1",
    "4000::1",
    "not an address",
    "",
]


@pytest.mark.parametrize("address", FORBIDDEN)
def test_only_public_unicast_addresses_may_be_reached(address: str) -> None:
    """WH-071."""
    assert PUBLIC_ONLY.refusal(address, 443)


@pytest.mark.parametrize("address", ["93.184.216.34", "1.1.1.1", "2606:4700::1111", "2a00:1450::1"])
def test_public_addresses_may_be_reached_on_any_port(address: str) -> None:
    assert PUBLIC_ONLY.refusal(address, 443) is None
    assert PUBLIC_ONLY.refusal(address, 9001) is None


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_whatever_the_policy_lets_through_the_standard_library_calls_global(
    address: IPv4Address | IPv6Address,
) -> None:
    if PUBLIC_ONLY.refusal(str(address), 443) is None:
        assert address.is_global
        assert not address.is_multicast
        assert not address.is_reserved


def test_an_allowed_network_opens_what_is_inside_it_and_nothing_else() -> None:
    policy = TargetPolicy(parse_networks("127.0.0.0/8, 10.1.0.0/16, fd12::/16"))
    assert policy.refusal("127.0.0.1", 8080) is None
    assert policy.refusal("10.1.2.3", 80) is None
    assert policy.refusal("fd12::1", 80) is None
    assert policy.refusal("10.2.0.1", 80) == "a private address"
    assert policy.refusal("::1", 80) == "a loopback address"


def test_a_mapped_address_counts_as_the_ipv4_address_inside() -> None:
    policy = TargetPolicy(parse_networks("127.0.0.0/8, ::/0"))
    assert policy.refusal("::ffff:127.0.0.1", 8080) is None
    assert policy.refusal("::ffff:10.0.0.1", 8080) == "an IPv4-mapped IPv6 address"


def test_an_instance_service_is_only_opened_by_its_own_address() -> None:
    everything = TargetPolicy(parse_networks("0.0.0.0/0, ::/0"))
    for address in ("169.254.169.254", "169.254.100.1", "fd00:ec2::254", "::ffff:169.254.169.254"):
        assert everything.refusal(address, 80) == "an instance service's address"
    named = TargetPolicy(parse_networks("169.254.169.254"))
    assert named.refusal("169.254.169.254", 80) is None


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "0.0.0.0", "::1", "169.254.100.1", "::ffff:127.0.0.1"]
)
@pytest.mark.parametrize("port", [9001, 2773])
def test_the_ports_of_the_lambda_runtime_stay_closed_whatever_is_allowed(
    address: str, port: int
) -> None:
    """WH-071."""
    policy = TargetPolicy(parse_networks("0.0.0.0/0, ::/0, 127.0.0.1, ::1, 169.254.100.1"))
    assert policy.refusal(address, port) == "a port of the Lambda runtime"


def test_an_allowed_nat64_network_still_judges_the_address_behind_the_translator() -> None:
    policy = TargetPolicy(parse_networks("64:ff9b::/96"))
    assert policy.refusal("64:ff9b::8.8.8.8", 443) is None
    assert policy.refusal("64:ff9b::10.0.0.1", 80) == "a private address"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "10.0.0.1", "localhost", "localhost.", "a.localhost"]
)
def test_what_needs_no_resolving_is_refused_when_it_is_configured(host: str) -> None:
    """WH-071."""
    assert PUBLIC_ONLY.literal_refusal(parse_target(f"http://{host}/"))


@pytest.mark.parametrize("host", ["example.com", "db.internal", "notlocalhost", "93.184.216.34"])
def test_names_wait_for_an_attempt_to_be_judged(host: str) -> None:
    assert PUBLIC_ONLY.literal_refusal(parse_target(f"http://{host}/")) is None


def test_localhost_may_be_configured_where_loopback_is_allowed() -> None:
    localhost = parse_target("http://localhost:8080/")
    assert TargetPolicy(parse_networks("127.0.0.0/8")).literal_refusal(localhost) is None
    assert TargetPolicy(parse_networks("::1")).literal_refusal(localhost) is None
    assert TargetPolicy(parse_networks("10.0.0.0/8")).literal_refusal(localhost)


def test_networks_are_read_from_a_comma_separated_setting() -> None:
    assert parse_networks("") == ()
    assert parse_networks(" 10.0.0.0/8 ,, ::1 ") == (ip_network("10.0.0.0/8"), ip_network("::1"))


@pytest.mark.parametrize("item", ["10.0.0.1/8", "localhost", "10.0.0.0/33", "::1%lo"])
def test_a_bad_network_is_named(item: str) -> None:
    with pytest.raises(ValueError, match="not a network to allow") as refused:
        parse_networks(f"127.0.0.1, {item}")
    assert repr(item) in str(refused.value)
