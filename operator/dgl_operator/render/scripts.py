"""Shell scripts that a person would write as text; the only user of jinja2."""

import shlex
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from dglrun.contract import names

_PATIENCE_SECONDS = 900
"""A control plane may be away for ten minutes, at the moment of an MPI launch too."""


def kubexec(namespace: str, job: str, container: str) -> str:
    """Return kubexec.sh for a job.

    Args:
        namespace: The job's namespace.
        job: The job's name.
        container: The workers' main container, the target when the caller names none.
    """
    template = _environment().get_template(f"{names.KUBEXEC}.j2")
    return template.render(
        namespace=namespace,
        workers=names.worker(job, 0).removesuffix("0"),
        container=container,
        kubectl=f"{names.KUBE_DIR}/kubectl",
        patience=_PATIENCE_SECONDS,
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("dgl_operator.render"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - shell, not HTML: values are quoted by `quote`
        keep_trailing_newline=True,
        auto_reload=False,  # else two looks at the file's times for each script
    )
    environment.filters["quote"] = shlex.quote
    return environment
