"""A certificate authority of our own, for servers on loopback."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shared.sender.tls import client_context


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


@dataclass(frozen=True, slots=True)
class Authority:
    """Issues server certificates into a folder, and makes clients that trust them."""

    folder: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def create(cls, folder: Path) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name("Leasehook test authority")
        now = datetime.now(UTC)
        public = key.public_key()
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    key_cert_sign=True,
                    crl_sign=True,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
            .sign(key, hashes.SHA256())
        )
        return cls(folder, key, certificate)

    def client(self) -> ssl.SSLContext:
        """The sender's own client context, which trusts this authority as well."""
        context = client_context()
        pem = self.certificate.public_bytes(serialization.Encoding.PEM).decode()
        context.load_verify_locations(cadata=pem)
        return context

    def file(self, path: Path) -> Path:
        """The authority's own certificate in a file, for clients that want one."""
        path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        return path

    def server(
        self, *names: str, expired: bool = False, self_signed: bool = False
    ) -> ssl.SSLContext:
        """A server context with a fresh certificate for the names and addresses given."""
        key = ec.generate_private_key(ec.SECP256R1())
        public, signer = key.public_key(), key if self_signed else self.key
        issuer = _name(names[0]) if self_signed else self.certificate.subject
        ends_at = datetime.now(UTC) + timedelta(hours=-1 if expired else 1)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_name(names[0]))
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(ends_at - timedelta(hours=2))
            .not_valid_after(ends_at)
            .add_extension(
                x509.SubjectAlternativeName([_general_name(name) for name in names]),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
                critical=False,
            )
            .sign(signer, hashes.SHA256())
        )
        path = self.folder / f"{certificate.serial_number}.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context
