"""Log lines on standard error: JSON for machines, plain for people."""

import json
import logging
import sys
from datetime import UTC, datetime

_PLAIN = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure(level: str, style: str) -> None:
    """Set up the root logger; kopf speaks up for warnings only unless debugging."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else logging.Formatter(_PLAIN))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    if level != "DEBUG":
        for name in ("kopf", "asyncio", "urllib3"):
            logging.getLogger(name).setLevel(logging.WARNING)
