"""Trains models on one GPU with plain PyTorch and prints what a step takes, to compare with `trainyard plan`.

    python3 testdata/plan/measure_torch.py [RUN ...] > measured.jsonl

Plain means `torch.compile` of the whole model, `scaled_dot_product_attention` and fused AdamW, in one process.
`amp` keeps weights in 32 bits and computes under `autocast`; `bf16` keeps weights, gradients and moments in 16 bits.
"""

import gc
import json
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

# Layers, hidden, heads, key-value heads, ffn, vocabulary, gated; embeddings are tied.
MODELS = {
    "gpt2-124m": (12, 768, 12, 12, 3072, 50304, False),
    "gpt2-350m": (24, 1024, 16, 16, 4096, 50304, False),
    "gpt3-1.3b": (24, 2048, 16, 16, 8192, 50304, False),
    "llama3.2-1b": (16, 2048, 32, 8, 8192, 128256, True),
    "llama3.2-3b": (28, 3072, 24, 8, 8192, 128256, True),
    "qwen2.5-0.5b": (24, 896, 14, 2, 4864, 151936, True),
    "qwen2.5-1.5b": (28, 1536, 12, 2, 8960, 151936, True),
}
# Model, sequence, sequences of a micro-batch, micro-batches, format, recompute.
RUNS = {
    "a1": ("gpt2-124m", 1024, 32, 1, "amp", "none"),
    "a2": ("gpt2-124m", 1024, 32, 1, "bf16", "none"),
    "a3": ("gpt2-350m", 1024, 16, 1, "amp", "none"),
    "a4": ("llama3.2-1b", 4096, 4, 1, "amp", "none"),
    "a5": ("llama3.2-1b", 4096, 4, 1, "bf16", "none"),
    "a6": ("llama3.2-3b", 4096, 2, 1, "amp", "none"),
    "a7": ("llama3.2-3b", 4096, 4, 1, "bf16", "none"),
    "a8": ("llama3.2-3b", 4096, 4, 1, "bf16", "full"),
    "b1": ("gpt2-124m", 2048, 8, 1, "amp", "none"),
    "b2": ("qwen2.5-0.5b", 2048, 8, 1, "bf16", "none"),
    "b3": ("gpt3-1.3b", 2048, 8, 1, "amp", "none"),
    "b4": ("qwen2.5-1.5b", 4096, 2, 2, "amp", "none"),
    "b5": ("llama3.2-3b", 8192, 1, 2, "bf16", "none"),
    "b6": ("llama3.2-3b", 2048, 8, 1, "amp", "full"),
}


def turn(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, hidden, heads, kv_heads, ffn, gated):
        super().__init__()
        norm = nn.RMSNorm if gated else nn.LayerNorm
        self.before, self.between, self.gated = norm(hidden), norm(hidden), gated
        self.size = hidden // heads
        self.widths = [heads * self.size, kv_heads * self.size, kv_heads * self.size]
        self.qkv = nn.Linear(hidden, sum(self.widths), bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.up = nn.Linear(hidden, ffn * (2 if gated else 1), bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def attention(self, x, cos, sin):
        b, s, h = x.shape
        parts = self.qkv(x).split(self.widths, -1)
        q, k, v = (part.view(b, s, -1, self.size).transpose(1, 2) for part in parts)
        if self.gated:
            q, k = turn(q, cos, sin), turn(k, cos, sin)
        grouped = self.widths[0] != self.widths[1]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
        return self.out(y.transpose(1, 2).reshape(b, s, h))

    def forward(self, x, cos, sin):
        x = x + self.attention(self.before(x), cos, sin)
        y = self.up(self.between(x))
        if self.gated:
            gate, y = y.chunk(2, -1)
            y = F.silu(gate) * y
        else:
            y = F.gelu(y)
        return x + self.down(y)


class Model(nn.Module):
    def __init__(self, layers, hidden, heads, kv_heads, ffn, vocabulary, gated, sequence, again):
        super().__init__()
        self.again, self.gated = again, gated
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Embedding(1 if gated else sequence, hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads, kv_heads, ffn, gated) for _ in range(layers))
        self.norm = (nn.RMSNorm if gated else nn.LayerNorm)(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        self.head.weight = self.embedding.weight
        size = hidden // heads
        angle = torch.outer(torch.arange(sequence), 1e4 ** (-torch.arange(0, size, 2) / size))
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, tokens, targets):
        x = self.embedding(tokens) + self.positions.weight
        for layer in self.layers:
            if self.again:
                x = checkpoint(layer, x, self.cos, self.sin, use_reentrant=False)
            else:
                x = layer(x, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)).float(), targets.reshape(-1))


def run(name):
    model_name, sequence, micro_batch, micro_batches, form, recompute = RUNS[name]
    shape = MODELS[model_name]
    gc.collect()
    torch.cuda.empty_cache()
    torch._dynamo.reset()
    with torch.device("cuda"):
        model = Model(*shape, sequence, recompute == "full")
    if form == "bf16":
        model = model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    compiled = torch.compile(model)
    tokens = torch.randint(shape[5], (micro_batch, sequence + 1), device="cuda")
    kept = 0

    def step():
        nonlocal kept
        for _ in range(micro_batches):
            before = torch.cuda.memory_allocated()
            with torch.autocast("cuda", torch.bfloat16, enabled=form == "amp"):
                loss = compiled(tokens[:, :-1], tokens[:, 1:])
            kept = torch.cuda.memory_allocated() - before
            (loss / micro_batches).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    begin = time.perf_counter()
    for _ in range(4):
        step()
    torch.cuda.synchronize()
    compiling = time.perf_counter() - begin
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    times, begin = [], time.perf_counter()
    while len(times) < 10 or (time.perf_counter() - begin < 8 and len(times) < 200):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        step()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last) / 1e3)
    free, total = torch.cuda.mem_get_info()
    gib = 2**30
    line = {
        "run": name,
        "model": model_name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "sequence": sequence,
        "microBatch": micro_batch,
        "microBatches": micro_batches,
        "format": form,
        "recompute": recompute,
        "stepSeconds": statistics.median(times),
        "fastest": min(times),
        "slowest": max(times),
        "steps": len(times),
        "keptGib": kept / gib,
        "allocatedGib": torch.cuda.max_memory_allocated() / gib,
        "reservedGib": torch.cuda.max_memory_reserved() / gib,
        "deviceGib": (total - free) / gib,
        "compileSeconds": compiling,
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    for name in sys.argv[1:] or RUNS:
        run(name)
