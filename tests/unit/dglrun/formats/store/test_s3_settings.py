"""Where S3 is, by the environment of the AWS tools."""

from pathlib import Path

import pytest

from dglrun.errors import DataError
from dglrun.formats.store import s3
from dglrun.formats.store.s3 import Settings


def test_without_variables_it_is_aws() -> None:
    """AWS's own endpoint, with the bucket in the host's name."""
    assert Settings.of({}) == Settings("", "https", "us-east-1", "", is_virtual=True)


def test_variables_name_another_server(tmp_path: Path) -> None:
    """Endpoint, region and CA; the bucket is then in the path."""
    ca = tmp_path / "ca.pem"
    ca.write_text("certificates")
    environ = {"AWS_ENDPOINT_URL": "http://minio:9000/", "AWS_REGION": "here", "AWS_CA_BUNDLE": str(ca)}

    assert Settings.of(environ) == Settings("minio:9000", "http", "here", str(ca), is_virtual=False)


def test_the_variable_for_s3_alone_is_the_first() -> None:
    """What is for S3 goes before what is for all, and a region before the default one; empty is unset."""
    environ = {
        "AWS_ENDPOINT_URL": "https://all",
        "AWS_ENDPOINT_URL_S3": "https://s3",
        "AWS_DEFAULT_REGION": "there",
        "AWS_REGION": "",
    }

    assert Settings.of(environ) == Settings("s3", "https", "there", "", is_virtual=False)


@pytest.mark.parametrize(
    ("environ", "endpoint", "is_virtual"),
    [
        ({"AWS_S3_ADDRESSING_STYLE": "path"}, "s3.us-east-1.amazonaws.com", False),
        ({"AWS_S3_ADDRESSING_STYLE": "virtual", "AWS_ENDPOINT_URL": "https://a"}, "a", True),
        ({"AWS_S3_ADDRESSING_STYLE": "path", "AWS_ENDPOINT_URL": "https://a"}, "a", False),
    ],
)
def test_the_style_of_addresses_is_chosen(environ: dict[str, str], endpoint: str, is_virtual: bool) -> None:
    """The bucket is in the host's name or in the path, as the variable says."""
    found = Settings.of(environ)

    assert (found.endpoint, found.is_virtual) == (endpoint, is_virtual)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"AWS_ENDPOINT_URL": "minio:9000"}, "AWS_ENDPOINT_URL: expected https://HOST"),
        ({"AWS_ENDPOINT_URL_S3": "https://a/b"}, "AWS_ENDPOINT_URL_S3: expected https://HOST"),
        ({"AWS_ENDPOINT_URL": "https://me:secret@a"}, "AWS_ENDPOINT_URL: expected https://HOST"),
        ({"AWS_ENDPOINT_URL": "https://[a"}, "AWS_ENDPOINT_URL: expected https://HOST"),
        (
            {"AWS_S3_ADDRESSING_STYLE": "none"},
            "AWS_S3_ADDRESSING_STYLE: expected path or virtual, got 'none'",
        ),
        ({"AWS_CA_BUNDLE": "/none.pem"}, "AWS_CA_BUNDLE: expected a file that can be read, got '/none.pem'"),
    ],
)
def test_a_variable_that_cannot_be_is_named(environ: dict[str, str], message: str) -> None:
    """The refusal names the variable and shows no secret."""
    with pytest.raises(DataError, match=message) as caught:
        Settings.of(environ)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("has_ca", [True, False])
def test_arrow_takes_the_settings(tmp_path: Path, has_ca: bool) -> None:
    """The file system is one of S3, with a CA of one's own and without."""
    (tmp_path / "ca.pem").write_text("certificates")
    ca = str(tmp_path / "ca.pem") if has_ca else ""

    assert s3.file_system(Settings("localhost:1", "https", "here", ca, is_virtual=False)).region == "here"
