"""Measures what one GPU of this machine reaches, for `trainyard plan --calibrate`.

Prints one JSON object: seconds of matrix products and of causal attention, bytes per second of memory and of the link
between two GPUs where there are two, and the bytes that a process holds besides its tensors.
"""

import json
import statistics
import sys
import time


def refuse(sentence):
    print(sentence, file=sys.stderr)
    sys.exit(3)


try:
    import torch
    import torch.nn.functional as F
except ImportError:
    refuse("this Python has no PyTorch (`import torch` failed)")
if not torch.cuda.is_available():
    refuse("PyTorch finds no GPU on this machine")


def numbers(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def seconds(work):
    """Median seconds of one call, over five batches of calls that are timed on the GPU."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    torch.cuda.synchronize()
    calls = max(1, min(200, int(0.05 / (time.perf_counter() - begin))))
    found = []
    for _ in range(5):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(calls):
            work()
        last.record()
        last.synchronize()
        found.append(first.elapsed_time(last) / 1e3 / calls)
    return statistics.median(found)


# Rows, columns and depth of the products of models from 100 M to 70 B parameters, and of their gradients.
PRODUCTS = [
    (8192, 2304, 768), (8192, 768, 3072), (16384, 3072, 768), (768, 3072, 16384), (16384, 50304, 768),
    (8192, 3072, 1024), (8192, 2048, 2048), (16384, 2048, 2048), (8192, 8192, 2048), (2048, 8192, 16384),
    (8192, 3072, 3072), (8192, 16384, 3072), (8192, 3072, 8192), (8192, 4096, 4096), (8192, 28672, 4096),
    (8192, 4096, 14336), (4096, 14336, 8192), (8192, 8192, 8192), (4096, 57344, 8192), (8192, 128256, 2048),
]
# Batch, heads, sequence, size of a head.
ATTENTION = [(16, 12, 1024, 64), (4, 32, 2048, 64), (8, 16, 2048, 128), (2, 32, 4096, 128), (1, 32, 8192, 128)]


def products():
    # A chip gets hot and slows down in training, so it does here before the first figure.
    a, b = numbers(8192, 8192), numbers(8192, 8192)
    until = time.perf_counter() + 4
    while time.perf_counter() < until:
        for _ in range(20):
            torch.mm(a, b)
        torch.cuda.synchronize()
    for m, n, k in PRODUCTS:
        a, b = numbers(m, k), numbers(n, k).t()
        yield {"m": m, "n": n, "k": k, "seconds": seconds(lambda: torch.mm(a, b))}


def attention():
    for batch, heads, sequence, size in ATTENTION:
        q, k, v = (numbers(batch, heads, sequence, size).requires_grad_() for _ in range(3))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        grad = torch.randn_like(out)
        with torch.no_grad():
            forward = seconds(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
        backward = seconds(lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True))
        shape = {"batch": batch, "heads": heads, "sequence": sequence, "headSize": size}
        yield shape | {"forward": forward, "backward": backward}


def memory():
    """Bytes per second, read and written, of a sum over arrays far larger than the caches."""
    a, b, out = numbers(1 << 29), numbers(1 << 29), numbers(1 << 29)
    return 6 * a.numel() / seconds(lambda: torch.add(a, b, out=out))


def link():
    """Bytes per second of one direction between two GPUs."""
    if torch.cuda.device_count() < 2:
        return None
    a = numbers(1 << 29)
    b = torch.empty_like(a, device="cuda:1")
    return 2 * a.numel() / seconds(lambda: b.copy_(a))


def besides():
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return max(0, total - free - torch.cuda.memory_reserved())


begin = time.perf_counter()
about = torch.cuda.get_device_properties(0)
report = {
    "version": 1,
    "gpu": about.name,
    "memory": torch.cuda.mem_get_info()[1],
    "units": about.multi_processor_count,
    "torch": torch.__version__,
    "products": list(products()),
    "attention": list(attention()),
    "memoryBandwidth": memory(),
    "link": link(),
    "buffers": besides(),
}
print(json.dumps(report | {"seconds": time.perf_counter() - begin}))
