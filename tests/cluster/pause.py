"""The image of the process that holds a pod's namespaces: a static program, made here."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

from tests.cluster import commands, configs
from tests.cluster.places import Places

SOURCE = """\
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(int number) { (void)number; _exit(0); }
static void collect(int number) { (void)number; while (waitpid(-1, 0, WNOHANG) > 0) {} }

/* Holds the namespaces of a pod: waits for its end, and buries the orphans of a shared process namespace. */
int main(void)
{
    struct sigaction on_child = {.sa_handler = collect, .sa_flags = SA_NOCLDSTOP};
    signal(SIGINT, leave);
    signal(SIGTERM, leave);
    sigaction(SIGCHLD, &on_child, 0);
    for (;;)
        pause();
}
"""


def archive(places: Places) -> Path:
    """Return the image's archive, made on first use and kept in the cache."""
    made = places.cache / "pause" / f"{hashlib.sha256(SOURCE.encode()).hexdigest()[:12]}.tar"
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        program = made.with_suffix(".program")
        commands.run("gcc", "-static", "-Os", "-s", "-x", "c", "-o", program, "-", stdin=SOURCE)
        aside = made.with_suffix(".making")
        aside.write_bytes(image(program.read_bytes(), configs.PAUSE))
        aside.rename(made)
        program.unlink()
    return made


def image(program: bytes, name: str) -> bytes:
    """Return an archive of the Open Container Initiative's layout with one layer that holds one program."""
    layer = _tar({"pause": program}, mode=0o755)
    packed = gzip.compress(layer, mtime=0)
    config = _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    kind = "application/vnd.oci.image"
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{kind}.manifest.v1+json",
            "config": _described(config, f"{kind}.config.v1+json"),
            "layers": [_described(packed, f"{kind}.layer.v1.tar+gzip")],
        }
    )
    entry = _described(manifest, f"{kind}.manifest.v1+json")
    index = {"schemaVersion": 2, "manifests": [{**entry, "annotations": {"io.containerd.image.name": name}}]}
    blobs = {f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}": blob for blob in (packed, config, manifest)}
    layout = _json({"imageLayoutVersion": "1.0.0"})
    return _tar({"oci-layout": layout, "index.json": _json(index), **blobs})


def _tar(files: dict[str, bytes], mode: int = 0o644) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _described(blob: bytes, kind: str) -> dict[str, object]:
    return {"mediaType": kind, "digest": _digest(blob), "size": len(blob)}
