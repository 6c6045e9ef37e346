"""A real broker that also listens with TLS, passwords and client certificates, and that heeds ACLs."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from scripts.local.kafka import Kafka
from scripts.local.ports import HOST, free_ports
from tests.support.tokens import AUDIENCE, Issuer

USER, PASSWORD = "proto lake", 'pa;ss"wo\\rd'  # what an unquoted JAAS line would break on
LOGIN = "org.apache.kafka.common.security"
OAUTH = f"{LOGIN}.oauthbearer"


class Authority:
    """A certificate authority of the test's own, and the certificates by it."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key, self._name = ec.generate_private_key(ec.SECP256R1()), _name("protolake test authority")
        self._own = _certificate(self._name, self._name, self._key.public_key(), self._key, authority=True)
        self.ca_file, self.server_file = folder / "ca.pem", folder / "server.pem"
        self.ca_file.write_bytes(_pem(self._own))
        certificate, key = self.certify(HOST)
        self.server_file.write_bytes(key.read_bytes() + certificate.read_bytes())
        late, late_key = self.certify(HOST, days=-1)
        self.expired_file = folder / "expired.pem"
        self.expired_file.write_bytes(late_key.read_bytes() + late.read_bytes())

    def certify(self, common: str, days: int = 1) -> tuple[Path, Path]:
        """The files of a certificate chain and of its private key. `days` below zero: it has expired."""
        own = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate(_name(common), self._name, own.public_key(), self._key, days=days)
        plain = serialization.NoEncryption()
        private = own.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        stem = f"{common}{days}".replace(" ", "-")
        chain_file, key_file = self._folder / f"{stem}.pem", self._folder / f"{stem}.key"
        chain_file.write_bytes(_pem(certificate) + _pem(self._own))
        key_file.write_bytes(private)
        return chain_file, key_file


class SecureKafka(Kafka):
    """The broker with two more listeners: SASL_SSL with PLAIN and SCRAM-SHA-512, and SSL with client certificates. It
    heeds ACLs; where there are none everybody may do everything."""

    asks_again_ms = 0  # after so long a login has to be made again, on the connection that there is; 0 = never

    def prepare(self) -> None:
        super().prepare()
        self.secure_port, self.mutual_port = free_ports(2, self.port, self._controller_port)
        self.authority = Authority(self.folder / "certificates")
        self.issuer = Issuer(self.folder / "tokens")
        lines = self._properties.read_text()
        for key in ("listeners=", "advertised.listeners="):
            more = f"SECURE://{HOST}:{self.secure_port},MUTUAL://{HOST}:{self.mutual_port},"
            lines = lines.replace(f"\n{key}", f"\n{key}{more}")
        lines = lines.replace("protocol.map=", "protocol.map=SECURE:SASL_SSL,MUTUAL:SSL,")
        self._properties.write_text(lines + self._secure_properties())

    @property
    def secure_bootstrap(self) -> str:
        return f"{HOST}:{self.secure_port}"

    @property
    def mutual_bootstrap(self) -> str:
        return f"{HOST}:{self.mutual_port}"

    def deny(self, topic: str, operation: AclOperation) -> None:
        """Refuse an operation on the topic to `USER`."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        named = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
        rule = AclBinding(*named, f"User:{USER}", "*", operation, AclPermissionType.DENY)
        others = AclBinding(*named, "User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW)
        for done in admin.create_acls([rule, others]).values():
            done.result()

    def add_scram_user(self, password: str = PASSWORD) -> None:
        """Or change the password, if there is the user already."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(USER, info, password.encode())
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result()

    def _java_command(self) -> list[str]:
        java, *options = super()._java_command()
        return [java, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._keys_url}", *options]

    @property
    def _keys_url(self) -> str:
        return self.issuer.keys_file.as_uri()

    def _secure_properties(self) -> str:
        quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
        plain = f'{LOGIN}.plain.PlainLoginModule required "user_{USER}"="{quoted}";'
        settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.authority.server_file,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority.ca_file,
            "listener.name.mutual.ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "true",
            "listener.name.secure.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.secure.plain.sasl.jaas.config": plain.replace("\\", "\\\\"),
            "listener.name.secure.scram-sha-512.sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule required;",
            "listener.name.secure.oauthbearer.sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required;",
            "listener.name.secure.oauthbearer.sasl.server.callback.handler.class": (
                f"{OAUTH}.OAuthBearerValidatorCallbackHandler"
            ),
            "listener.name.secure.sasl.oauthbearer.jwks.endpoint.url": self._keys_url,
            "listener.name.secure.sasl.oauthbearer.expected.audience": AUDIENCE,
            "connections.max.reauth.ms": self.asks_again_ms,
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
    days: int = 1,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=7))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if not authority:
        names = [x509.IPAddress(ipaddress.ip_address(HOST)), x509.DNSName("localhost")]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
