"""TLS on both transports, with and without client certificates."""

import datetime
import ipaddress
import json
import ssl

import grpc
import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tensorflow_serving.apis import prediction_service_pb2_grpc

from jem_tf.client import JEMClient, ServingError
from jem_tf_cli import main

from .grpc_requests import ones, predict_request


def make_certificate(name, issuer=None):
    """Return key and certificate as PEM, and (name, key) to sign others; None: self-signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer_name, signer_key = (subject, key) if issuer is None else issuer
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .sign(signer_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form = serialization.PrivateFormat.PKCS8
    private = key.private_bytes(pem, form, serialization.NoEncryption())
    return private.decode(), certificate.public_bytes(pem).decode(), (subject, key)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A directory with the PEM files of an authority, a server and a client."""
    directory = tmp_path_factory.mktemp("certificates")
    _, authority, signer = make_certificate("authority")
    (directory / "ca").write_text(authority)
    for name in ("server", "client"):
        key, chain, _ = make_certificate(name, signer)
        (directory / f"{name}-key").write_text(key)
        (directory / f"{name}-chain").write_text(chain)
    return directory


@pytest.fixture(scope="module", params=[False, True], ids=["tls", "mutual"])
def mutual(request):
    """Whether the server asks for client certificates."""
    return request.param


@pytest.fixture(scope="module")
def options(mutual, certificates, rules, shared_servers, tmp_path_factory):
    """The options of a running server with TLS."""
    names = {"server_key": "server-key", "server_cert": "server-chain", "custom_ca": "ca"}
    fields = {field: (certificates / name).read_text() for field, name in names.items()}
    lines = [f"{field}: {json.dumps(value)}" for field, value in fields.items()]
    config = tmp_path_factory.mktemp("config") / "ssl.config"
    config.write_text("\n".join([*lines, f"client_verify: {str(mutual).lower()}"]))
    server_options = {"model_name": "rules", "model_base_path": str(rules)}
    return shared_servers(**server_options, ssl_config_file=str(config)).server.options


def test_a_bad_pem_is_reported_with_its_file(certificates, tmp_path, rules, capsys):
    key, chain = ((certificates / f"server-{name}").read_text() for name in ("key", "chain"))
    other = (certificates / "client-key").read_text()
    for fields in (
        {"server_key": "not PEM", "server_cert": chain},
        {"server_key": key, "server_cert": "not PEM"},
        {"server_key": other, "server_cert": chain},
        {"server_key": key, "server_cert": chain, "custom_ca": "not PEM", "client_verify": True},
    ):
        file = tmp_path / "ssl.config"
        file.write_text("\n".join(f"{k}: {json.dumps(v)}" for k, v in fields.items()))
        assert main(["serve", str(rules), "--ssl-config-file", str(file)]) == 2
        assert f"{str(file)!r} must hold PEM" in capsys.readouterr().err


def test_rest(options, mutual, certificates):
    def context(with_certificate):
        context = ssl.create_default_context(cafile=certificates / "ca")
        if with_certificate:
            context.load_cert_chain(certificates / "client-chain", certificates / "client-key")
        return context

    url = f"https://localhost:{options.rest_api_port}/v1/models/rules"
    assert httpx.get(url, verify=context(True)).status_code == 200
    if mutual:
        with pytest.raises(httpx.TransportError):
            httpx.get(url, verify=context(False))
    with pytest.raises(httpx.TransportError):
        httpx.get(url.replace("https", "http"))


def test_grpc(options, mutual, certificates):
    authority, *pair = (
        (certificates / name).read_bytes() for name in ("ca", "client-key", "client-chain")
    )
    for with_certificate in (True, False):
        credentials = grpc.ssl_channel_credentials(authority, *(pair if with_certificate else ()))
        channel = grpc.secure_channel(f"localhost:{options.port}", credentials)
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        if with_certificate or not mutual:
            assert stub.Predict(predict_request(x=ones(1, 2)), timeout=20).outputs
        else:
            with pytest.raises(grpc.RpcError):
                stub.Predict(predict_request(x=ones(1, 2)), timeout=5)


def test_the_client_takes_certificates(options, certificates):
    files = {"ca": "ca", "certificate": "client-chain", "key": "client-key"}
    files = {option: certificates / name for option, name in files.items()}
    for scheme, port in (("grpcs", options.port), ("https", options.rest_api_port)):
        with JEMClient(f"{scheme}://localhost:{port}", "rules", timeout=20, **files) as client:
            assert client.call("log", x=ones(2))["y"].tolist() == [0.0, 0.0]
        distrustful = JEMClient(f"{scheme}://localhost:{port}", "rules", retries=0)
        with pytest.raises(ServingError, match="UNAVAILABLE"):
            distrustful.status()  # it does not know the authority
