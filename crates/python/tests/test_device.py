"""Tensors on a device: copied in a stream of their own while the next step computes. Needs a GPU."""

import unittest

import torch
from common import Case

from trainyard_checkpoint import Checkpointer


@unittest.skipUnless(torch.cuda.is_available(), "no GPU")
class Device(Case):
    def test_snapshot_is_of_the_step(self) -> None:
        torch.manual_seed(1)
        model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(4))).cuda()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

        def train() -> None:
            optimizer.zero_grad()
            model(torch.ones(8, 2048, device="cuda")).square().mean().backward()
            optimizer.step()

        checkpointer = Checkpointer(self.root)
        checkpointer.restore(model=model, optimizer=optimizer)
        train()
        for step in (1, 2, 3):
            want = [parameter.detach().clone() for parameter in model.parameters()]
            momentum = [optimizer.state[parameter]["exp_avg"].clone() for parameter in model.parameters()]
            save = checkpointer.save(step, model=model, optimizer=optimizer)
            # The hook of the optimizer lets the device wait, so these change only what was copied already.
            train()
            train()
            self.assertTrue(save.committed(60), save.failed)
            found = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(4))).cuda()
            other = torch.optim.Adam(found.parameters(), lr=0.5)
            with Checkpointer(self.root, sigterm=False, rng=False) as reader:
                self.assertEqual(reader.restore(model=found, optimizer=other), step)
            for parameter, value, moment in zip(found.parameters(), want, momentum):
                self.assertTrue(torch.equal(parameter, value))
                self.assertTrue(torch.equal(other.state[parameter]["exp_avg"], moment))
            checkpointer = Checkpointer(self.root)
            checkpointer.restore(model=model, optimizer=optimizer)
        self.assertTrue(checkpointer.close())

    def test_buffers_that_a_forward_changes(self) -> None:
        """No step of an optimizer comes before the next forward, which changes the statistics of BatchNorm."""
        torch.manual_seed(1)

        def made() -> torch.nn.Module:
            # The parameters before it keep the side stream busy while the forward runs.
            return torch.nn.Sequential(torch.nn.Linear(1024, 16384), torch.nn.BatchNorm1d(16384), torch.nn.Linear(16384, 1024)).cuda()

        model, found = made(), made()
        norm = model[1]
        norm.momentum = 0.5
        for step in range(1, 6):
            root = str(self.folder / str(step))
            with Checkpointer(root, sigterm=False) as checkpointer:
                checkpointer.restore(model=model)
                model(torch.randn(64, 1024, device="cuda"))
                want = [norm.running_mean.clone(), norm.running_var.clone(), norm.num_batches_tracked.clone()]
                save = checkpointer.save(step, model=model)
                for _ in range(3):
                    model(torch.randn(64, 1024, device="cuda") * 100)
                self.assertTrue(save.committed(60), save.failed)
            with Checkpointer(root, sigterm=False, rng=False) as reader:
                self.assertEqual(reader.restore(model=found), step)
            for value, buffer in zip(want, (found[1].running_mean, found[1].running_var, found[1].num_batches_tracked)):
                self.assertTrue(torch.equal(value, buffer))

    def test_random_numbers_of_devices(self) -> None:
        torch.cuda.manual_seed_all(5)
        torch.rand(1, device="cuda")
        with Checkpointer(self.root) as checkpointer:
            self.assertTrue(checkpointer.save(1, x=1).committed(60))
        want = torch.rand(3, device="cuda").tolist()
        Checkpointer(self.root).restore(x=1)
        self.assertEqual(torch.rand(3, device="cuda").tolist(), want)
