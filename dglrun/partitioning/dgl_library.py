"""DGL's C library without DGL's Python package, which with torch takes a second and 230 MiB to import.

The calls are those of DGL's own ctypes (dgl/_ffi), by its C API (dgl/runtime/c_runtime_api.h), which is the
same in DGL 1.1 and 2.1: a function is found by its name, takes numbers, texts, arrays and objects, and
returns one of them.
"""

import ctypes
import runpy
from enum import IntEnum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import numpy as np

from dglrun.arrays import Ints
from dglrun.errors import BackendFailedError, BackendMissingError


class _Kind(IntEnum):
    """Type codes of arguments and results."""

    INT = 0
    NULL = 4
    OBJECT = 8
    TEXT = 11
    ARRAY = 13


class _Value(ctypes.Union):
    """DGLValue."""

    _fields_: ClassVar = [
        ("number", ctypes.c_int64),
        ("real", ctypes.c_double),
        ("handle", ctypes.c_void_p),
        ("text", ctypes.c_char_p),
    ]


class _Tensor(ctypes.Structure):
    """DLTensor, to which the handle of an array points."""

    _fields_: ClassVar = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int * 2),
        ("ndim", ctypes.c_int),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


class Held:
    """An array or an object of DGL's, freed with this.

    Attributes:
        handle: Of the C API.
        kind: Its type code.
    """

    def __init__(self, dll: ctypes.CDLL, handle: int | None, kind: int) -> None:
        self.handle = handle
        self.kind = kind
        self._free = {_Kind.OBJECT: dll.DGLObjectFree, _Kind.ARRAY: dll.DGLArrayFree}.get(_Kind(kind))

    def __del__(self) -> None:
        if self._free is not None:
            self._free(ctypes.c_void_p(self.handle))

    def values(self) -> Ints:
        """The values of an array of int64 with one dimension, not copied; they keep it.

        Raises:
            BackendFailedError: DGL returned something else than an array.
        """
        if self.kind != _Kind.ARRAY:
            raise BackendFailedError(f"DGL returned a result of kind {self.kind}, expected an array")
        tensor = ctypes.cast(ctypes.c_void_p(self.handle), ctypes.POINTER(_Tensor)).contents
        rows = int(tensor.shape[0])
        if not rows:
            return np.empty(0, np.int64)
        memory = (ctypes.c_int64 * rows).from_address(tensor.data + tensor.byte_offset)
        memory.held = self  # type: ignore[attr-defined]
        values: Ints = np.frombuffer(memoryview(memory), np.int64)
        return values


class DglLibrary:
    """A loaded libdgl.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._dll = ctypes.CDLL(str(path))
        self._dll.DGLGetLastError.restype = ctypes.c_char_p

    def call(self, name: str, *args: "int | str | Held") -> Held:
        """Call a function of DGL.

        Raises:
            BackendMissingError: this DGL has none of that name.
            BackendFailedError: it failed, with DGL's words.
        """
        function = ctypes.c_void_p()
        self._check(name, self._dll.DGLFuncGetGlobal(name.encode(), ctypes.byref(function)))
        if not function:
            raise BackendMissingError(f"{self._path}: no function {name}; expected DGL 1.1 to 2.1")
        values, kinds = (_Value * len(args))(), (ctypes.c_int * len(args))()
        for at, arg in enumerate(args):
            if isinstance(arg, Held):
                values[at].handle, kinds[at] = arg.handle, arg.kind
            elif isinstance(arg, str):
                values[at].text, kinds[at] = arg.encode(), _Kind.TEXT
            else:
                values[at].number, kinds[at] = arg, _Kind.INT
        found, kind = _Value(), ctypes.c_int()
        returned = self._dll.DGLFuncCall(
            function, values, kinds, len(args), ctypes.byref(found), ctypes.byref(kind)
        )
        self._check(name, returned)
        return Held(self._dll, found.handle, kind.value)

    def array(self, rows: int) -> Held:
        """An array of `rows` int64, not initialized; without memory for it DGL aborts the process."""
        handle, shape = ctypes.c_void_p(), (ctypes.c_int64 * 1)(rows)
        int64, cpu = (0, 64, 1), (1, 0)
        self._check("array", self._dll.DGLArrayAlloc(shape, len(shape), *int64, *cpu, ctypes.byref(handle)))
        return Held(self._dll, handle.value, _Kind.ARRAY)

    def texts(self, *texts: str) -> Held:
        """A list of texts."""
        return self.call("_List", *(self.call("_Value", text) for text in texts))

    def _check(self, name: str, returned: int) -> None:
        if returned:
            said = self._dll.DGLGetLastError().decode(errors="replace").strip().splitlines()
            raise BackendFailedError(f"DGL's {name}: {said[0] if said else 'failed'}")


def load() -> DglLibrary:
    """Find the library where DGL itself looks for it.

    Raises:
        BackendMissingError: DGL is not installed, or has no library that can be loaded.
    """
    package = find_spec("dgl")
    if package is None or package.origin is None:
        raise BackendMissingError("DGL's methods need dgl, which is not installed")
    try:
        found = runpy.run_path(str(Path(package.origin).parent / "_ffi/libinfo.py"))["find_lib_path"]()
        return _loaded(Path(found[0]))
    except (ImportError, OSError, RuntimeError) as error:
        raise BackendMissingError(f"dgl: its library cannot be loaded: {error}") from None


def _loaded(path: Path) -> DglLibrary:
    try:
        return DglLibrary(path)
    except OSError:  # a build for CUDA needs libraries that come with torch, which DGL's package loads first
        import_module("dgl")
        return DglLibrary(path)
