"""The kernels for GPUs in Triton's interpreter, on tensors of the CPU, and compiled: run in a process of its own by
test_paged.py, since whether Triton interprets is settled when it is imported.
"""

import copy
import json
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posttrain import kernels
from posttrain.engines._truncation import Rules, choose
from posttrain.kernels import PAGE, choosing, gpu_signals, paged
from posttrain.policies._graphs import decode_with, no_capture
from posttrain.policies.folder import new_folder
from tests.policies.made_models import load, pack, random_sequences

NEAR = {torch.float32: 2e-6, torch.bfloat16: 0.03}
"""Of values about 1; the interpreter cuts bfloat16 off where a GPU rounds."""
SHAPES = [(1, 1, 64), (4, 2, 32), (4, 1, 128), (7, 1, 80), (14, 2, 64)]
"""Query heads, key heads, width: 1, 2, 4 and 7 query heads of a key head."""
LENGTHS = (0, 14, 15, 16, 255, 256, 700)
"""Tokens before the new one: to the ends of pages and splits, and across them."""


class Case:
    """Sequences in pages in any order, with a first page in common, and NaN wherever nobody has written."""

    def __init__(self, lengths: Sequence[int], shape: tuple[int, int, int], dtype: torch.dtype, normed: bool) -> None:
        self.heads, self.key_heads, self.width = shape
        generator = torch.Generator().manual_seed(sum(shape))
        self.draw = lambda *size: torch.randn(*size, generator=generator).to(dtype)
        self.lengths, count = list(lengths), len(lengths)
        pages = [n // PAGE + 1 for n in lengths]
        self.keys = torch.full((sum(pages) + 2, PAGE, self.key_heads, self.width), torch.nan, dtype=dtype)
        self.values = self.keys.clone()
        # Page 0, where lookups that are masked out end, is nobody's.
        order = (1 + torch.randperm(len(self.keys) - 1, generator=generator)).tolist()
        shared = order.pop()
        self.keys[shared], self.values[shared] = (self.draw(PAGE, self.key_heads, self.width) for _ in range(2))
        self.table = torch.randint(0, len(self.keys), (count, max(pages)), generator=generator, dtype=torch.int32)
        for row, (length, own) in enumerate(zip(lengths, pages, strict=True)):
            self.table[row, :own] = torch.tensor([order.pop() for _ in range(own)])
            if length >= PAGE:
                self.table[row, 0] = shared
            for t in range(PAGE if length >= PAGE else 0, length):
                page = self.table[row, t // PAGE]
                self.keys[page, t % PAGE], self.values[page, t % PAGE] = self.draw(2, self.key_heads, self.width)
        self.query = self.draw(count, self.heads, self.width)
        self.key, self.value = (self.draw(count, self.key_heads, self.width) for _ in range(2))
        angles = 6 * torch.rand(max(lengths) + 1, self.width // 2, generator=generator)
        self.rotation: tuple[Tensor, ...] = (angles.cos(), angles.sin())
        self.norms = tuple(nn.RMSNorm(self.width, 1e-6, dtype=dtype) if normed else nn.Identity() for _ in range(2))
        for norm in self.norms if normed else ():
            nn.init.uniform_(norm.weight, 0.5, 1.5, generator=generator)  # type: ignore[arg-type]

    def to(self, device: torch.device) -> None:
        """Everything to a device."""
        for name in ("keys", "values", "table", "query", "key", "value"):
            setattr(self, name, getattr(self, name).to(device))
        self.rotation = tuple(part.to(device) for part in self.rotation)
        for norm in self.norms:
            norm.to(device)

    def run(self, rows: Sequence[int], pages: int = 0, dtype: torch.dtype | None = None) -> tuple[Tensor, list[Tensor]]:
        """[B, H * d] of some rows, -1 for padding, by the kernel or by torch where a type is given; and the pages."""
        to = dtype or self.keys.dtype
        stored = [x.to(to, copy=True) for x in (self.keys, self.values)]
        device = self.keys.device
        row = torch.tensor([max(0, i) for i in rows], device=device)
        position = torch.tensor([-1 if i < 0 else self.lengths[i] for i in rows], dtype=torch.int32, device=device)
        wide = F.pad(self.table, (0, max(0, pages - self.table.shape[1])))[row]
        where = torch.tensor([[0, 0], [x.data_ptr() for x in stored]], device=device)
        places = paged.Places(position, wide, where, [stored[0]] * 2, [stored[1]] * 2)
        norms = [copy.deepcopy(norm).to(to) for norm in self.norms]
        given = [x[row].to(to) for x in (self.query, self.key, self.value)]
        by = paged.decode_attention if dtype is None else paged._plain
        with torch.no_grad():
            rotary = paged.Rotary(tuple(norms), self.rotation)  # type: ignore[arg-type]
            return by(*given, rotary, places, 1), stored


def cases(shapes: Sequence[tuple[int, int, int]] = SHAPES) -> Iterator[tuple[Case, torch.dtype]]:
    for i, shape in enumerate(shapes):
        for dtype in NEAR:
            yield Case(LENGTHS, shape, dtype, normed=i % 2 == 0), dtype


def attention_is_that_of_float64() -> None:
    """Also where what is cut into splits would fit in one program, and beside padding."""
    for case, dtype in cases():
        rows = [*range(len(LENGTHS)), -1]
        expected, expected_pages = case.run(rows, dtype=torch.float64)
        given, pages = case.run(rows)
        assert expected[:-1].std() > 0.1 and not given[-1].any()
        torch.testing.assert_close(given.double(), expected, atol=NEAR[dtype], rtol=NEAR[dtype])
        for one, other in zip(pages, expected_pages, strict=True):
            torch.testing.assert_close(one.double(), other, atol=NEAR[dtype], rtol=NEAR[dtype], equal_nan=True)


def a_row_is_the_same_to_the_bit_in_any_batch() -> None:
    """Alone, in any order, beside longer ones (which are cut into splits), beside padding."""
    for case, _ in cases([(4, 2, 32), (7, 1, 80)]):
        together, _ = case.run(range(len(LENGTHS)))
        for rows in ([6, -1, 2, 0], [3], [4, 1], [5, 5, 3]):
            given, _ = case.run(rows, pages=48 if rows == [3] else 0)
            for row, y in zip(rows, given, strict=True):
                assert torch.equal(y, together[row] if row >= 0 else torch.zeros_like(y)), (case.width, row)


def pages_are_written_at_one_place_a_row() -> None:
    for case, _ in cases([(4, 2, 32), (7, 1, 80)]):
        _, pages = case.run([2, -1, 6])
        for new, old in zip(pages, (case.keys, case.values), strict=True):
            changed = {
                tuple(place) for place in (new.view_as(old) != old).logical_and(~new.isnan()).nonzero()[:, :2].tolist()
            }
            assert changed == {(int(case.table[i, LENGTHS[i] // PAGE]), LENGTHS[i] % PAGE) for i in (2, 6)}


def tokens_are_chosen_as_the_engine_chooses() -> None:
    """Greedily and by draws, at the ends of blocks and of the draws; ties; and logits that are no numbers."""
    generator = torch.Generator().manual_seed(0)
    for columns, dtype in product((61, 4096, 9000), (torch.float32, torch.bfloat16)):
        logits = (3 * torch.randn(40, columns, generator=generator)).to(dtype)
        logits[5, 3:50], logits[6], logits[11] = -torch.inf, 0.0, -torch.inf
        logits[11, columns // 2] = 1.0
        logits[7, 60], logits[8], logits[9, 0] = torch.nan, -torch.inf, torch.inf
        draw_B = torch.rand(40, generator=generator, dtype=torch.float64)
        draw_B[:4] = torch.tensor([0.0, 1 - 2.0**-53, 0.5, 0.25])
        temperature_B = torch.tensor([0.7, 1.0, 0.0, 1.7], dtype=torch.float64).repeat(10)
        none = torch.zeros(40, dtype=torch.int64)
        rules = Rules(temperature_B=temperature_B, top_k_B=none, top_p_B=none + 1.0, min_p_B=none.double())
        expected_B, expected_logp_B, expected_entropy_B = choose(logits, rules, draw_B)
        token_B, logp_B, entropy_B = choosing.choose(logits, temperature_B, draw_B)
        sound = torch.tensor([i not in (7, 8, 9) for i in range(40)])
        assert torch.equal(token_B[sound], expected_B[sound]) and len(set(token_B.tolist())) > 20
        torch.testing.assert_close(logp_B[sound], expected_logp_B[sound], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(entropy_B[sound], expected_entropy_B[sound], rtol=1e-11, atol=1e-11)
        assert logp_B[~sound].isnan().all() and entropy_B[~sound].isnan().all()
        assert (token_B < columns).all() and (token_B >= 0).all()


def signals_are_those_of_float64() -> None:
    """Values and gradients: at ends of blocks, of tokens that cannot be, whole blocks of them, and broken rows."""
    generator = torch.Generator().manual_seed(0)
    for columns, dtype, temperature in product((1, 61, 4096, 9000), (torch.float32, torch.bfloat16), (1.0, 0.7)):
        logits = (3 * torch.randn(11, columns, generator=generator)).to(dtype)
        token = torch.randint(columns, (11,), generator=generator)
        if columns > 5000:
            logits[0, :5000], token[0] = -torch.inf, 5001
            logits[1, 10:], token[1] = -torch.inf, 3
            logits[2] += 300.0
            logits[3, 7] = 80.0
        exact = logits.double().requires_grad_()
        logp_TV = (exact / temperature).log_softmax(-1)
        truth = logp_TV.gather(1, token[:, None])[:, 0], -(logp_TV.exp() * logp_TV.clamp_min(-1e300)).sum(-1)
        credit = torch.randn(2, 11, generator=generator)
        for parts in ((0,), (1,), (0, 1)):
            given = logits.clone().requires_grad_()
            found = gpu_signals.token_signals(given * 1, token, temperature=temperature, entropy=True)
            for one, other in zip(found, truth, strict=True):
                torch.testing.assert_close(one.double(), other, atol=4e-6, rtol=3e-6)  # type: ignore[union-attr]
            sum((found[i] * credit[i]).sum() for i in parts).backward()  # type: ignore[operator,union-attr]
            wanted = torch.autograd.grad(sum((truth[i] * credit[i]).sum() for i in parts), exact, retain_graph=True)[0]
            near = 5e-6 if dtype == torch.float32 else 2**-7  # the interpreter cuts off where a GPU rounds
            torch.testing.assert_close(given.grad.double(), wanted, atol=near, rtol=near)  # type: ignore[union-attr]
    broken = torch.zeros(4, 5000)
    broken[0, 70], broken[1], broken[2, 4999] = torch.nan, -torch.inf, torch.inf
    found = gpu_signals.token_signals(broken, torch.tensor([0, 0, 0, 5000]), temperature=1.0, entropy=True)
    assert found[0].isnan().all() and found[1][:3].isnan().all() and found[1][3].isfinite()  # type: ignore[index]
    assert gpu_signals.token_signals(broken[:0], token[:0], temperature=1.0, entropy=True)[0].shape == (0,)


def tokens_drawn_in_one_go_are_those_of_single_steps() -> None:
    """Across the end of a page; some rows greedily, with rows of padding."""
    with TemporaryDirectory() as folder:
        body = load(new_folder(Path(folder) / "m", width=32, heads=2, kv_heads=1, layers=2), dtype="float32").body
    decode_with(body, lambda: no_capture)  # type: ignore[arg-type]
    prompts, rows = random_sequences(13, 3, 30), [2, 0, 3]

    def drawing(written: int) -> kernels.Drawing:
        return kernels.Drawing(
            temperature_B=torch.tensor([1.0, 0.0, 0.7], dtype=torch.float64),
            key_B=torch.tensor([3, 1 << 63, 5], dtype=torch.uint64),
            counter_B=torch.full((3,), written, dtype=torch.uint64),
        )

    found = []
    for parts in ((1,) * 6, (6,), (4, 2)):
        cache = body.new_cache(4, 64)
        body.extend(cache, rows, pack(prompts))
        last_B, done = torch.tensor([7, 8, 9]), []
        for part in parts:
            drawn = body.write(cache, rows, last_B, drawing(sum(x[0].shape[1] for x in done)), part)
            assert drawn is not None
            done.append(drawn)
            last_B = drawn[0][:, -1]
        assert cache.lengths[rows].tolist() == [19, 9, 36]
        found.append([torch.cat(kind, 1) for kind in zip(*done, strict=True)])
    assert len(set(found[0][0].flatten().tolist())) > 6
    for other in found[1:]:
        assert all(torch.equal(x, y) for x, y in zip(other, found[0], strict=True))


TARGETS = ((80, "bf16"), (80, "fp32"), (90, "bf16"))
"""Capabilities and types: what has room on the older one, with its smaller shared memory, has it on the newer one."""


def they_compile_for_gpus_that_are_not_here() -> None:
    """For Ampere and Hopper, to machine code: what the interpreter lets pass, the compiler may not."""
    from posttrain.kernels import _triton

    where = {"position_B": "*i32", "page_BP": "*i32", "table_stride": "i32", "address": "*i64", "splits": "i32"}
    for (capability, element), (heads, key_heads, width) in product(TARGETS, SHAPES[-2:]):
        sizes = {"H": heads, "K": key_heads, "WIDTH": width, "PAGE": PAGE}
        one = dict.fromkeys(("query", "key", "value", "rotated", "query_norm", "key_norm", "out"), f"*{element}")
        part = dict.fromkeys(("partial", "partial_max", "partial_sum", "cosine", "sine"), "*fp32")
        types = {**where, **one, **part, "eps": "fp32", "scale": "fp32"}
        tiles = {"SPLIT": paged.SPLIT, **paged.tiles(heads // key_heads, width, 2 if element == "bf16" else 4)}
        half = {"HALF": paged.power_of_2(width // 2), "NORMED": True}
        compiled(_triton.rotate_and_store, types, sizes | half, capability, 1)
        for alone in (True, False):
            fixed = sizes | tiles | {"ALONE": alone, "WIDE": False}
            program = compiled(_triton.attend, types, fixed, capability, 4)
            assert "cp.async.cg.shared.global" in program, "sixteen bytes of a page at a time"
            assert ("mma" in program) == (element == "bf16"), "products on tensor cores"
        compiled(_triton.combine, types, sizes | tiles, capability, 1)
    for capability, element in TARGETS:
        whole = dict.fromkeys(("largest", "sums", "energies", "temperature", "uniform", "logps", "entropies"), "*fp64")
        counts = {"at": "*i32", "broken": "*i32", "tokens": "*i64", "columns": "i32", "blocks": "i32"}
        types = {**whole, **counts, "logits": f"*{element}"}
        for kernel in (_triton.largest_logits, _triton.sums_of_weights, _triton.chosen_tokens):
            fixed = {"BLOCK": choosing.BLOCK, "BLOCKS": 64}
            compiled(kernel, types, {n: v for n, v in fixed.items() if n in kernel.arg_names}, capability, 4)
        rows = dict.fromkeys(("logps", "entropies", "totals", "of_logp", "of_entropy"), "*fp32")
        types = {**rows, "logits": f"*{element}", "tokens": "*i64", "columns": "i32", "scale": "fp32"}
        for kernel in (_triton.signals, _triton.signals_gradient):
            compiled(kernel, types, {"BLOCK": gpu_signals.BLOCK}, capability, gpu_signals.WARPS)


def compiled(kernel: Any, types: Mapping[str, str], fixed: Mapping[str, Any], capability: int, warps: int) -> str:
    """The assembly of a kernel for a GPU, from which machine code has been made."""
    from triton import compile
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = kernel.arg_names
    signature = {name: "constexpr" if name in fixed else types[name] for name in names}
    constants = {(i,): fixed[name] for i, name in enumerate(names) if name in fixed}
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if signature[name][0] == "*"}
    source = ASTSource(kernel, signature=signature, constexprs=constants, attrs=aligned)
    made = compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps, "num_stages": 2})
    assert len(made.asm["cubin"]) > 1000 and made.metadata.shared <= 48 << 10, "what every GPU gives a program"
    return str(made.asm["ptx"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    assert kernels.status().startswith("plain"), "the definition is by torch's operations"
    broken = dict[str, str]()
    for name in sys.argv[1:]:
        try:
            globals()[name]()
        except Exception:
            broken[name] = traceback.format_exc()
    print(json.dumps(broken))
