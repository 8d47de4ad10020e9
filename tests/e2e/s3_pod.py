"""A real S3 server in a pod: versitygw over TLS, whose objects are files of the node's folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import builds
from tests.cluster.places import Places
from tests.e2e.jobs import VERSION, image
from tests.e2e.kubectl import Kubectl, Object
from tests.e2e.node_folder import NodeFolder
from tests.support import s3_server
from tests.support.wait import wait_for

POD, PORT = "s3", 7070
BUCKET = "dgl"
GRAPH = "/dgl_workspace/debian-graph/homogeneous"
"""Of the example's image, which the pod has as well."""
CA_FILE = "/s3/given/ca.pem"
"""In the pod."""
SERVE = f"""
until [ -e /s3/given ]; do sleep 0.1; done
mkdir -p /store/{BUCKET}/graphs /s3/sidecar
cp -r {GRAPH} /store/{BUCKET}/graphs/debian
exec /s3/versitygw --port :{PORT} --region {s3_server.REGION} \
  --cert /s3/given/server.pem --key /s3/given/server.key posix --sidecar /s3/sidecar /store
"""


@dataclass(frozen=True)
class S3Pod:
    """The server.

    Attributes:
        folder: On the node; each bucket is a folder in it, each object a file.
        environ: The variables by which a client reaches it, the CA as a file of this machine.
    """

    folder: NodeFolder
    environ: dict[str, str]

    def objects(self, *conditions: str) -> list[str]:
        """Names in the bucket of what meets the conditions of the program find, without its own files."""
        found = self.folder.find("-path", f"*/{BUCKET}/*", "-type", "f", *conditions)
        names = [name.removeprefix(f"{BUCKET}/") for name in found]
        return [name for name in names if not name.startswith(".sgwtmp/")]


@contextmanager
def serving(kubectl: Kubectl, folder: NodeFolder, given: Path) -> Iterator[S3Pod]:
    """The server with the example's graph in its bucket; its pod goes with the namespace.

    Args:
        kubectl: Of the namespace.
        folder: Where the objects are.
        given: An empty folder for the certificates.
    """
    places = Places.here()
    builds.ensure(builds.STORAGE, places)
    kubectl.apply(_pod(folder))
    host = wait_for("an address of the S3 pod", lambda: _address(kubectl), 120)
    s3_server.make_certificates(given, host)
    program = Path(builds.program("versitygw", places)).resolve()
    for source, target in ((program, "versitygw"), (given, "copied")):
        kubectl.run("cp", str(source), f"{POD}:/s3/{target}", "-c", "main")
    kubectl.exec(POD, "mv", "/s3/copied", "/s3/given", container="main")  # whole, or not there
    kubectl.run("wait", "--for=condition=Ready", f"pod/{POD}", "--timeout=120s")
    yield S3Pod(folder, s3_server.variables(f"https://{host}:{PORT}", given / "ca.pem"))


def _address(kubectl: Kubectl) -> str | None:
    status = (kubectl.get("pod", POD) or {}).get("status", {})
    address: str | None = status.get("podIP") if status.get("phase") == "Running" else None
    return address


def _pod(folder: NodeFolder) -> Object:
    secrets = {"ROOT_ACCESS_KEY": s3_server.ACCESS_KEY, "ROOT_SECRET_KEY": s3_server.SECRET_KEY}
    main = {
        "name": "main",
        "image": image(f"graphsage:{VERSION}"),
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-ec", SERVE],
        "env": [{"name": name, "value": value} for name, value in secrets.items()],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "volumeMounts": [{"name": "store", "mountPath": "/store"}, {"name": "s3", "mountPath": "/s3"}],
    }
    volumes = [{"name": "store", **folder.source}, {"name": "s3", "emptyDir": {}}]
    spec = {"containers": [main], "volumes": volumes, "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD}, "spec": spec}
