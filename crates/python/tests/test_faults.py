"""Full disks, forked workers, long runs and sudden ends."""

import os
import pathlib
import resource
import signal
import subprocess
import sys
import time
import unittest
import unittest.mock
import warnings

import torch
import trainyard_checkpoint._checkpointer as inner
from common import HERE, PATIENCE, Case

from trainyard_checkpoint import Checkpointer, CheckpointError, CheckpointWarning, NoRoom


def resident() -> int:
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


class Faults(Case):
    @unittest.skipUnless(os.geteuid() == 0, "only root can mount a small volume")
    def test_full_disk(self) -> None:
        volume = self.folder / "volume"
        volume.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", volume], check=True)
        self.addCleanup(subprocess.run, ["umount", "--lazy", volume], check=True)
        root = str(volume / "root")
        with Checkpointer(root) as checkpointer:
            small, large = torch.ones(100_000), torch.ones(2_000_000)
            self.assertTrue(checkpointer.save(1, weight=small).committed(60))
            failed = checkpointer.save(2, weight=large)
            self.assertFalse(failed.committed(60))
            self.assertIsInstance(failed.failed, NoRoom)
            self.assertRegex(str(failed.failed), r"^no room for step 2: \d+ bytes needed, \d+ free")
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                # Training continues, and the next save needs no help.
                self.assertTrue(checkpointer.save(3, weight=small * 3).committed(60))
            self.assertEqual([one.category for one in caught], [CheckpointWarning])
            self.assertEqual(checkpointer.counts, {"committed": 1, "failed": 1, "skipped": 0})
        self.assertEqual(self.steps(root), [1, 3])
        weight = torch.zeros(100_000)
        self.assertEqual(Checkpointer(root).restore(weight=weight), 3)
        self.assertEqual(weight[0].item(), 3.0)

    def test_failed_write(self) -> None:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE, before)
        checkpointer = Checkpointer(self.root, on_error="raise")
        # The memory is there before the limit, which counts for it too.
        self.assertTrue(checkpointer.save(1, weight=torch.ones(200_000)).committed(60))
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
        failed = checkpointer.save(2, weight=torch.ones(200_000))
        self.assertFalse(failed.committed(60))
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        with self.assertRaisesRegex(Exception, "File too large"):
            checkpointer.save(3, weight=torch.ones(10))
        self.assertTrue(checkpointer.save(4, weight=torch.ones(10)).committed(60))
        checkpointer.close()
        self.assertEqual(self.steps(), [1, 4])

    def test_memory_and_descriptors_do_not_grow(self) -> None:
        # About 200 kB with the state of the optimizer: a copy that every save leaves behind would be seen.
        model = torch.nn.Linear(64, 256)
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(2, 64)).sum().backward()
        optimizer.step()
        with Checkpointer(self.root, keep=2) as checkpointer:
            measured = []
            for step in range(1, 101):
                save = checkpointer.save(step, model=model, optimizer=optimizer)
                self.assertTrue(save.committed(60), save.failed)
                if step in (20, 100):
                    # Without the thread that removes older steps.
                    self.assertTrue(checkpointer._session.settle(60))
                    measured.append((resident(), len(os.listdir("/proc/self/fd"))))
        (early, open_early), (late, _) = measured
        # The thread of a save that has ended may still be closing its files.
        end = time.monotonic() + 10
        while (open_late := len(os.listdir("/proc/self/fd"))) > open_early and time.monotonic() < end:
            pass
        self.assertLessEqual(open_late, open_early)
        self.assertLess(late - early, max(early // 100, 1 << 20))

    def test_failed_removal_warns_once(self) -> None:
        with Checkpointer(self.root, keep=1) as checkpointer, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for step in range(1, 7):
                self.assertTrue(checkpointer.save(step, x=step).committed(60))
                self.assertTrue(checkpointer._session.settle(60))
                if step == 1:
                    own = next((self.folder / "root" / "steps").iterdir())
                    (own / "notes.txt").write_text("of the user")
            self.assertEqual(checkpointer.removed, 3)
        texts = [str(one.message) for one in caught]
        self.assertEqual(len(texts), 1, texts)
        self.assertRegex(texts[0], r"^older steps were not removed: cannot remove `000000000001-.*\(first: `notes.txt`\)")

    def test_save_that_was_waited_for_is_reported(self) -> None:
        # Rank 1 never comes, so every save fails at its deadline.
        checkpointer = Checkpointer(self.root, rank=0, world=2, attempt=1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            checkpointer.save(1, deadline=0.2, x=1)
            checkpointer.save(2, deadline=0.2, wait=True, x=1)
            checkpointer.close()
        self.assertEqual(checkpointer.counts, {"committed": 0, "failed": 2, "skipped": 0})
        self.assertEqual([str(one.message).split(":")[0] for one in caught], ["step 1 was not saved", "step 2 was not saved"])

    def test_interrupted_snapshot_ends_the_save(self) -> None:
        checkpointer = Checkpointer(self.root)
        for place, error in enumerate((RuntimeError("CUDA error"), KeyboardInterrupt()), start=1):
            with unittest.mock.patch.object(checkpointer._snapshots, "memory_for", side_effect=error), self.assertRaises(type(error)):
                checkpointer.save(place, x=torch.ones(2))
            self.assertTrue(checkpointer._last.done)
        self.assertTrue(checkpointer.save(3, x=torch.ones(2)).committed(60))
        self.assertTrue(checkpointer.close())
        self.assertEqual(checkpointer.counts, {"committed": 1, "failed": 2, "skipped": 0})

    def test_error_does_not_wait_for_other_ranks(self) -> None:
        begun = time.monotonic()
        with warnings.catch_warnings(record=True) as caught, self.assertRaisesRegex(ValueError, "of the script"):
            warnings.simplefilter("always")
            with unittest.mock.patch.object(inner, "_BROKEN_EXIT_SECONDS", 0.2):
                with Checkpointer(self.root, rank=0, world=2, attempt=1, deadline=PATIENCE) as checkpointer:
                    checkpointer.save(1, x=1)
                    raise ValueError("of the script")
        self.assertLess(time.monotonic() - begun, PATIENCE)
        self.assertEqual([str(one.message) for one in caught], ["step 1 was not committed before the end"])

    def test_restore_that_cannot_be_recorded_is_good(self) -> None:
        class Full:
            def restored(self, *_: object) -> None:
                raise NoRoom("no room")

        with Checkpointer(self.root) as checkpointer:
            self.assertTrue(checkpointer.save(1, x=1).committed(60))
            with self.assertWarnsRegex(CheckpointWarning, "the restore of `folder` was not recorded: no room"):
                checkpointer._is_restored(checkpointer._world, Full(), ("folder", ""))

    def test_earlier_handler_of_sigterm_decides(self) -> None:
        came: list[int] = []
        for handler in (lambda *_: came.append(1), signal.SIG_IGN):
            self.addCleanup(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, handler))
            root = str(self.folder / str(len(came)))
            with Checkpointer(root) as checkpointer:
                checkpointer.restore(x=1)
                os.kill(os.getpid(), signal.SIGTERM)
                self.assertIsNotNone(checkpointer.step(1, x=1))
                self.assertTrue(checkpointer.terminating)
                # The handler has returned: the program continues until it ends by itself.
                self.assertIsNone(checkpointer.step(2, x=1))
                self.assertTrue(checkpointer.save(3, x=1).committed(60))
            self.assertEqual(signal.getsignal(signal.SIGTERM), handler)
            self.assertEqual((came, self.steps(root)), ([1], [1, 3]))

    def test_memory_grows_with_the_state(self) -> None:
        with Checkpointer(self.root) as checkpointer:
            for step, size in ((1, 1000), (2, 300_000), (3, 1000)):
                weight = torch.full((size,), float(step))
                self.assertTrue(checkpointer.save(step, weight=weight).committed(60))
        weight = torch.zeros(1000)
        Checkpointer(self.root).restore(weight=weight)
        self.assertEqual(weight.sum().item(), 3000.0)

    def test_forked_workers(self) -> None:
        data = torch.utils.data.TensorDataset(torch.arange(64.0))
        with Checkpointer(self.root) as checkpointer:
            self.assertTrue(checkpointer.save(1, x=torch.ones(100_000)).committed(60))
            loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context="fork")
            last = None
            for step, (batch,) in enumerate(loader, start=2):
                last = checkpointer.save(step, x=batch.mean().repeat(100_000), wait=True)
            assert last is not None
            self.assertTrue(last.committed(60), last.failed)
        self.assertEqual(self.steps()[-1], 9)

    def test_fork_may_not_save(self) -> None:
        checkpointer = Checkpointer(self.root)
        checkpointer.save(1, x=1, wait=True)
        child = os.fork()
        if child == 0:
            try:
                checkpointer.save(2, x=2)
            except CheckpointError as error:
                os._exit(0 if "forked" in str(error) else 2)
            os._exit(1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        checkpointer.close()

    def test_end_of_the_interpreter(self) -> None:
        """A script that ends with a save in flight gets it committed; one whose other ranks never come still ends."""

        # Interpreters of their own: forked processes do not end as scripts do.
        def run(*arguments: object) -> str:
            command = [sys.executable, str(HERE / "ends.py"), *map(str, arguments)]
            return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE).stderr

        run(self.root)
        self.assertEqual(self.steps(), [9])
        output = run(self.folder / "alone", "alone")
        self.assertIn("step 9 was not committed before the end", output)
