"""Which images there are, and when one is out of date."""

import dataclasses
import re
from pathlib import Path

import pytest

from tests.cluster import base, buildah, images, steps
from tests.cluster.images import IMAGE, Image
from tests.cluster.places import REPOSITORY

DOCKERFILE = """\
FROM debian:bookworm-slim
COPY --chown=0:0 code/ \\
     pyproject.toml /srv/
COPY --from=other /etc/passwd /etc/
RUN true  # COPY nothing here
"""


@pytest.fixture
def context(tmp_path: Path) -> Path:
    """A build context with one Dockerfile and what it copies."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "run.py").write_text("print()\n")
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    return tmp_path


TINY = Image("tiny", "Dockerfile", args={"A": "1"})


def test_copied_sources_are_read_off_the_dockerfile() -> None:
    """Flags, continued lines and copies from other stages are told apart."""
    assert images.copied(DOCKERFILE) == ["code/", "pyproject.toml"]


def test_an_unchanged_context_has_the_same_content(context: Path) -> None:
    """Compiled files and files that are not copied do not matter."""
    before = images.content(TINY, "base", context)

    (context / "code" / "__pycache__").mkdir()
    (context / "code" / "__pycache__" / "run.pyc").write_bytes(b"1")
    (context / "README.md").write_text("unrelated")

    assert images.content(TINY, "base", context) == before


def test_every_input_changes_the_content(context: Path) -> None:
    """Base, argument, copied text, its mode, a new file, the Dockerfile: each makes another image."""
    seen = [images.content(TINY, "base", context), images.content(TINY, "other base", context)]
    seen.append(images.content(dataclasses.replace(TINY, args={"A": "2"}), "base", context))

    for change in (
        lambda: (context / "code" / "run.py").write_text("print(1)\n"),
        lambda: (context / "code" / "run.py").chmod(0o755),
        lambda: (context / "code" / "more.py").write_text(""),
        lambda: (context / "Dockerfile").write_text(DOCKERFILE + "USER 1000\n"),
    ):
        change()
        seen.append(images.content(TINY, "base", context))

    assert len(set(seen)) == 7


def test_a_missing_source_is_named(context: Path) -> None:
    """The message tells which path is missing, before any engine is asked."""
    (context / "pyproject.toml").unlink()

    with pytest.raises(steps.StepError, match=r"pyproject\.toml"):
        images.content(TINY, "base", context)


def test_parents_come_first_and_variants_only_by_name() -> None:
    """An image is built after what it is built from."""
    assert [image.name for image in images.ordered(["graphsage"])] == ["job", "graphsage"]
    assert not any(image.variant for image in images.ordered(images.default({})))
    with pytest.raises(steps.StepError, match="no image is called 'nonsense'"):
        images.ordered(["nonsense"])


def test_parmetis_is_built_only_for_whoever_accepts_its_licence() -> None:
    """Anything but yes is no."""
    accepted = images.default({"DGL_OPERATOR_ACCEPT_PARMETIS_LICENSE": "yes"})

    assert set(accepted) - set(images.default({})) == {"job-parmetis", "graphsage-parmetis"}
    assert images.default({"DGL_OPERATOR_ACCEPT_PARMETIS_LICENSE": "no"}) == images.default({})


def test_tags_tell_version_and_variant() -> None:
    """Names are those that manifests use; a variant differs in the tag."""
    assert IMAGE["job"].tag.startswith("registry.example.org/dgloperator/job:v")
    assert IMAGE["job-modern"].tag == f"{IMAGE['job'].tag}-modern"
    assert IMAGE["graphsage-modern"].build_args() == {"JOB_IMAGE": IMAGE["job-modern"].tag}


@pytest.mark.parametrize("image", IMAGE.values(), ids=IMAGE)
def test_every_image_has_a_dockerfile(image: Image) -> None:
    """The table names files of this checkout."""
    assert (REPOSITORY / image.dockerfile).is_file()


def test_the_arguments_of_a_build() -> None:
    """Own storage aside, a build is one plain command; the machine's own arguments come last."""
    argv = buildah.build_arguments(TINY, "abc", ["/a:/b:ro"], {"PIP_CERT": "/b"})

    assert argv[:4] == ["bud", "--isolation", "chroot", "--pull-never"]
    assert argv[argv.index("-v") + 1] == "/a:/b:ro"
    given = [argv[i + 1] for i, word in enumerate(argv) if word == "--build-arg"]
    assert given == [f"BASE_IMAGE={images.BASE}", "A=1", "PIP_CERT=/b"]
    assert argv[-2:] == ["--label", "dgl-operator.content=abc"]


def test_only_ways_to_packages_are_taken_from_the_hosts_apt() -> None:
    """Proxies and checks of dates go into a build; hooks and folders of the host do not."""
    dump = (
        'Acquire::http::Proxy "http://proxy.example:3128";\n'
        'Acquire::Check-Date "false";\n'
        'Acquire::Languages:: "none";\n'
        'DPkg::Post-Invoke:: "touch /tmp/x";\n'
        'Dir::Cache "/elsewhere";\n'
    )

    assert buildah.apt_settings(dump).splitlines() == dump.splitlines()[:2]


def test_the_base_image_changes_with_its_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """An edited recipe is another base, and so every image is built anew."""
    before = base.content()
    monkeypatch.setattr(base, "SUITE", "trixie")

    assert base.content() != before


@pytest.mark.parametrize(
    "image", [each for each in IMAGE.values() if not each.parents], ids=lambda it: it.name
)
def test_the_base_of_an_image_is_named_by_its_digest(image: Image) -> None:
    """One for all, and every stage is on it; our own builds put theirs in its place."""
    text = (REPOSITORY / image.dockerfile).read_text()
    operators = (REPOSITORY / IMAGE["operator"].dockerfile).read_text()

    (base_image,) = re.findall(r"^ARG BASE_IMAGE=(.*)$", text, re.MULTILINE)
    assert re.fullmatch(r"docker\.io/library/debian:bookworm-\d{8}-slim@sha256:[0-9a-f]{64}", base_image)
    assert f"ARG BASE_IMAGE={base_image}\n" in operators
    stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", text, re.MULTILINE)
    assert {source for source, _ in stages} <= {"${BASE_IMAGE}", *(name for _, name in stages)}
    assert f"BASE_IMAGE={images.BASE}" in buildah.build_arguments(image, "", (), {})
