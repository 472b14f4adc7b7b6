"""Models from outside as Relax modules: ONNX, torch.export, TFLite, and modules saved earlier."""

from .files import load
from .onnx import from_onnx
from .saved import save
from .tflite import from_tflite
from .torch import from_torch

__all__ = ["from_onnx", "from_tflite", "from_torch", "load", "save"]
