"""Training that is killed and continued is the training that was never killed."""

import random

from common import Case, Child

STEPS = 40


class Training(Case):
    def losses(self, process: Child, stop_after: int | None = None) -> tuple[int, dict[int, str]]:
        """The step that it started from and what it printed of each step; killed after `stop_after` lines."""
        first = process.output.readline()
        if not first.startswith("start "):
            self.fail(first + process.output.read())
        start = first.split()[1]
        found: dict[int, str] = {}
        for line in process.output:
            # What it printed before the kill counts; a line that the kill has cut does not.
            if line.strip() == "done" or not line.endswith("\n"):
                break
            step, rest = line.split(maxsplit=1)
            found[int(step)] = rest
            if stop_after is not None and len(found) == stop_after:
                process.process.kill()
        process.output.read()
        process.wait()
        return (0 if start == "None" else int(start)), found

    def test_killed_run_continues_bit_for_bit(self) -> None:
        _, whole = self.losses(self.start("train.py", self.folder / "whole", STEPS, 3))
        self.assertEqual(sorted(whole), list(range(1, STEPS + 1)))
        seed = random.randrange(1 << 32)
        chance = random.Random(seed)
        killed: dict[int, str] = {}
        starts = []
        with self.subTest(seed=seed):
            for _ in range(3):
                start, found = self.losses(self.start("train.py", self.root, STEPS, 3), chance.randrange(7, 13))
                starts.append(start)
                killed.update(found)
                for step, line in found.items():
                    self.assertEqual(line, whole[step], f"step {step} after a start from {start}")
            start, found = self.losses(self.start("train.py", self.root, STEPS, 3))
            killed.update(found)
            starts.append(start)
            self.assertEqual(killed, whole)
            self.assertGreater(starts[-1], 0, starts)
            self.assertEqual(starts, sorted(starts))

    def test_sigterm_saves_at_once(self) -> None:
        # `every` is never reached, so only SIGTERM saves.
        process = self.start("train.py", self.root, 100_000_000, 1_000_000_000)
        last = 0
        for line in process.output:
            words = line.split()
            if words[0].isdigit():
                last = int(words[0])
            if last == 5:
                process.process.terminate()
                break
        output = process.output.read()
        self.assertEqual(process.wait(), 143, output)
        numbers = [int(line.split()[0]) for line in output.splitlines() if line.split()[0].isdigit()]
        self.assertEqual(self.steps(), [max([last, *numbers])])
