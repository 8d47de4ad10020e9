"""Bytes of a process's output as lines for a pod log."""

LONGEST = 8192
"""Bytes; a longer line is given in pieces."""
REPEAT_SECONDS = 10.0
"""A progress bar that rewrites its line is shown as often as this."""


class LineSplitter:
    r"""Cuts a stream into lines.

    A carriage return rewrites a line: only what a terminal would show in the end counts, and while the line
    is still being rewritten its state is given every REPEAT_SECONDS.
    """

    def __init__(self, now: float = 0.0) -> None:
        self._rest = b""
        self._shown = now

    def feed(self, block: bytes, now: float) -> list[str]:
        """The lines that `block` completes."""
        *whole, self._rest = (self._rest + block).split(b"\n")
        lines = [piece for line in whole for piece in _pieces(_visible(line))]
        lines += self._rewritten(now) + self._overlong()
        return [line.decode(errors="replace") for line in lines]

    def flush(self) -> list[str]:
        """What is left when the stream has ended."""
        rest, self._rest = _visible(self._rest), b""
        return [piece.decode(errors="replace") for piece in _pieces(rest)] if rest else []

    def _rewritten(self, now: float) -> list[bytes]:
        if b"\r" not in self._rest:
            return []
        shown = _visible(self._rest)
        self._rest = shown + b"\r" if self._rest.endswith(b"\r") else b"\r" + shown
        if now - self._shown < REPEAT_SECONDS:
            return []
        self._shown = now
        return _pieces(shown) if shown else []

    def _overlong(self) -> list[bytes]:
        if len(self._rest) <= LONGEST:
            return []
        rest, self._rest = self._rest, b""
        *whole, self._rest = _pieces(rest)
        return whole


def _visible(line: bytes) -> bytes:
    """What a terminal shows of a line that was rewritten by carriage returns."""
    for state in reversed(line.split(b"\r")):
        if state.strip():
            return state.rstrip()
    return b""


def _pieces(line: bytes) -> list[bytes]:
    return [line[at : at + LONGEST] for at in range(0, len(line), LONGEST)] or [b""]
