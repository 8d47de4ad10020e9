"""Kueue as a process of this host, with its kinds, its conversion and its check of Workloads in the cluster.

It is the manager that clusters run, with certificates of the test instead of mounted ones; the API server
calls it at this host's loopback address, so that both must be on one host.
"""

import base64
import datetime
import ipaddress
import json
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dgl_operator.api.kueue import API_VERSION, GROUP
from dgl_operator.runtime.cluster import AlreadyExists, ClusterBusy, NotFound, Refused
from dgl_operator.runtime.kinds import Json
from tests.cluster import builds, commands
from tests.cluster.places import Places
from tests.support.api_client import ApiServer
from tests.support.wait import wait_for

HOME = "kueue-system"
SERVICE, SECRET = "kueue-webhook-service", "kueue-webhook-server-cert"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
_NAMESPACES = "/api/v1/namespaces"
_CHECKS = {"validatingwebhookconfigurations": "validating", "mutatingwebhookconfigurations": "mutating"}
_CONVERTED = ("localqueues", "clusterqueues", "workloads", "cohorts", "multikueueclusters")
"""Kinds whose versions differ by more than their name."""
_LABEL = "dgl-operator-test/kueue"
"""On all that the tests install, so that a later run knows what one that was killed has left."""
_LABELS = {_LABEL: "true"}
_MERGE = "application/merge-patch+json"
_STARTS = 5
"""Between the choice of a port and its use another process may take it."""


@dataclass(frozen=True)
class Kueue:
    """A running Kueue; its objects are made by `put` as an administrator does."""

    api: ApiServer
    log: Path

    def put(self, plural: str, body: Json, namespace: str = "") -> None:
        """Make or change an object of Kueue's group."""
        scope = f"/namespaces/{namespace}" if namespace else ""
        path = f"/apis/{API_VERSION}{scope}/{plural}/{body['metadata']['name']}"
        whole = {"apiVersion": API_VERSION, **body}
        self.api.call("PATCH", f"{path}?fieldManager=tests&force=true", whole, "application/apply-patch+yaml")

    def put_quota(self, queue: str, pods: int, flavor: Json) -> None:
        """Make a ClusterQueue for so many pods, preempting by priority, and its flavor of the same name."""
        self.put("resourceflavors", {"kind": "ResourceFlavor", "metadata": {"name": queue}, "spec": flavor})
        amounts = {"cpu": "100", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": pods}
        quota = [{"name": name, "nominalQuota": amount} for name, amount in amounts.items()]
        group = {"coveredResources": list(amounts), "flavors": [{"name": queue, "resources": quota}]}
        spec = {
            "namespaceSelector": {},
            "resourceGroups": [group],
            "preemption": {"withinClusterQueue": "LowerPriority"},
        }
        self.put("clusterqueues", {"kind": "ClusterQueue", "metadata": {"name": queue}, "spec": spec})

    def put_priority(self, name: str, value: int) -> None:
        """Make a WorkloadPriorityClass."""
        self.put(
            "workloadpriorityclasses",
            {"kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value},
        )

    def put_local_queue(self, name: str, queue: str, namespace: str) -> None:
        """Make a namespace's LocalQueue of a ClusterQueue."""
        body = {"kind": "LocalQueue", "metadata": {"name": name}, "spec": {"clusterQueue": queue}}
        self.put("localqueues", body, namespace)

    def usage(self, queue: str) -> dict[str, str]:
        """What a ClusterQueue has reserved, by resource."""
        status = self.api.call("GET", f"/apis/kueue.x-k8s.io/v1beta1/clusterqueues/{queue}").get("status", {})
        return {
            resource["name"]: resource["total"]
            for flavor in status.get("flavorsReservation") or ()
            for resource in flavor["resources"]
        }


@contextmanager
def kueue(api: ApiServer, folder: Path) -> Iterator[Kueue]:
    """Install Kueue and run its manager; all of it goes at the end.

    Raises:
        AssertionError: the cluster has a Kueue, which would be overwritten and then removed.
    """
    remove_leftovers(api)
    assert not is_served(api), "the cluster has a Kueue already: the test brings its own"
    places = Places.here()
    builds.ensure(builds.QUEUES, places)
    try:
        certificates = _certificates(folder)
        api.make_namespace(HOME, _LABELS)
        _put_secret(api, certificates)
        with _managed(api, folder, places, certificates["ca.crt"]) as log:
            yield Kueue(api, log)
    finally:
        _uninstall(api)


def is_served(api: ApiServer) -> bool:
    """Whether the cluster has Kueue's kinds."""
    return any(group["name"] == GROUP for group in api.call("GET", "/apis")["groups"])


def remove_leftovers(api: ApiServer) -> None:
    """Remove the Kueue of an earlier run of the tests that was killed, and nobody else's."""
    collections = (_DEFINITIONS, _NAMESPACES, *(f"{_WEBHOOKS}/{plural}" for plural in _CHECKS))
    if any(_labelled(api, path) for path in collections):
        _uninstall(api)


def _labelled(api: ApiServer, path: str) -> list[Json]:
    """What the tests have made of a collection."""
    return list(api.call("GET", f"{path}?labelSelector={_LABEL}")["items"])


@contextmanager
def _managed(api: ApiServer, folder: Path, places: Places, authority: bytes) -> Iterator[Path]:
    """The installed kinds and a running manager, which is killed at the end; gives its log."""
    log = folder / "kueue.log"
    process: subprocess.Popen[bytes] | None = None
    try:
        for _ in range(_STARTS):
            webhook, probe = _free_ports()
            definitions = _install(api, f"https://127.0.0.1:{webhook}", authority)
            # Before it writes into them: another write in between would cost it another try.
            wait_for("CRDs of Kueue served", lambda known=definitions: _are_served(api, known), 120.0)  # type: ignore[misc]
            process = _started(builds.program("kueue", places), folder, (webhook, probe), log)
            if _answers(process, webhook, log):
                break
        else:
            raise RuntimeError(f"kueue did not start:\n{log.read_text()}")
        yield log
    finally:
        if process is not None:
            process.kill()
            process.wait()


def _started(program: Path, folder: Path, ports: tuple[int, int], log: Path) -> "subprocess.Popen[bytes]":
    webhook, probe = ports
    config = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": HOME,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{probe}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": str(folder)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {
            "enable": True,
            "webhookServiceName": SERVICE,
            "webhookSecretName": SECRET,
        },
        "integrations": {"frameworks": ["batch/job"]},
    }
    path = folder / "config.yaml"
    path.write_text(json.dumps(config))
    # The server that shows pending jobs would need certificates and a port of its own.
    # A manager that outlives tests that were killed would put its finalizers on the objects of the next.
    tied = ["setpriv", "--pdeathsig", "KILL"]
    argv = [*tied, str(program), "--config", str(path), "--feature-gates=VisibilityOnDemand=false"]
    with log.open("ab") as file:
        return subprocess.Popen(argv, stdout=file, stderr=file, env=dict(os.environ))


def _answers(process: "subprocess.Popen[bytes]", port: int, log: Path) -> bool:
    def look() -> str | None:
        if process.poll() is not None:
            return "has ended"
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
        except OSError:
            return None
        return "answers"

    try:
        return wait_for(f"kueue on port {port}", look, 120.0) == "answers"
    except TimeoutError:
        process.kill()
        raise AssertionError(f"kueue does not answer:\n{log.read_text()[-4000:]}") from None


def _free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return int(one.getsockname()[1]), int(other.getsockname()[1])


def _source() -> Path:
    """The module's folder, in which its CRDs are; it is fetched when only the program is cached."""
    module = builds.MODULE["kueue"]
    said = commands.run("go", "mod", "download", "-json", f"{module.of}@{module.version}", cwd=module.folder)
    return Path(json.loads(said)["Dir"])


def _install(api: ApiServer, url: str, authority: bytes) -> list[str]:
    """Apply the CRDs, whose versions the manager converts, and the check of Workloads; returns the names."""
    names: list[str] = []
    for plural, kind in _CHECKS.items():
        api.put(f"{_WEBHOOKS}/{plural}", _check(kind, url, authority))
    for path in sorted((_source() / "config" / "components" / "crd" / "bases").glob("*.yaml")):
        body = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
        name = body["metadata"]["name"]
        if name.partition(".")[0] in _CONVERTED:
            client = {"url": f"{url}/convert", "caBundle": base64.b64encode(authority).decode()}
            webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
            body["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
        body["metadata"]["labels"] = {**body["metadata"].get("labels", {}), **_LABELS}
        body["spec"]["versions"] = _brief(body["spec"]["versions"])
        api.put(_DEFINITIONS, {key: body[key] for key in ("kind", "metadata", "spec")})
        names.append(name)
    return names


def _brief(schema: Any) -> Any:
    """A schema without its descriptions, most of it: each write of it costs the API server seconds."""
    if isinstance(schema, list):
        return [_brief(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    is_prose = isinstance(schema.get("description"), str)
    return {key: _brief(value) for key, value in schema.items() if not (is_prose and key == "description")}


def _check(kind: str, url: str, authority: bytes) -> Json:
    """Kueue's check of each Workload and of its status; nothing that it does to other kinds."""
    verb = "validate" if kind == "validating" else "mutate"
    resources = ["workloads", "workloads/status"] if kind == "validating" else ["workloads"]
    webhook = {
        "name": f"{kind[0]}workload.kb.io",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "clientConfig": {
            "url": f"{url}/{verb}-kueue-x-k8s-io-v1beta2-workload",
            "caBundle": base64.b64encode(authority).decode(),
        },
        "rules": [
            {
                "apiGroups": ["kueue.x-k8s.io"],
                "apiVersions": ["v1beta2"],
                "operations": ["CREATE", "UPDATE"] if kind == "validating" else ["CREATE"],
                "resources": resources,
            }
        ],
    }
    return {
        "kind": f"{kind.capitalize()}WebhookConfiguration",
        "metadata": {"name": f"kueue-{kind}-webhook-configuration", "labels": _LABELS},
        "webhooks": [webhook],
    }


def _are_served(api: ApiServer, names: list[str]) -> bool | None:
    for name in names:
        found = api.call("GET", f"{_DEFINITIONS}/{name}").get("status", {}).get("conditions") or []
        if not any(each["type"] == "Established" and each["status"] == "True" for each in found):
            return None
    return True


def _uninstall(api: ApiServer) -> None:
    """Take everything away; no manager runs, so that nobody converts, checks, or lets go of finalizers."""
    for path in (f"{_WEBHOOKS}/{plural}" for plural in _CHECKS):
        for each in _labelled(api, path):
            _delete(api, f"{path}/{each['metadata']['name']}")
    own = _labelled(api, _DEFINITIONS)
    for each in own:
        _convert_no_more(api, each)
    for each in own:
        plural = each["spec"]["names"]["plural"]
        # In the version in which they are stored they need no conversion.
        stored = next(version["name"] for version in each["spec"]["versions"] if version["storage"])
        path = f"/apis/{GROUP}/{stored}/{plural}"
        wait_for(f"{plural} gone", lambda path=path: _is_emptied(api, path))  # type: ignore[misc]
    names = [each["metadata"]["name"] for each in own]
    for name in names:
        _delete(api, f"{_DEFINITIONS}/{name}")
    wait_for("CRDs of Kueue gone", lambda: _are_gone(api, names), 120.0)
    wait_for("Kueue served no more", lambda: not is_served(api), 120.0)
    if _labelled(api, _NAMESPACES):
        _delete(api, f"{_NAMESPACES}/{HOME}")
        wait_for(f"{HOME} gone", lambda: _is_gone(api, f"{_NAMESPACES}/{HOME}"), 120.0)


def _delete(api: ApiServer, path: str) -> None:
    with suppress(NotFound):
        api.call("DELETE", path)


def _convert_no_more(api: ApiServer, definition: Json) -> None:
    """Each list of such a kind by others, as at the end of a namespace, would ask the manager."""
    if definition["spec"].get("conversion", {}).get("strategy") == "Webhook":
        spec = {"conversion": {"strategy": "None", "webhook": None}}
        with suppress(NotFound):
            api.call("PATCH", f"{_DEFINITIONS}/{definition['metadata']['name']}", {"spec": spec}, _MERGE)


def _is_emptied(api: ApiServer, path: str) -> bool:
    """Delete all objects of a kind and what holds them back; whether there were none.

    The API server asks a webhook that is deleted for a moment longer: then the next look does it.
    """
    try:
        items = api.call("GET", path)["items"]
        for each in items:
            own = f"{_place(path, each)}/{each['metadata']['name']}"
            # Nobody can add a finalizer to what is being deleted.
            _delete(api, own)
            if each["metadata"].get("finalizers"):
                api.call("PATCH", own, {"metadata": {"finalizers": None}}, _MERGE)
    except NotFound:
        return _is_gone(api, path)
    except (Refused, ClusterBusy):
        return False
    return not items


def _is_gone(api: ApiServer, path: str) -> bool:
    try:
        api.call("GET", path)
    except NotFound:
        return True
    return False


def _place(path: str, item: Json) -> str:
    root, _, plural = path.rpartition("/")
    namespace = item["metadata"].get("namespace")
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else path


def _are_gone(api: ApiServer, names: list[str]) -> bool | None:
    left = {each["metadata"]["name"] for each in api.call("GET", _DEFINITIONS)["items"]}
    return None if left & set(names) else True


def _put_secret(api: ApiServer, certificates: Mapping[str, bytes]) -> None:
    data = {name: base64.b64encode(text).decode() for name, text in certificates.items()}
    body = {"kind": "Secret", "metadata": {"name": SECRET}, "type": "Opaque", "data": data}
    with suppress(AlreadyExists):
        api.put(f"/api/v1/namespaces/{HOME}/secrets", body)


def _certificates(folder: Path) -> dict[str, bytes]:
    """Files by which the API server trusts the manager; it takes them as its own and makes no others."""
    ca_key, key = (rsa.generate_private_key(65537, 2048) for _ in range(2))
    ca_name = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, "kueue-ca"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "kueue"),
        ]
    )
    dns = f"{SERVICE}.{HOME}.svc"
    usage = dict.fromkeys(
        (
            "content_commitment",
            "data_encipherment",
            "key_agreement",
            "crl_sign",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    ca = (
        _begun(ca_name, ca_name, ca_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(digital_signature=True, key_encipherment=True, key_cert_sign=True, **usage),
            critical=True,
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("kueue-ca")]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    places = [x509.DNSName(dns), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    server = (
        _begun(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, dns)]), ca_name, key, ca_key)
        .add_extension(x509.SubjectAlternativeName(places), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    found = {
        "ca.crt": ca.public_bytes(pem),
        "ca.key": _key(ca_key),
        "tls.crt": server.public_bytes(pem),
        "tls.key": _key(key),
    }
    for name, text in found.items():
        (folder / name).write_bytes(text)
    return found


def _key(key: rsa.RSAPrivateKey) -> bytes:
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _begun(
    subject: x509.Name, issuer: x509.Name, key: rsa.RSAPrivateKey, issuer_key: Any = None
) -> x509.CertificateBuilder:
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    found = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    return found.not_valid_before(now - day).not_valid_after(now + 365 * day)
