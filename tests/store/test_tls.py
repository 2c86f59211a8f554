"""TLS to the database: what is decided for RDS, whose certificates are trusted, and that libpq holds to it."""

import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import certifi
import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from shared.errors import ConfigurationError, DatabaseUnavailable
from shared.store.connection import Database
from shared.store.tls import BUNDLED_REGIONS, RDS_BUNDLE, with_tls
from tests.sender.certificates import Authority
from tests.support.tls_server import TlsServer

INSTANCE = "orders.c9akciq32.eu-central-1.rds.amazonaws.com"
CLUSTER = "orders.cluster-c9akciq32.us-east-1.rds.amazonaws.com"
PROXY = "orders.proxy-c9akciq32.us-east-1.rds.amazonaws.com"
PROXY_READER = "ro.endpoint.proxy-c9akciq32.us-east-1.rds.amazonaws.com"


def tls(url: str, *, required: bool = False) -> tuple[str | None, str | None]:
    decided = with_tls(conninfo_to_dict(url), required=required)
    return decided.get("sslmode"), decided.get("sslrootcert")


@pytest.mark.parametrize("host", [INSTANCE, CLUSTER, INSTANCE.upper(), f"{INSTANCE},{CLUSTER}"])
def test_rds_is_verified_with_its_own_authorities(host: str) -> None:
    assert tls(f"postgresql://u:p@{host}/d") == ("verify-full", str(RDS_BUNDLE))


@pytest.mark.parametrize("host", [PROXY, PROXY_READER])
def test_a_proxy_of_rds_is_verified_with_the_public_authorities(host: str) -> None:
    assert tls(f"postgresql://u:p@{host}/d") == ("verify-full", certifi.where())


@pytest.mark.parametrize(
    "host",
    [
        "db.example.com",
        "127.0.0.1",
        "rds.amazonaws.com.example.com",
        "eu-central-1xrds.amazonaws.com",
        "orders.eu-central-1.rds.amazonaws.com.evil.net",
    ],
)
def test_another_host_is_left_to_libpq(host: str) -> None:
    assert tls(f"postgresql://u:p@{host}/d") == (None, None)


@pytest.mark.parametrize("mode", ["disable", "prefer", "require"])
def test_what_the_url_says_stays(mode: str) -> None:
    assert tls(f"postgresql://u:p@{INSTANCE}/d?sslmode={mode}") == (mode, None)


@pytest.mark.parametrize("mode", ["verify-ca", "verify-full"])
def test_who_verifies_always_has_authorities(mode: str) -> None:
    assert tls(f"postgresql://u:p@db.example.com/d?sslmode={mode}") == (mode, certifi.where())
    assert tls(f"postgresql://u:p@{INSTANCE}/d?sslmode={mode}") == (mode, str(RDS_BUNDLE))
    own = f"postgresql://u:p@{INSTANCE}/d?sslmode={mode}&sslrootcert=system"
    assert tls(own) == (mode, "system")


def test_authorities_that_are_given_are_verified_with() -> None:
    assert tls(f"postgresql://u:p@{INSTANCE}/d?sslrootcert=/own.pem") == ("verify-full", "/own.pem")


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("orders.c9a.il-central-1.rds.amazonaws.com", "il-central-1"),
        ("orders.c9a.rds.cn-north-1.amazonaws.com.cn", "cn-north-1"),
    ],
)
def test_a_region_whose_authorities_are_not_shipped_is_said_before_connecting(
    host: str, region: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"DATABASE_URL: expected sslrootcert .*{region}"):
        Database(f"postgresql://u:hidden@{host}/d")
    assert tls(f"postgresql://u:p@{host}/d?sslmode=require") == ("require", None)
    assert tls(f"postgresql://u:p@{host}/d?sslrootcert=/x.pem") == ("verify-full", "/x.pem")


def test_where_tls_is_required_less_is_refused() -> None:
    assert tls("postgresql://u@db/d", required=True) == ("verify-full", certifi.where())
    assert tls("postgresql://u@db/d?sslmode=require", required=True) == ("require", None)
    for mode in ("disable", "allow", "prefer"):
        with pytest.raises(ConfigurationError, match=f"needs TLS, got {mode}"):
            tls(f"postgresql://u@db/d?sslmode={mode}", required=True)


@pytest.fixture(scope="module")
def bundle() -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(RDS_BUNDLE.read_bytes())


def common_name(certificate: x509.Certificate) -> str:
    return str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def test_the_bundle_is_rdss_own_authorities_each_once(bundle: list[x509.Certificate]) -> None:
    for certificate in bundle:
        assert certificate.subject == certificate.issuer
        certificate.verify_directly_issued_by(certificate)
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        assert constraints.value.ca
        unit = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
        assert [each.value for each in unit] == ["Amazon RDS"]
        assert certificate.not_valid_after_utc > datetime(2035, 1, 1, tzinfo=UTC)
    names = [common_name(certificate) for certificate in bundle]
    assert len(names) == len(set(names))


def test_the_bundle_has_every_kind_of_authority_of_the_regions_it_says(
    bundle: list[x509.Certificate],
) -> None:
    kinds = ("RSA2048", "RSA4096", "ECC384")
    assert {common_name(certificate) for certificate in bundle} == {
        f"Amazon RDS {region} Root CA {kind} G1" for region in BUNDLED_REGIONS for kind in kinds
    }
    assert {"us-east-1", "eu-central-1", "ap-southeast-2", "sa-east-1"} <= BUNDLED_REGIONS


def test_openssl_reads_the_whole_bundle(bundle: list[x509.Certificate]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(RDS_BUNDLE)
    assert len(context.get_ca_certs()) == len(bundle)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path)


@pytest.fixture
def authorities_file(authority: Authority, tmp_path: Path) -> Path:
    return authority.file(tmp_path / "authority.pem")


@pytest.fixture
def server(authority: Authority, database_url: str) -> Iterator[TlsServer]:
    with TlsServer(authority.server("127.0.0.1"), database_url) as server:
        yield server


def through(server: TlsServer, database_url: str, **parameters: str) -> Database:
    return Database(make_conninfo(database_url, host="127.0.0.1", port=server.port, **parameters))


def test_a_server_with_the_right_name_and_authority_is_let_in_once_for_many_uses(
    server: TlsServer, database_url: str, authorities_file: Path
) -> None:
    database = through(
        server, database_url, sslmode="verify-full", sslrootcert=str(authorities_file)
    )
    for _ in range(5):
        with database.connection() as connection:
            assert connection.info.pgconn.ssl_in_use
            assert connection.execute("select 1 as one").fetchone() == {"one": 1}
    assert server.handshakes == 1
    database.close()


def test_a_statement_is_cut_off_and_cancelled_through_tls(
    server: TlsServer, database_url: str, authorities_file: Path
) -> None:
    database = through(
        server, database_url, sslmode="verify-full", sslrootcert=str(authorities_file)
    ).allowing(0.2)
    began = time.monotonic()
    with (
        pytest.raises(DatabaseUnavailable, match="StatementTimeout"),
        database.connection() as connection,
    ):
        connection.execute("select pg_sleep(60)")
    assert time.monotonic() - began < 2
    assert server.handshakes == 2, "telling the server to stop goes through TLS, too"


def test_an_unknown_authority_is_refused(server: TlsServer, database_url: str) -> None:
    for options in ({"sslmode": "verify-full"}, {"sslmode": "verify-ca"}):
        with (
            pytest.raises(DatabaseUnavailable, match="certificate was not accepted") as refused,
            through(server, database_url, **options).connection(),
        ):
            pass
        assert "127.0.0.1" not in str(refused.value)


def test_another_name_is_refused(
    authority: Authority, authorities_file: Path, database_url: str
) -> None:
    with TlsServer(authority.server("elsewhere.example"), database_url) as server:
        database = through(
            server, database_url, sslmode="verify-full", sslrootcert=str(authorities_file)
        )
        with (
            pytest.raises(DatabaseUnavailable, match="certificate was not accepted"),
            database.connection(),
        ):
            pass


def test_a_file_of_authorities_that_is_not_there_is_said(
    server: TlsServer, database_url: str
) -> None:
    database = through(server, database_url, sslmode="verify-full", sslrootcert="/nowhere.pem")
    with (
        pytest.raises(DatabaseUnavailable, match="sslrootcert names is not there") as refused,
        database.connection(),
    ):
        pass
    assert "nowhere.pem" not in str(refused.value)
