"""A small kernel language that needs no library: what it compiles, and how it is run in the sandbox.

    @kernel
    def k(i, x, y, out):
        out[i] = 3 * x[i] + y[i]

    def f(x, y):
        out = empty(x)
        k[len(x)](x, y, out)
        return out

A kernel is launched for the numbers ``i`` below what stands in brackets. It has assignments, ``for`` over ``range``,
``while`` and ``if``, arithmetic and comparisons, elements of the arrays that it was given, and the functions of
`INTRINSICS`: all else is refused by `refusal`, so that no kernel can call a library. Arrays are flat inside of kernels.
Outside of them they have a length, a shape and a dtype, and no elements, unless a task's library is there.
"""

import ast
from typing import Final

INTRINSICS: Final = ("abs", "max", "min", "exp", "sqrt", "range")
_PLAIN: Final = (
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
    *(ast.expr_context, ast.Pass, ast.Break, ast.Continue, ast.If, ast.While, ast.keyword),
)


def refusal(tree: ast.Module) -> str:
    """Why a program's kernels cannot be compiled; empty where they can, or where there are none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(_is_kernel(item) for item in node.decorator_list):
            fault = _of_function(node)
            if fault:
                return f"kernel {node.name[:40]}: {fault}"
    return ""


def _is_kernel(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "kernel"


def _of_function(node: ast.FunctionDef) -> str:
    given = node.args
    if given.vararg or given.kwarg or given.kwonlyargs or given.defaults or len(node.decorator_list) > 1:
        return "plain parameters and one decorator only"
    names = {a.arg for a in (*given.posonlyargs, *given.args)}
    inner = [child for statement in node.body for child in ast.walk(statement)]
    arrays = set(names)
    names |= {child.id for child in inner if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store)}
    if names & {*INTRINSICS, "kernel", "empty"}:
        return "a name of the language is assigned"
    for child in inner:
        if fault := _fault(child, names, arrays):
            return fault
    return ""


def _fault(node: ast.AST, names: set[str], arrays: set[str]) -> str:
    match node:
        case ast.Name():
            return "" if node.id in names or node.id in INTRINSICS else f"the name {node.id[:40]} is not its own"
        case ast.Constant():
            return "" if isinstance(node.value, int | float) else "a constant that is no number"
        case ast.Subscript(value=ast.Name(id=name)):
            return "" if name in arrays else f"{name[:40]} is no parameter"
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            return "" if name in INTRINSICS else f"it calls {name[:40]}"
        case ast.For(target=ast.Name(), iter=ast.Call(func=ast.Name(id="range")), orelse=[]):
            return ""
        case ast.Assign(targets=[ast.Name() | ast.Subscript()]) | ast.AugAssign(target=ast.Name() | ast.Subscript()):
            return ""
    return "" if isinstance(node, _PLAIN) else f"it has a {type(node).__name__}"


SCRIPT: Final = """
import array, base64, math
CODES = {"float32": "f", "float64": "d", "int32": "i", "int64": "q"}
inside, work = [False], {"loads": 0, "stores": 0, "programs": 0}


class Buffer:
    __slots__ = ("_items", "_written", "dtype", "shape")

    def __init__(self, dtype, shape, items):
        self.dtype, self.shape, self._items, self._written = dtype, tuple(shape), items, False

    def __len__(self):
        return len(self._items)

    def _at(self, place):
        if strict and not inside[0]:
            raise TypeError("elements are read and written by kernels")
        if type(place) is not int or not 0 <= place < len(self._items):
            raise IndexError("no element %r of %d" % (place, len(self._items)))
        return place

    def __getitem__(self, place):
        place = self._at(place)
        work["loads"] += 1
        return self._items[place]

    def __setitem__(self, place, value):
        self._items[self._at(place)] = value
        work["stores"] += 1
        self._written = True


def by_element(operation):
    def combined(self, other):
        if strict:
            raise TypeError("arrays have no operators outside of kernels")
        others = other._items if isinstance(other, Buffer) else [other] * len(self._items)
        if len(others) != len(self._items):
            raise ValueError("arrays of two lengths")
        items = array.array(self._items.typecode, [operation(a, b) for a, b in zip(self._items, others)])
        return Buffer(self.dtype, self.shape, items)
    return combined


for name, operation in {
    "add": lambda a, b: a + b, "radd": lambda a, b: b + a, "sub": lambda a, b: a - b, "rsub": lambda a, b: b - a,
    "mul": lambda a, b: a * b, "rmul": lambda a, b: b * a, "truediv": lambda a, b: a / b,
    "rtruediv": lambda a, b: b / a,
}.items():
    setattr(Buffer, "__%s__" % name, by_element(operation))


class Kernel:
    def __init__(self, function):
        self._function = function

    def __getitem__(self, programs):
        def launch(*arguments):
            if type(programs) is not int or programs < 0:
                raise TypeError("a kernel is launched for a number of programs")
            work["programs"] += programs
            inside[0] = True
            try:
                for place in range(programs):
                    self._function(place, *arguments)
            finally:
                inside[0] = False
        return launch


def empty(like, dtype=None):
    if isinstance(like, Buffer):
        shape, dtype = like.shape, dtype or like.dtype
    else:
        shape, dtype = (like,) if isinstance(like, int) else tuple(like), dtype or "float32"
    code = CODES[dtype]
    return Buffer(dtype, shape, array.array(code, [-1 if code in "iq" else math.nan] * math.prod(shape)))


def opened(found):
    if found[0] == "number":
        return found[1]
    items = array.array(CODES[found[1]])
    items.frombytes(base64.b64decode(found[3]))
    return Buffer(found[1], found[2], items)


def closed(value):
    if type(value) is not Buffer:
        raise TypeError("the result is no array")
    if strict and not value._written:
        raise TypeError("the result was not written by a kernel")
    return ["array", value.dtype, list(value.shape), base64.b64encode(value._items.tobytes()).decode()]


def counted():
    return dict(work)


def launches():
    return []


def space_of(place, code, reference, function):
    space = {"__name__": "solution", "kernel": Kernel, "empty": empty, "exp": math.exp, "sqrt": math.sqrt}
    if reference:
        library = {"__name__": "reference"}
        exec(compile(reference, "reference.py", "exec"), library)
        space["reference"] = library[function]
    exec(compile(code, "solution.py", "exec"), space)
    return space
"""
"""The part of the sandbox's script that is of this language (`posttrain.grading.kernel_runs`)."""
