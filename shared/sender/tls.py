"""TLS as a client: one context for everything, and errors in words."""

import ssl


def client_context() -> ssl.SSLContext:
    """The default context: the system's authorities, names and certificates verified, TLS 1.2 or later.

    Sessions are not resumed: a resumed session skips the check of the host name.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def describe_tls_error(error: ssl.SSLError) -> str:
    """Say what was wrong, without OpenSSL's file names and numbers."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate was not accepted: {error.verify_message.rstrip('.')}"
    reason = (error.reason or "unknown reason").replace("_", " ").lower()
    return f"the TLS handshake failed: {reason}"
