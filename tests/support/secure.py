"""A real broker that also listens with TLS and passwords, and the certificates for it."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from scripts.local.kafka import Kafka
from scripts.local.ports import HOST, free_port

USER, PASSWORD = "proto lake", 'pa;ss"wo\\rd'  # what an unquoted JAAS line would break on
LOGIN = "org.apache.kafka.common.security"


class Authority:
    """A certificate authority of the test's own, and one server certificate by it."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.ca_file, self.server_file = folder / "ca.pem", folder / "server.pem"
        key, name = ec.generate_private_key(ec.SECP256R1()), _name("protolake test authority")
        authority = _certificate(name, name, key.public_key(), key, authority=True)
        own = ec.generate_private_key(ec.SECP256R1())
        server = _certificate(_name(HOST), name, own.public_key(), key)
        self.ca_file.write_bytes(_pem(authority))
        plain = serialization.NoEncryption()
        private = own.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        self.server_file.write_bytes(private + _pem(server) + _pem(authority))
        late = _certificate(_name(HOST), name, own.public_key(), key, ended=True)
        self.expired_file = folder / "expired.pem"
        self.expired_file.write_bytes(private + _pem(late) + _pem(authority))


class SecureKafka(Kafka):
    """The broker with a second listener: SASL_SSL, PLAIN and SCRAM-SHA-512."""

    def prepare(self) -> None:
        super().prepare()
        self.secure_port = free_port()
        self.authority = Authority(self.folder / "certificates")
        lines = self._properties.read_text()
        for key in ("listeners=", "advertised.listeners="):
            lines = lines.replace(f"\n{key}", f"\n{key}SECURE://{HOST}:{self.secure_port},")
        lines = lines.replace("protocol.map=", "protocol.map=SECURE:SASL_SSL,")
        self._properties.write_text(lines + self._secure_properties())

    @property
    def secure_bootstrap(self) -> str:
        return f"{HOST}:{self.secure_port}"

    def add_scram_user(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result()

    def _secure_properties(self) -> str:
        quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
        plain = f'{LOGIN}.plain.PlainLoginModule required "user_{USER}"="{quoted}";'
        settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.authority.server_file,
            "listener.name.secure.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.secure.plain.sasl.jaas.config": plain.replace("\\", "\\\\"),
            "listener.name.secure.scram-sha-512.sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule required;",
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)])


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    authority: bool = False,
    ended: bool = False,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now - datetime.timedelta(minutes=1) if ended else now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if not authority:
        names = [x509.IPAddress(ipaddress.ip_address(HOST)), x509.DNSName("localhost")]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
