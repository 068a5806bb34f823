"""Mistakes of users and accidents on disk: one clear sentence each, and nothing lost."""

import os
import pathlib
import signal
import subprocess
import sys
import unittest
import warnings

import torch
from common import HERE, PATIENCE, Case

from trainyard_checkpoint import Checkpointer, CheckpointError, Fenced


class Mistakes(Case):
    def refused(self, want: str, root: object, **arguments: object) -> None:
        with self.subTest(want, arguments=arguments), self.assertRaises(CheckpointError) as raised:
            Checkpointer(root, **arguments).restore(x=1)
        self.assertRegex(str(raised.exception), want)
        self.assertNotIn("\n", str(raised.exception))

    def test_roots(self) -> None:
        file = self.folder / "file"
        file.write_text("not a folder")
        self.refused(r"cannot create the folder in `.*file/x`: Not a directory .*; `.*` has uid", file / "x")
        self.refused(r"cannot create the folder in `.*file/x/y`: Not a directory", file / "x" / "y")
        self.refused(r"cannot create the folder in `.*file`: File exists", file)
        self.refused(r"cannot create the folder in `.*`: File name too long", self.folder / ("n" * 300))
        self.refused(r"unexpected NUL byte", f"{self.folder}/a\0b")
        for root in (None, 5, b"/bytes", ["list"], ""):
            self.refused("`root` must be the path of a folder, found", root)

    @unittest.skipUnless(os.geteuid() == 0, "only root can mount a volume")
    def test_read_only_volume(self) -> None:
        volume = self.folder / "volume"
        volume.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", volume], check=True)
        self.addCleanup(subprocess.run, ["umount", "--lazy", volume], check=True)
        self.refused(r"cannot create a file in `.*volume`: Read-only file system", volume)
        self.refused(r"cannot create the folder in `.*volume/a/b`: Read-only file system", volume / "a" / "b")

    def test_folder_without_permission(self) -> None:
        closed = self.folder / "closed"
        closed.mkdir(mode=0o500)
        script = (
            "import os, sys; from trainyard_checkpoint import Checkpointer, CheckpointError; os.geteuid() or os.setuid(65534)\n"
            "try: Checkpointer(sys.argv[1]).restore(x=1)\nexcept CheckpointError as error: print(error)"
        )
        self.folder.chmod(0o755)
        found = subprocess.run([sys.executable, "-c", script, closed / "root"], check=True, capture_output=True, text=True)
        self.assertRegex(found.stdout, r"^cannot create the folder in `.*closed/root`: Permission denied .*; `.*closed` has uid .*; this process has uid")

    def test_arguments(self) -> None:
        wrong: dict[str, list[object]] = {
            "keep": [0, "3", True, 2.5, None, 1 << 40],
            "keep_every": [0, "x"],
            "every": [0, "x", 2.5],
            "max_failures": [0, "x", None],
            "on_error": [None, 5, [], "ignore"],
            "data": [None, "all"],
            "deadline": ["x", -1, float("nan"), float("inf"), None],
            "attempt": ["x", -1, 1 << 40, 2.5],
            "per_rank": ["sampler", None, 5, [1]],
            "rng": ["no", None, 1],
            "sigterm": ["no", None],
        }
        for name, values in wrong.items():
            for value in values:
                self.refused(f"^(`{name}` must be|unknown {name} `)", self.root, **{name: value})
        self.refused("`rank` must be a number of 0 or more, found `'0'`", self.root, rank="0", world=2)
        self.assertFalse(pathlib.Path(self.root).exists())

    def test_steps_and_state(self) -> None:
        with Checkpointer(self.root) as checkpointer:
            for step in ("5", 2.5, -1, True, None, 1 << 70):
                for call in (checkpointer.save, checkpointer.step):
                    with self.subTest(step=step), self.assertRaisesRegex(CheckpointError, "a step must be a number of 0 or more, found"):
                        call(step, x=1)
            with self.assertRaisesRegex(CheckpointError, "`deadline` must be seconds"):
                checkpointer.save(1, deadline="soon", x=1)
            with self.assertRaisesRegex(CheckpointError, "`timeout` must be seconds"):
                checkpointer.close("soon")
            with self.assertRaisesRegex(CheckpointError, "unknown strict `no`"):
                checkpointer.restore(strict="no", x=1)
            # Nothing and empty state are values like others.
            self.assertTrue(checkpointer.save(1, a=None, b={}, c=torch.nn.Module(), wait=True).committed())

    def test_interrupted_snapshot(self) -> None:
        """Ctrl-C in the copy: the next save must not wait for one that never began."""
        import trainyard_checkpoint._checkpointer as inner

        checkpointer = Checkpointer(self.root)
        self.assertTrue(checkpointer.save(1, x=torch.ones(10)).committed(60))
        before = inner._rng.capture
        self.addCleanup(setattr, inner._rng, "capture", before)

        def interrupted() -> None:
            raise KeyboardInterrupt

        inner._rng.capture = interrupted
        with self.assertRaises(KeyboardInterrupt):
            checkpointer.save(2, x=torch.ones(10))
        inner._rng.capture = before
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.assertTrue(checkpointer.save(3, x=torch.ones(10), wait=True).committed())
        checkpointer.close()
        self.assertEqual(self.steps(), [1, 3])

    def test_signals_end_a_wait(self) -> None:
        """A rank that waits for another one which never comes ends at once on Ctrl-C."""
        command = [sys.executable, str(HERE / "waits.py"), self.root]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            self.assertEqual(child.stdout.readline(), "waiting\n")
            child.send_signal(signal.SIGINT)
            output, errors = child.communicate(timeout=PATIENCE)
        self.assertRegex(output, r"^interrupted after [01]\.\d+ s\n$", errors)
        self.assertEqual(self.steps(), [])

    def test_sigterm_before_close(self) -> None:
        self.addCleanup(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, signal.SIG_DFL))
        checkpointer = Checkpointer(self.root)
        save = checkpointer.save(1, x=torch.ones(100_000))
        os.kill(os.getpid(), signal.SIGTERM)
        with self.assertRaises(SystemExit) as raised:
            checkpointer.close()
        self.assertEqual((raised.exception.code, save.committed()), (143, True))
        self.assertEqual(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)

    def test_damaged_root_file(self) -> None:
        with Checkpointer(self.root) as checkpointer:
            self.assertTrue(checkpointer.save(1, x=1).committed(60))
        file = pathlib.Path(self.root, "trainyard.json")
        whole = file.read_bytes()
        for damaged in (b"", whole[:10], whole.replace(b"1", b"2", 1)):
            file.write_bytes(damaged)
            self.refused(r"^`.*root` cannot be opened: `trainyard.json`: .*; nothing was changed: put `trainyard.json` back", self.root)
            self.assertEqual(file.read_bytes(), damaged)
        file.write_bytes(whole)
        self.assertEqual(Checkpointer(self.root).restore(x=1), 1)

    def test_truncated_data_is_named(self) -> None:
        with Checkpointer(self.root) as checkpointer:
            for step in (1, 2, 3):
                self.assertTrue(checkpointer.save(step, weight=torch.full((1000,), float(step))).committed(60))
        weight = torch.zeros(1000)
        for step, damage in ((3, lambda data: data[:-1]), (2, lambda data: data[:-1] + bytes([data[-1] ^ 1]))):
            data = next(pathlib.Path(self.root, "steps").glob(f"*{step}-*")) / "00000.safetensors"
            data.write_bytes(damage(data.read_bytes()))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.assertEqual(Checkpointer(self.root).restore(weight=weight), 1)
        self.assertEqual(weight[0].item(), 1.0)
        messages = "\n".join(str(one.message) for one in caught)
        self.assertRegex(messages, r"passed over step 3 .*00000\.safetensors|passed over step 3 .*rank 0")
        self.assertRegex(messages, r"step 2 cannot be restored, trying the step before: `.*00000.safetensors` is damaged in chunk 0")

    def test_two_programs(self) -> None:
        first, second = Checkpointer(self.root), Checkpointer(self.root)
        self.assertTrue(first.save(1, x=1).committed(60))
        self.assertEqual(second.restore(x=1), 1)
        with self.assertRaisesRegex(Fenced, "fenced: attempt 1.0 has begun, and this is attempt 0.0; if both are to run, give each a root"):
            first.save(2, x=1, wait=True)
        self.assertEqual(self.steps(), [1])

    def test_steps_of_another_run(self) -> None:
        for root, steps in ((self.root, (1,)), (f"{self.root}-other", (1, 2))):
            with Checkpointer(root) as checkpointer:
                for step in steps:
                    self.assertTrue(checkpointer.save(step, x=root).committed(60))
        other = next(pathlib.Path(f"{self.root}-other", "steps").glob("*2-*"))
        other.rename(pathlib.Path(self.root, "steps", other.name))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            checkpointer = Checkpointer(self.root)
            self.assertEqual(checkpointer.restore(x=1), 1)
        self.assertEqual(checkpointer.values["x"], self.root)
        checkpointer.close()
        self.assertTrue(pathlib.Path(self.root, "steps", other.name).exists())

    def test_attempts_that_died_restoring(self) -> None:
        """Two attempts that ended while they restored a step: the third, which knows its number, takes the one before."""
        with Checkpointer(self.root, attempt=1) as checkpointer:
            for step in (1, 2):
                self.assertTrue(checkpointer.save(step, x=step).committed(60))
        for attempt in (2, 3):
            dying = Checkpointer(self.root, attempt=attempt)
            dying._begin({})
            self.assertIn("0002-", str(dying._resumes_from))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.assertEqual(Checkpointer(self.root, attempt=4).restore(x=1), 1)
        self.assertTrue(any("2 attempts ended while they restored it" in str(one.message) for one in caught), caught)
