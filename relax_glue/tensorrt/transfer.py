"""Tensors copied between the GPU and the host, by models that run in part on each (`relax_glue.heterogeneous`)."""

from __future__ import annotations

import tvm
import tvm_ffi

COPY = "relax_glue.copy"
"""The packed function of compiled models that copies a tensor into another, which may be on another device."""


def copy(source: tvm.runtime.Tensor, destination: tvm.runtime.Tensor) -> None:
    """Copy a tensor into another; the host waits until it is done.

    TVM copies on the null stream, and a stream that the caller has set neither waits for that one nor is waited for, so
    both are drained here.

    Parameters
    ----------
    source, destination : tvm.runtime.Tensor
        Of one shape and dtype.
    """
    gpus = [tensor.device for tensor in (source, destination) if tensor.device.type != "cpu"]
    for gpu in gpus:
        stream = tvm_ffi.get_raw_stream(gpu)
        if stream:
            gpu.sync(stream)
    source.copyto(destination)
    for gpu in gpus:
        gpu.sync()
