"""TVM's tensors as addresses: a region's arguments arrive as pointers to `DLTensor`, which are read in place.

The VM has checked shapes and dtypes of the model's own inputs; here everything that would make an engine read
the wrong memory is checked again, by comparing bytes, which takes less than a microsecond for a tensor.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from math import prod
from typing import TypeAlias

import tvm_ffi

from ..errors import DeviceError, ExecutionError
from .signature import ShapeSpec, TensorSpec

CUDA = 2  # kDLCUDA
ALIGNMENT = 256  # what TensorRT asks of the address of an input or output

# void* data; {int32 type, int32 id} device; int32 ndim; {uint8 code, uint8 bits, uint16 lanes} dtype;
# int64* shape; int64* strides; uint64 byte_offset
_HEADER = struct.Struct("<QiiiBBHQQQ")
# tvm_ffi's C interface: uint64 references; int32 type; a deleter; and in a Shape int64* data, uint64 size
_SHAPE = struct.Struct("<8xi4x8xQQ")
_SHAPE_INDEX = 69  # kTVMFFIShape
_TYPE = struct.Struct("<iiiBBH")
_TYPE_BYTES = slice(8, 8 + _TYPE.size)
_DEVICE = struct.Struct("<ii")
_header_at = (ctypes.c_char * _HEADER.size).from_address  # a third of the time that ctypes.string_at takes
_DEVICES = {1: "cpu", CUDA: "cuda", 3: "cuda_host", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm"}


class Slot:
    """One argument of an engine: what it has to be, and how its address is read.

    Parameters
    ----------
    spec : TensorSpec
        Name, static shape and dtype.
    role : str
        "input" or "output", for messages.
    device : int
        The number of the GPU that the engine is on.
    """

    def __init__(self, spec: TensorSpec, role: str, device: int) -> None:
        self.spec = spec
        self.role = role
        self._device = device
        dtype = tvm_ffi.dtype(spec.dtype)
        rank = len(spec.shape)
        self._type = _TYPE.pack(CUDA, device, rank, dtype.type_code, dtype.bits, dtype.lanes)
        self._numbers_at = (ctypes.c_char * (8 * rank)).from_address
        if spec.is_static:
            self._expect(spec.extents({}))

    def _expect(self, extents: tuple[int, ...]) -> None:
        """Take tensors of these extents from now on."""
        self.extents = extents
        self._numbers = struct.pack(f"<{len(extents)}q", *extents)
        self._strides = struct.pack(f"<{len(extents)}q", *_compact(extents))

    def address(self, header: bytes) -> int:
        """Return where the data of a tensor start.

        Parameters
        ----------
        header : bytes
            Its `DLTensor`, as `read_header` gives it.

        Raises
        ------
        DeviceError
            When it is not on the engine's GPU.
        ExecutionError
            When its dtype, shape or layout is another one.
        """
        data, _, _, _, _, _, _, shape, strides, offset = _HEADER.unpack(header)
        if header[_TYPE_BYTES] != self._type or self._numbers_at(shape).raw != self._numbers:
            self._meet(header)
        if strides:
            given = self._numbers_at(strides).raw
            if given != self._strides and not self._is_compact(given):
                raise ExecutionError(f"{self._label()} is a view with strides: make it contiguous")
        return data + offset

    def _is_compact(self, strides: bytes) -> bool:
        """Compare strides, except where the extent is 1 or nothing is read, and the stride means nothing."""
        given, wanted = memoryview(strides).cast("q"), memoryview(self._strides).cast("q")
        return 0 in self.extents or all(a == b or n <= 1 for a, b, n in zip(given, wanted, self.extents, strict=True))

    def _label(self) -> str:
        return f"{self.role} {self.spec.name}"

    def _meet(self, header: bytes) -> None:
        """Say what is wrong with a tensor of another kind or shape than the one before."""
        _, kind, index, rank, code, bits, lanes, shape, _, _ = _HEADER.unpack(header)
        if (kind, index) != (CUDA, self._device):
            where = f"{_DEVICES.get(kind, f'device type {kind}')}:{index}"
            raise DeviceError(
                f"{self._label()} is on {where}, its engine on cuda:{self._device}: move the inputs there and run "
                f"the virtual machine on that device"
            )
        extents = struct.unpack(f"<{rank}q", ctypes.string_at(shape, 8 * rank))
        raise ExecutionError(
            f"{self._label()} has the shape {extents} and dtype {_dtype_name(code, bits, lanes)}; its engine takes "
            f"{self.spec}"
        )


class SymbolicSlot(Slot):
    """An argument whose extents change from call to call; `extents` holds those of the last one.

    Any extents of the right rank are taken here: what they may be is a question of all arguments together.
    """

    def __init__(self, spec: TensorSpec, role: str, device: int) -> None:
        super().__init__(spec, role, device)
        self._expect((0,) * len(spec.shape))

    def _meet(self, header: bytes) -> None:
        if header[_TYPE_BYTES] != self._type:
            super()._meet(header)
        extents = self._numbers_at(_HEADER.unpack(header)[7]).raw
        self._expect(struct.unpack(f"<{len(self.spec.shape)}q", extents))


class ShapeSlot:
    """A shape among the arguments: TVM passes its `Shape` object; `extents` holds what the last one held."""

    role = "shape"

    def __init__(self, spec: ShapeSpec) -> None:
        self.spec = spec
        self.extents: tuple[int, ...] = ()

    def address(self, header: bytes) -> int:
        """Keep the numbers and return 0: the object can go when the call returns, so no engine may read it later.

        Raises
        ------
        ExecutionError
            When it is no shape of that many numbers.
        """
        kind, data, size = _SHAPE.unpack(header[: _SHAPE.size])
        if kind != _SHAPE_INDEX or size != len(self.spec.shape):
            raise ExecutionError(f"shape {self.spec.name} has to be a shape of {len(self.spec.shape)} numbers")
        self.extents = struct.unpack(f"<{size}q", ctypes.string_at(data, 8 * size))
        return 0


AnySlot: TypeAlias = Slot | ShapeSlot


def slot_of(spec: TensorSpec | ShapeSpec, role: str, device: int) -> AnySlot:
    """Return the slot of an argument: a tensor of static extents or others, or a shape."""
    if isinstance(spec, ShapeSpec):
        return ShapeSlot(spec)
    return (Slot if spec.is_static else SymbolicSlot)(spec, role, device)


def read_header(handle: int) -> bytes:
    """Return the bytes of the `DLTensor`, or the beginning of the object, at `handle`."""
    return _header_at(handle).raw


def device_of(header: bytes) -> tuple[int, int]:
    """Return the device type and number of a tensor."""
    kind, index = _DEVICE.unpack_from(header, 8)
    return kind, index


def misaligned(slots: Sequence[AnySlot], addresses: Sequence[int]) -> str | None:
    """Name the first argument whose address TensorRT cannot take, or None."""
    for slot, address in zip(slots, addresses, strict=True):
        if address % ALIGNMENT:
            return f"{slot.role} {slot.spec.name} starts at an address that is no multiple of {ALIGNMENT}: copy it"
    return None


def _compact(shape: Sequence[int]) -> list[int]:
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _dtype_name(code: int, bits: int, lanes: int) -> str:
    kinds = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}
    name = f"{kinds.get(code, f'type code {code} of ')}{'' if code == 6 else bits}"
    return name if lanes == 1 else f"{name}x{lanes}"
