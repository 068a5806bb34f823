"""Several ranks: one commit of all, and another number of ranks afterwards."""

from common import Case


class Ranks(Case):
    def test_replicated_state(self) -> None:
        saved = self.ranks(2, "save")
        self.assertEqual(self.steps(), [3])
        for world in (2, 1, 3):
            for rank, found in enumerate(self.ranks(world, "load")):
                with self.subTest(world=world, rank=rank):
                    self.assertEqual((found["step"], found["progress"]), (3, {"step": 3}))
                    # Buffers are those of rank 0, as DistributedDataParallel has it.
                    self.assertEqual(found["model"], saved[0]["model"])
                    self.assertEqual(found["optimizer"], saved[0]["optimizer"])
                    if world == 2:
                        self.assertEqual(found["random"], saved[rank]["random"])

    def test_both_ranks_write(self) -> None:
        self.ranks(2, "save")
        sizes = [one.stat().st_size for one in (self.folder / "root" / "steps").glob("*/*.safetensors")]
        self.assertEqual(len(sizes), 2)
        self.assertGreater(min(sizes), 4096, sizes)

    def test_sharded_state(self) -> None:
        self.assertEqual([one["committed"] for one in self.ranks(2, "save-sharded", 0)], [1, 1])
        for world, dim in ((2, 0), (3, 0), (1, 0), (2, 1)):
            for found in self.ranks(world, "load-sharded", dim):
                with self.subTest(world=world, dim=dim):
                    self.assertEqual(found, {"step": 1, "same": True})

    def test_state_of_one_rank(self) -> None:
        self.ranks(2, "per-rank", "exact")
        again = self.ranks(2, "per-rank", "exact")
        self.assertEqual([one["position"] for one in again], [100, 101])
        self.assertEqual([one["order"] for one in again], [[0] * 4, [1] * 4])
        self.ranks(3, "per-rank", "exact", code=1)
        other = self.ranks(3, "per-rank", "restart-epoch")
        self.assertEqual([one["position"] for one in other], [100, 101, 102])
        self.assertEqual([one["step"] for one in other], [1, 1, 1])

    def test_one_rank_fails(self) -> None:
        counts = [one["counts"] for one in self.ranks(2, "one-fails")]
        self.assertEqual(counts[0], {"committed": 1, "failed": 1, "skipped": 1})
        self.assertEqual(counts[1], {"committed": 1, "failed": 1, "skipped": 1})
        self.assertEqual(self.steps(), [3])

    def test_ranks_must_have_the_same_tensors(self) -> None:
        """Who writes a tensor follows from its name: one that only some ranks have would be written by nobody."""
        for rank, found in enumerate(self.ranks(2, "uneven")):
            missing, other, refused, good = found["errors"]
            for text in (missing, other):
                self.assertRegex(text, r"^ranks do not have the same tensors: rank 1: .*; make it a `DTensor`")
            self.assertIn("rank 1: it does not have `stage0`, and rank 0 has it", missing)
            self.assertIn("its `weight` has type F32 and shape [2], and that of rank 0 has type F32 and shape [1]", other)
            begin = "cannot save `weight`" if rank == 1 else "rank 1 could not save: cannot save `weight`"
            self.assertTrue(refused.startswith(begin), refused)
            self.assertEqual((good, found["counts"]["committed"]), ("", 1))
        self.assertEqual(self.steps(), [4])

    def test_ranks_meet_through_files(self) -> None:
        """Without a process group, the record of `TRAINYARD_ATTEMPT` shows the pair."""
        ranks = [self.start("files.py", self.root, RANK=str(rank), WORLD_SIZE="2", TRAINYARD_ATTEMPT="7") for rank in (1, 0)]
        outputs = [self.finish(process) for process in ranks]
        self.assertEqual([output.splitlines()[-1] for output in outputs], ["None [1, 7]", "None [0, 7]"])
        again = [self.start("files.py", self.root, RANK=str(rank), WORLD_SIZE="2", TRAINYARD_ATTEMPT="8") for rank in (1, 0)]
        outputs = [self.finish(process) for process in again]
        self.assertEqual([output.splitlines()[-1] for output in outputs], ["5 [1, 7]", "5 [0, 7]"])
        # A job that is deleted and created again counts its attempts from 1.
        job = {"WORLD_SIZE": "2", "TRAINYARD_ATTEMPT": "1", "TRAINYARD_JOB_UID": "again"}
        created = [self.start("files.py", self.root, RANK=str(rank), **job) for rank in (1, 0)]
        outputs = [self.finish(process) for process in created]
        self.assertEqual([output.splitlines()[-1] for output in outputs], ["5 [1, 7]", "5 [0, 7]"])
        alone = self.start("files.py", self.root, RANK="0", WORLD_SIZE="2")
        self.assertIn("2 ranks cannot agree on an attempt", self.finish(alone, 1))
