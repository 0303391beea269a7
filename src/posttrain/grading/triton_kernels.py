"""Triton without a GPU, in the sandbox: its interpreter, and its compiler to PTX.

Both are needed. In the interpreter a kernel is Python: one that hands the numpy array behind a value to numpy gives
right results, and cannot be compiled. Programs see Triton, numpy, which the interpreter needs, and a module ``torch``
of our own that allocates arrays and has nothing else; their arrays have shapes and strides, and no operators, unless a
task's library is there. ``triton.autotune``, which measures, is not there.
"""

import importlib.util
from functools import cache
from pathlib import Path
from typing import Final

from posttrain.errors import UserError

INSIDE: Final = "/libraries"
ABSENT: Final = "the dialect triton needs the library; pip install 'posttrain[triton]'"


@cache
def folders() -> dict[str, str]:
    """The folders that programs see, by their path inside. Raises `UserError` without Triton."""
    found: dict[str, str] = {}
    for name in ("numpy", "triton"):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise UserError(ABSENT)
        home = Path(spec.origin).parent
        beside = [home, *home.parent.glob(f"{name}.libs"), *home.parent.glob(f"{name}-*.dist-info")]
        found |= {f"{INSIDE}/{folder.name}": str(folder) for folder in beside}
    return found


START: Final = f"""
import os, sys
os.environ.update(OPENBLAS_NUM_THREADS="1", TRITON_CACHE_DIR="/box/cache", TRITON_HOME="/box")
if interpreted:
    os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, {INSIDE!r})
import numpy as np
import triton, triton.language as tl
"""
LIBRARY: Final = """
import base64, inspect, math, types
from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder, TensorHandle
NUMPY = {"float16": "f2", "bfloat16": "u2", "float32": "f4", "float64": "f8", "int32": "i4", "int64": "i8"}
work, found_launches, reached = {"loads": 0, "stores": 0, "flops": 0, "programs": 0}, [], set()


class DType:
    def __init__(self, name):
        self.name, self.itemsize = name, np.dtype(NUMPY[name]).itemsize
        self.is_floating_point = "float" in name

    def __repr__(self):
        return "torch." + self.name

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        return isinstance(other, DType) and other.name == self.name


DTYPES = {name: DType(name) for name in NUMPY}


class Tensor:
    device = "cuda"
    is_cuda = True
    ndim = property(lambda self: len(self.shape))

    def __init__(self, dtype, array):
        self.dtype, self._array = dtype, array
        self.shape = tuple(array.shape)

    def size(self, place=None):
        return self.shape if place is None else self.shape[place]

    def numel(self):
        return int(self._array.size)

    def stride(self, place=None):
        strides = tuple(math.prod(self.shape[n + 1:]) for n in range(len(self.shape)))
        return strides if place is None else strides[place]

    def dim(self):
        return len(self.shape)

    def element_size(self):
        return self.dtype.itemsize

    def contiguous(self):
        return self

    def is_contiguous(self):
        return True

    def cuda(self):
        return self

    def reshape(self, *shape):
        shape = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return Tensor(self.dtype, self._array.reshape(shape))

    view = reshape

    def __len__(self):
        return self.shape[0]

    # What Triton's interpreter requires of an array.
    def data_ptr(self):
        return self._array.ctypes.data

    def untyped_storage(self):
        return self

    def cpu(self):
        return self

    def storage_offset(self):
        return 0

    def new_empty(self, *args, **kwargs):
        return Tensor(self.dtype, self._array)

    def set_(self, *args):
        return self

    def copy_(self, other):
        return self


def operator(name):
    def combined(self, other):
        if strict:
            raise TypeError("arrays have no operators outside of kernels")
        other = other._array if isinstance(other, Tensor) else other
        return Tensor(self.dtype, np.asarray(getattr(self._array, name)(other), self._array.dtype))
    return combined


for name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "matmul"):
    setattr(Tensor, "__%s__" % name, operator("__%s__" % name))


def empty(*shape, dtype=None, device=None, **others):
    shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    dtype = dtype or DTYPES["float32"]
    raw = np.full(math.prod(shape) * dtype.itemsize, 0xFF, np.uint8)
    return Tensor(dtype, raw.view(NUMPY[dtype.name]).reshape(shape))


def empty_like(x, dtype=None, **others):
    return empty(x.shape, dtype=dtype or x.dtype)


def zeros(*shape, **others):
    made = empty(*shape, **others)
    made._array[...] = 0
    return made


def zeros_like(x, dtype=None, **others):
    return zeros(x.shape, dtype=dtype or x.dtype)


torch = types.ModuleType("torch")
torch.__dict__.update(DTYPES, Tensor=Tensor, empty=empty, empty_like=empty_like, zeros=zeros, zeros_like=zeros_like)
torch.dtype = DType
torch.device = lambda *a: "cuda"
sys.modules["torch"] = torch


def opened(found):
    if found[0] == "number":
        return found[1]
    raw = np.frombuffer(base64.b64decode(found[3]), NUMPY[found[1]]).reshape(found[2])
    return Tensor(DTYPES[found[1]], raw.copy())


def closed(value):
    if type(value) is not Tensor:
        raise TypeError("the result is no array")
    if strict and value.data_ptr() not in reached:
        raise TypeError("the result was not written by a kernel")
    array = np.ascontiguousarray(value._array)
    return ["array", value.dtype.name, list(value.shape), base64.b64encode(array.tobytes()).decode()]


def described(argument):
    if isinstance(argument, Tensor):
        name = argument.dtype.name
        return ["*" + {"bfloat16": "bf16"}.get(name, name.replace("float", "fp").replace("int", "i"))]
    if isinstance(argument, bool):
        return ["i1"]
    if isinstance(argument, int):
        return ["i32" if -2**31 <= argument < 2**31 else "i64"]
    return ["fp32"] if isinstance(argument, float) else ["?"]


def constant(value):
    if isinstance(value, tl.constexpr):
        value = value.value
    return ["dtype", str(value)] if isinstance(value, tl.dtype) else ["value", value]


def launched(function, arguments, options):
    names = inspect.signature(function.fn)
    bound = names.bind(*arguments, **{k: v for k, v in options.items() if k in names.parameters})
    bound.apply_defaults()
    own = {}
    for name, argument in bound.arguments.items():
        if "constexpr" in str(names.parameters[name].annotation):
            own[name] = ["constexpr", constant(argument)]
        else:
            own[name] = described(argument)
            if isinstance(argument, Tensor):
                written[argument.data_ptr()] = argument
    found = [function.fn.__name__, own, options.get("num_warps", 4), options.get("num_stages", 3)]
    if found not in found_launches:
        found_launches.append(found)


written = {}
run_interpreted = InterpretedFunction.run


def run(self, *arguments, grid, warmup=False, **options):
    launched(self, arguments, options)
    grid = grid if not isinstance(grid, int) else (grid,)
    return run_interpreted(self, *arguments, grid=grid, warmup=False, **options)


def counting(name, kind, size):
    inner = getattr(InterpreterBuilder, name)
    def counted(self, *arguments):
        found = inner(self, *arguments)
        work[kind] += size(found, *arguments)
        return found
    setattr(InterpreterBuilder, name, counted)


def stored(found, pointers, value, mask, *others):
    data, on = pointers.data.astype(np.uint64).ravel(), np.broadcast_to(mask.data, pointers.data.shape).ravel()
    ends = data[on]
    for start, own in written.items():
        if ends.size and start not in reached:
            if np.any((ends >= start) & (ends < start + own._array.nbytes)):
                reached.add(start)
    return int(np.count_nonzero(on))


def widened(handle):
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    return TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)


def narrowed(handle):
    bits = np.ascontiguousarray(handle.data, np.float32).view(np.uint32).astype(np.uint64)
    rounded = np.where(np.isnan(handle.data), 0x7FC0, (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
    return TensorHandle(rounded.astype(np.uint16).reshape(handle.data.shape), tl.bfloat16)


def by_float32(name):
    # The interpreter holds bfloat16 as its bits, and computes with them as with whole numbers.
    inner = getattr(InterpreterBuilder, name)
    def computed(self, first, *others):
        if first.dtype.scalar != tl.bfloat16:
            return inner(self, first, *others)
        others = [widened(own) if isinstance(own, TensorHandle) else own for own in others]
        found = inner(self, widened(first), *others)
        return narrowed(found) if name != "create_dot" and found.data.dtype.kind == "f" else found
    setattr(InterpreterBuilder, name, computed)


run_cast = InterpreterBuilder.cast_impl


def cast(self, source, target):
    if source.dtype.scalar == tl.bfloat16 and target.scalar not in (tl.float32, tl.bfloat16):
        source = widened(source)
    if target.scalar == tl.bfloat16 and source.dtype.scalar not in (tl.float32, tl.bfloat16):
        return narrowed(run_cast(self, source, tl.float32))
    return run_cast(self, source, target)


if interpreted:
    for name in ("binary_op", "unary_op", "create_dot"):
        by_float32(name)
    InterpreterBuilder.cast_impl = cast
    if not hasattr(InterpreterBuilder, "get_bf16"):
        InterpreterBuilder.get_bf16 = lambda self, value: narrowed(TensorHandle(np.array([value], "f4"), tl.float32))
    InterpretedFunction.run = run
    counting("create_masked_store", "stores", stored)
    counting("create_masked_load", "loads", lambda f, p, mask, *o: int(np.count_nonzero(mask.data)))
    counting("create_dot", "flops", lambda f, a, b, *o: 2 * a.data.shape[-1] * f.data.size)
    counting("binary_op", "flops", lambda f, a, *o: f.data.size if a.dtype.scalar.is_floating() else 0)
    counting("unary_op", "flops", lambda f, a, *o: f.data.size)
    counting("set_grid_idx", "programs", lambda *o: 1)


def counted():
    return dict(work)


def launches():
    return found_launches


def space_of(place, code, reference, function):
    path = "/box/solution%d.py" % place
    with open(path, "w") as file:
        file.write(code)
    space = {"__name__": "solution", "__file__": path}
    exec(compile(code, path, "exec"), space)
    return space
"""
"""What programs see, and what counts their work."""
COMPILER: Final = """
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.compiler import make_backend


def assembly(kernel, arguments, warps, depth, capability):
    target = GPUTarget("cuda", capability, 32)
    backend = make_backend(target)
    names = list(arguments)
    signature = {name: arguments[name][0] for name in names}
    constants = {}
    for place, name in enumerate(names):
        if signature[name] == "constexpr":
            kind, value = arguments[name][1]
            constants[(place,)] = getattr(tl, value.replace("fp", "float")) if kind == "dtype" else value
    aligned = {(n,): [["tt.divisibility", 16]] for n, name in enumerate(names) if signature[name][0] == "*"}
    source = ASTSource(kernel, signature=signature, constexprs=constants, attrs=aligned)
    options = {"num_warps": warps, "num_stages": depth, "ptx_version": 83, **source.parse_options()}
    options = backend.parse_options(options)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = source.make_ir(target, options, backend.get_codegen_implementation(options), backend.get_module_map(),
                            context)
    stages, metadata = {}, {"hash": "", "target": target, **options.__dict__}
    backend.add_stages(stages, options, source.language)
    for name, stage in stages.items():
        module = stage(module, metadata)
        if name == "ptx":
            return module
"""
WARMED: Final = '''
import linecache
source = """
@triton.jit
def softmax(x, y, n, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    own = tl.load(x + at, mask=at < n, other=0.0)
    grown = tl.exp(own - tl.max(own, axis=0))
    for _ in range(0, n, SIZE):
        tl.store(y + at, grown / tl.sum(grown, axis=0), mask=at < n)


@triton.jit
def product(x, y, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    own = tl.load(x + at[:, None] * SIZE + at[None, :])
    tl.store(y + at[:, None] * SIZE + at[None, :], tl.dot(own, own))
"""
linecache.cache["first.py"] = len(source), None, source.splitlines(True), "first.py"
first = {"triton": triton, "tl": tl, "__name__": "first"}
exec(compile(source, "first.py", "exec"), first)
for name in ("softmax", "product"):
    if interpreted:
        first[name][(1,)](zeros(16, 16), zeros(16, 16), 16, SIZE=16)
    else:
        own = {"x": ["*fp32"], "y": ["*fp32"], "n": ["i32"], "SIZE": ["constexpr", ["value", 16]]}
        assembly(first[name], own, 4, 3, 80)
work.update(dict.fromkeys(work, 0))
for found in (found_launches, reached, written, linecache.cache):
    found.clear()
del source, first, name, found
'''
"""Interprets or compiles two kernels, so that programs find everything loaded, and forgets them."""
