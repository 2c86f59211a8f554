"""Where the password for the database comes from."""

from dataclasses import dataclass

from shared.secret_values import REFERENCE_FORMS, SecretReference, parse_reference

SETTING = "LEASEHOOK_DATABASE_CREDENTIALS"


@dataclass(frozen=True, slots=True)
class InUrl:
    """DATABASE_URL holds all there is."""


@dataclass(frozen=True, slots=True)
class FromSecret:
    """A secret holds a connection URL, RDS's JSON or a password; DATABASE_URL holds what it lacks."""

    reference: SecretReference


@dataclass(frozen=True, slots=True)
class IamToken:
    """RDS's IAM authentication: each connection begins with a token that is signed for it."""


Credentials = InUrl | FromSecret | IamToken


def parse_credentials(text: str) -> Credentials:
    """Read the setting.

    Raises:
        ValueError: it has none of the forms; the message names them.
    """
    if not text:
        return InUrl()
    if text == "iam":
        return IamToken()
    reference = parse_reference(SETTING, text)
    if reference is None:
        raise ValueError(f"nothing, {REFERENCE_FORMS}, or iam")
    return FromSecret(reference)
