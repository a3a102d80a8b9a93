"""Makes Triton's interpreter compute bf16 and fp8 as a GPU does.

Triton 3.9 interprets with numpy, which has neither type: it holds their bit patterns as unsigned
integers and, without a word, adds, compares and multiplies those; it truncates where a GPU rounds
to nearest even, and carries, saturates and keeps subnormals wrong in e4m3 (silent.py shows each).
Here every such pattern is turned into fp32 first, and what comes out is rounded once, by torch.

Products of `tl.dot` are summed in fp64 and rounded once: the same bits for a row whatever the
number of rows, which BLAS does not promise. A GPU sums in fp32; that is what tolerances allow for.

Must not know: which kernels there are. Invariant: `install` is idempotent, and only ever called in
a process whose Triton interprets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

Array = np.ndarray[Any, Any]
Handle = interpreter.TensorHandle
Builder = interpreter.InterpreterBuilder

# Triton's type -> torch's, for all floats; numpy holds a bit pattern for those in _PATTERNS.
_FLOATS = {
    tl.float16: torch.float16,
    tl.bfloat16: torch.bfloat16,
    tl.float32: torch.float32,
    tl.float64: torch.float64,
    tl.float8e4nv: torch.float8_e4m3fn,
    tl.float8e5: torch.float8_e5m2,
    tl.float8e4b8: torch.float8_e4m3fnuz,
    tl.float8e5b16: torch.float8_e5m2fnuz,
}
_PATTERNS = {t for t in _FLOATS if t not in (tl.float16, tl.float32, tl.float64)}
_BITS = {8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}
_EIGHT_BITS = {t for t in _PATTERNS if t.primitive_bitwidth == 8}


def is_pattern(handle: Any) -> bool:
    """Whether numpy holds this value as a bit pattern."""
    return handle.dtype.scalar in _PATTERNS


def convert(data: Array, source: Any, target: Any, *, towards_zero: bool = False) -> Array:
    """`data` of float type `source` as float type `target`, rounded to nearest even.

    What is beyond the largest finite fp8 becomes that, as in the `satfinite` conversions of GPUs;
    NaN stays NaN.
    """
    bits = torch.from_numpy(np.array(data, copy=True).view(_numpy_bits(source)))
    values = bits.view(_FLOATS[source])
    if target is tl.float64:
        return values.double().numpy()
    wide = values.float()
    if towards_zero and target == tl.bfloat16:
        wide = (wide.view(torch.int32) & -65536).view(torch.float32)
    if target in _EIGHT_BITS:
        largest = torch.finfo(_FLOATS[target]).max
        wide = torch.where(wide.isnan(), wide, wide.clamp(-largest, largest))
    rounded = wide.to(_FLOATS[target]).view(_BITS[target.primitive_bitwidth])
    return rounded.numpy().view(interpreter._get_np_dtype(target))


def _numpy_bits(dtype: Any) -> Any:
    return {8: np.uint8, 16: np.int16, 32: np.int32, 64: np.int64}[dtype.primitive_bitwidth]


def as_float32(handle: Any) -> Array:
    """The numbers of a handle, in fp32 where numpy holds patterns, else as they are."""
    if not is_pattern(handle):
        return np.asarray(handle.data)
    return convert(handle.data, handle.dtype.scalar, tl.float32)


def _rounded(values: Array, dtype: Any) -> Any:
    return Handle(convert(np.asarray(values, dtype=np.float32), tl.float32, dtype), dtype)


def _cast(original: Callable[..., Any]) -> Callable[..., Any]:
    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        source, target = src.dtype.scalar, dst_type.scalar
        if source == target:
            return src
        if source not in _PATTERNS and target not in _PATTERNS:
            return original(self, src, dst_type)
        if target in _PATTERNS:
            return _rounded(as_float32(src), target)
        return Handle(as_float32(src).astype(interpreter._get_np_dtype(target)), target)

    return cast_impl


def _fp_to_fp(original: Callable[..., Any]) -> Callable[..., Any]:
    def create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        source, target = src.dtype.scalar, dst_type.scalar
        if source not in _FLOATS or target not in _FLOATS:
            return original(self, src, dst_type, rounding_mode)
        down = rounding_mode == interpreter._ir.ROUNDING_MODE.RTZ
        return Handle(convert(src.data, source, target, towards_zero=down), target)

    return create_fp_to_fp


def _elementwise(original: Callable[..., Any]) -> Callable[..., Any]:
    """Operators on one or two values that are handed a numpy function last."""

    def operator(self: Any, *arguments: Any) -> Any:
        *values, function = arguments
        if not any(map(is_pattern, values)):
            plain = original(self, *arguments)
            # A comparison's outcome is said to be of the operands' type, and splatted as that.
            return Handle(plain.data, tl.int1) if plain.data.dtype == np.bool_ else plain
        outcome = function(*map(as_float32, values))
        if outcome.dtype == np.bool_:
            return Handle(outcome, tl.int1)
        return _rounded(outcome, values[0].dtype.scalar)

    return operator


def _ternary(original: Callable[..., Any]) -> Callable[..., Any]:
    def ternary_op(self: Any, lhs: Any, rhs: Any, other: Any, op: Any) -> Any:
        # A choice moves patterns about, which is right as it is; arithmetic on them is not.
        if op is np.where or not any(map(is_pattern, (lhs, rhs, other))):
            return original(self, lhs, rhs, other, op)
        return _rounded(op(*map(as_float32, (lhs, rhs, other))), other.dtype.scalar)

    return ternary_op


def _dot(_: Callable[..., Any]) -> Callable[..., Any]:
    def create_dot(self: Any, a: Any, b: Any, d: Any, *_: Any) -> Any:
        exact = np.int64 if d.data.dtype == np.int32 else np.float64
        product = np.matmul(as_float32(a).astype(exact), as_float32(b).astype(exact))
        total = product + as_float32(d)
        if is_pattern(d):
            return _rounded(total, d.dtype.scalar)
        return Handle(total.astype(d.data.dtype), d.dtype.scalar)

    return create_dot


def _fma(original: Callable[..., Any]) -> Callable[..., Any]:
    def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        if not any(map(is_pattern, (x, y, z))):
            return original(self, x, y, z)
        values = [as_float32(v).astype(np.float64) for v in (x, y, z)]
        return _rounded(values[0] * values[1] + values[2], z.dtype.scalar)

    return create_fma


def _refused(original: Callable[..., Any]) -> Callable[..., Any]:
    """A GPU rounds such sums at every step, in an order of its own: no kernel should ask for it."""

    def total(self: Any, input: Any) -> Any:
        if is_pattern(input.handle):
            raise TypeError(
                f"A {original.__name__} of {input.dtype} is rounded at every step; convert to fp32 "
                "before it."
            )
        return original(self, input)

    return total


def _call(_: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel's call of a function, patching the language once a launch instead of at each call.

    Half of an attention kernel's time went there.
    """

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 - becomes the method
        if self.fn not in _PATCHED_FOR:
            interpreter._patch_lang(self.fn)
            _PATCHED_FOR.add(self.fn)
        return self.rewrite()(*args, **kwargs)

    return __call__


def _launch(original: Callable[..., Any]) -> Callable[..., Any]:
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 - becomes the method
        _PATCHED_FOR.clear()
        return original(self, *args, **kwargs)

    return __call__


# Functions for which the language was patched in this launch.
_PATCHED_FOR: set[Any] = set()


_REPAIRS: dict[tuple[Any, str], Callable[..., Any]] = {
    (Builder, "cast_impl"): _cast,
    (Builder, "create_fp_to_fp"): _fp_to_fp,
    (Builder, "binary_op"): _elementwise,
    (Builder, "unary_op"): _elementwise,
    (Builder, "ternary_op"): _ternary,
    (Builder, "create_dot"): _dot,
    (Builder, "create_fma"): _fma,
    (interpreter.InterpretedFunction, "__call__"): _call,
    (interpreter.GridExecutor, "__call__"): _launch,
    (interpreter.ReduceOps, "sum"): _refused,
    (interpreter.ScanOps, "cumsum"): _refused,
    (interpreter.ScanOps, "cumprod"): _refused,
}
_ORIGINALS: dict[tuple[Any, str], Any] = {}


def install() -> None:
    """Repair the interpreter of this process.

    Raises: RuntimeError where Triton was imported to compile.
    """
    if not triton.knobs.runtime.interpret:
        raise RuntimeError(
            "Triton compiles in this process; set TRITON_INTERPRET=1 before it is imported."
        )
    for (owner, name), repaired in _REPAIRS.items():
        if (owner, name) not in _ORIGINALS:
            _ORIGINALS[owner, name] = getattr(owner, name)
            setattr(owner, name, repaired(_ORIGINALS[owner, name]))


def remove() -> None:
    """Take the repair back, to show what it repairs."""
    for (owner, name), original in _ORIGINALS.items():
        setattr(owner, name, original)
    _ORIGINALS.clear()
