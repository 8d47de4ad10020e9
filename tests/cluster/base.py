"""The base image's tree: a minimal Debian by debootstrap, trimmed like the well-known slim image."""

import hashlib
import re
import shutil
import tempfile
from pathlib import Path

from tests.cluster import commands
from tests.cluster.places import Places

SUITE = "bookworm"
SOURCES = Path("/etc/apt/sources.list.d/debian.sources")

DPKG = """\
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/info/*
path-exclude /usr/share/man/*
path-exclude /usr/share/locale/*
path-include /usr/share/locale/locale.alias
"""

APT = """\
APT::Keep-Downloaded-Packages "false";
APT::Install-Suggests "false";
Acquire::Languages "none";
Acquire::GzipIndexes "true";
DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };
"""

NO_SERVICES = "#!/bin/sh\nexit 101\n"

FILES = {
    "etc/dpkg/dpkg.cfg.d/slim": (DPKG, 0o644),
    "etc/apt/apt.conf.d/50slim": (APT, 0o644),
    "usr/sbin/policy-rc.d": (NO_SERVICES, 0o755),
}

EMPTIED = ("usr/share/doc", "usr/share/info", "usr/share/man", "usr/share/locale", "var/lib/apt/lists")


def content() -> str:
    """Return a hash of the recipe."""
    recipe = repr((SUITE, FILES, EMPTIED, _sources()))
    return hashlib.sha256(recipe.encode()).hexdigest()[:16]


def tree(places: Places) -> Path:
    """Return the folder of the tree, made on first use; kept, as the network is slow and may be away."""
    made = places.cache / "base" / f"{SUITE}-{content()}"
    if made.exists():
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=made.parent, prefix=".making-"))
    aside.chmod(0o755)
    mirror = _mirror(_sources())
    commands.run("debootstrap", "--variant=minbase", SUITE, aside, *([mirror] if mirror else []))
    _trim(aside)
    aside.rename(made)
    return made


def _trim(root: Path) -> None:
    """Remove what a slim image lacks, and have packages installed later do without it as well."""
    commands.run("chroot", root, "apt-get", "clean")
    for folder in EMPTIED:
        for path in (root / folder).rglob("*"):
            if path.is_file() and path.name not in {"copyright", "locale.alias"}:
                path.unlink()
    for name, (text, mode) in FILES.items():
        (root / name).write_text(text)
        (root / name).chmod(mode)
    sources = _sources()
    if sources:
        (root / "etc/apt/sources.list").unlink(missing_ok=True)
        shutil.copyfile(SOURCES, root / "etc/apt/sources.list.d/debian.sources")
    for name in ("etc/resolv.conf", "etc/hostname"):
        (root / name).write_text("")
    for log in (root / "var/log").rglob("*.log"):
        log.unlink()


def _sources() -> str:
    """Return where this host has its packages from, so that builds reach the same place."""
    return SOURCES.read_text() if SOURCES.exists() and f" {SUITE}" in SOURCES.read_text() else ""


def _mirror(sources: str) -> str | None:
    """Return the first place in a sources file; None means the one that debootstrap knows."""
    found = re.search(r"^URIs:\s*(\S+)", sources, re.MULTILINE)
    return found.group(1) if found else None
