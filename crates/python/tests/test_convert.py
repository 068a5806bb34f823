"""`trainyard checkpoints convert` and `diff` against torch itself: what torch wrote is read, and torch reads what was written."""

import json
import os
import pathlib
import struct
import subprocess
import unittest
import warnings
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from common import Case
from trainyard_checkpoint import Checkpointer

BINARY = os.environ.get("TRAINYARD_BINARY", "")

# The state of `dcp.save`: types, a scalar, an empty tensor, one that is not row-major, nested lists, small state.
KINDS = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8": torch.float8_e4m3fn,
    "int64": torch.int64,
    "uint8": torch.uint8,
    "uint16": torch.uint16,
    "bool": torch.bool,
    "complex64": torch.complex64,
}


def state(fill: float) -> dict[str, Any]:
    model: dict[str, Any] = {name: (torch.arange(6).reshape(2, 3) * fill).to(kind) for name, kind in KINDS.items()}
    model["scalar"] = torch.tensor(fill)
    model["empty"] = torch.full((0, 3), fill)
    model["transposed"] = (torch.arange(6.0).reshape(2, 3) * fill).t()
    return {
        "model": model,
        "optimizer": {"state": [{"m": torch.full((2,), fill)}], "param_groups": [{"lr": 1e-5 * fill, "betas": (0.9, 0.999)}]},
        "step": int(fill),
        "name": "run",
    }


@unittest.skipUnless(BINARY, "TRAINYARD_BINARY names no program")
class Convert(Case):
    def call(self, *words: object, code: int = 0) -> dict[str, Any]:
        command = [BINARY, "checkpoints", *[str(word) for word in words], "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        found: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
        return found

    def save(self, name: str, fill: float) -> pathlib.Path:
        folder = self.folder / name
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.save(state(fill), checkpoint_id=folder)
        return folder

    def load(self, folder: pathlib.Path) -> dict[str, Any]:
        found = state(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.load(found, checkpoint_id=folder)
        return found

    def assert_state(self, found: dict[str, Any], fill: float) -> None:
        wanted = state(fill)
        for name, tensor in wanted["model"].items():
            self.assertEqual(tensor.dtype, found["model"][name].dtype, name)
            # Not every type can be compared; its bytes can.
            one, two = (value.contiguous().reshape(-1).view(torch.uint8) for value in (tensor, found["model"][name]))
            self.assertTrue(torch.equal(one, two), name)
        self.assertTrue(torch.equal(wanted["optimizer"]["state"][0]["m"], found["optimizer"]["state"][0]["m"]))
        self.assertEqual(wanted["optimizer"]["param_groups"], found["optimizer"]["param_groups"])
        self.assertEqual((found["step"], found["name"]), (int(fill), "run"))

    def test_dcp_through_every_format(self) -> None:
        source = self.save("dcp", 2)
        self.call("convert", source, self.folder / "ours", "--to", "trainyard", "--step", "5")
        self.assertTrue(self.call("diff", source, self.folder / "ours")["same"])
        self.assertTrue(self.call("verify", self.folder / "ours", "--deep")["steps"][0]["intact"])
        self.call("convert", self.folder / "ours", self.folder / "back", "--to", "dcp")
        self.assert_state(self.load(self.folder / "back"), 2)
        # Without small state: shards, one file, and DCP again.
        self.call("convert", source, self.folder / "hf", "--to", "hf", "--max-shard-size", "64")
        self.call("convert", self.folder / "hf", self.folder / "one.safetensors", "--to", "safetensors")
        self.assertEqual(self.call("diff", self.folder / "one.safetensors", source)["equal"], 14)
        self.call("convert", self.folder / "one.safetensors", self.folder / "flat", "--to", "dcp", "--only", "model.", "--strip", "model.")
        found = {"float32": torch.zeros(2, 3)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.load(found, checkpoint_id=self.folder / "flat")
        self.assertTrue(torch.equal(found["float32"], torch.arange(6.0).reshape(2, 3) * 2))

    def test_safetensors_by_hand(self) -> None:
        """The file is read as its format says, without our code."""
        self.call("convert", self.save("dcp", 3), self.folder / "one.safetensors", "--to", "safetensors")
        data = (self.folder / "one.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        entry = header["model.float32"]
        first, end = entry["data_offsets"]
        part = data[8 + length + first : 8 + length + end]
        self.assertEqual((entry["dtype"], entry["shape"]), ("F32", [2, 3]))
        self.assertEqual(list(struct.unpack("<6f", part)), [0, 3, 6, 9, 12, 15])
        spans = sorted(one["data_offsets"] for name, one in header.items() if name != "__metadata__")
        self.assertEqual(spans[0][0], 0)
        for one, following in zip(spans, spans[1:]):
            self.assertEqual(one[1], following[0], "no holes")
        self.assertEqual(8 + length + spans[-1][1], len(data))

    def test_differences(self) -> None:
        one, two = self.save("one", 2), self.save("two", 3)
        found = self.call("diff", one, two, code=1)
        by_name = {entry["name"]: entry for entry in found["differing"]}
        self.assertEqual((by_name["model.float32"]["differing"], by_name["model.float32"]["maxAbsolute"]), (5, 5))
        self.assertEqual(by_name["model.bfloat16"]["maxAbsolute"], 5)
        self.assertIn({"path": "step", "a": "2", "b": "3"}, found["state"])
        self.assertNotIn("model.empty", by_name)
        (one / "__0_0.distcp").write_bytes(b"PK")
        self.call("diff", one, two, code=2)

    def test_restored_by_the_package(self) -> None:
        """A store that `convert` wrote is one that a program restores from."""
        model = torch.nn.Linear(3, 2)
        folder = self.folder / "dcp"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.save({"model": model.state_dict(), "progress": {"step": 9}}, checkpoint_id=folder)
        self.call("convert", folder, self.root, "--to", "trainyard", "--step", "9")
        fresh, progress = torch.nn.Linear(3, 2), {"step": 0}
        ck = Checkpointer(self.root, sigterm=False)
        self.assertEqual(ck.restore(model=fresh, progress=progress), 9)
        ck.close()
        self.assertTrue(torch.equal(fresh.weight, model.weight))
        self.assertEqual(progress, {"step": 9})
        # And what the package saves can be converted.
        self.call("convert", self.root, self.folder / "two", "--to", "dcp")
        found = {"model": {"weight": torch.zeros(2, 3)}}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.load(found, checkpoint_id=self.folder / "two")
        self.assertTrue(torch.equal(found["model"]["weight"], model.weight))


if __name__ == "__main__":
    unittest.main()
