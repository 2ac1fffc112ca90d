"""Small wrapper classes to learn from: each correct, each in one file."""

from .complex import ComplexTensor, from_complex, to_complex
from .log import LoggingTensor, from_log, logged, to_log
from .masked import MaskedTensor, from_masked, to_masked
from .mx import MXTensor, from_mx, to_mx
from .nested import RaggedTensor, from_ragged, to_ragged
from .quant import QuantTensor, from_quant, to_quant
from .scale import ScaleTensor, from_scale, to_scale
from .two import TwoTensor, from_two, to_two

__all__ = [
    "ComplexTensor",
    "LoggingTensor",
    "MXTensor",
    "MaskedTensor",
    "QuantTensor",
    "RaggedTensor",
    "ScaleTensor",
    "TwoTensor",
    "from_complex",
    "from_log",
    "from_masked",
    "from_mx",
    "from_quant",
    "from_ragged",
    "from_scale",
    "from_two",
    "logged",
    "to_complex",
    "to_log",
    "to_masked",
    "to_mx",
    "to_quant",
    "to_ragged",
    "to_scale",
    "to_two",
]
