"""The whole protocol on a server of S3 (moto), on this machine: save, retention, restore, kill, refusals."""

import http.client
import logging
import os
import unittest
import xml.etree.ElementTree as ET

import torch
from common import PATIENCE, Case
from moto.server import ThreadedMotoServer

from trainyard_checkpoint import Checkpointer, CheckpointError

SECRET = "very-secret"


class Objects(Case):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        # It prints every request.
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        # The system chooses the port, and the server has it from then on.
        server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        server.start()
        cls.addClassCleanup(server.stop)
        _, cls.port = server.get_host_and_port()

    def setUp(self) -> None:
        super().setUp()
        self.settings = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }
        before = {name: os.environ.get(name) for name in self.settings}
        self.addCleanup(lambda: [os.environ.pop(n, None) if v is None else os.environ.update({n: v}) for n, v in before.items()])
        os.environ.update(self.settings)
        self.request("POST", "/moto-api/reset")
        self.request("PUT", "/bucket")
        self.root = "s3://bucket/runs/one"

    def request(self, method: str, target: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, target)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        self.assertLess(answer.status, 300, body)
        return body

    def keys(self) -> list[str]:
        found = ET.fromstring(self.request("GET", "/bucket?list-type=2"))
        return [one.text or "" for one in found.iter() if one.tag.endswith("}Key")]

    def steps(self, root: str | None = None) -> list[int]:
        commits = [key.split("/")[-2] for key in self.keys() if key.endswith("/COMMIT.json")]
        return sorted(int(name.split("-")[0]) for name in commits)

    def test_save_retention_restore(self) -> None:
        with Checkpointer(self.root, keep=2) as checkpointer:
            for step in (1, 2, 3, 4):
                # The last one has more than one part.
                weight = torch.full((5_000_000 if step == 4 else 1_000,), float(step))
                self.assertTrue(checkpointer.save(step, weight=weight).committed(60))
        self.assertEqual(self.steps(), [3, 4])
        self.assertFalse([key for key in self.keys() if ".tmp-" in key or ".probe-" in key])
        self.assertNotIn(b"<Upload>", self.request("GET", "/bucket?uploads"))
        weight = torch.zeros(5_000_000)
        again = Checkpointer(self.root)
        self.assertEqual(again.restore(weight=weight), 4)
        self.assertTrue(bool((weight == 4.0).all()))

    def test_kill(self) -> None:
        newest = 0
        for _ in range(3):
            child = self.start("objects.py", self.root, **self.settings)
            for _ in range(2):
                line = child.output.readline()
                self.assertTrue(line.strip().isdigit(), line)
                newest = int(line)
            child.process.kill()
            child.wait()
            weight = torch.zeros(100_000)
            with Checkpointer(self.root, keep=2) as checkpointer:
                step = checkpointer.restore(weight=weight)
                assert step is not None
                self.assertGreaterEqual(step, newest)
                self.assertTrue(bool((weight == float(step)).all()), "a mix of steps")
                self.assertTrue(checkpointer.save(step + 1, weight=weight + 1).committed(60))

    def test_refused(self) -> None:
        with self.assertRaises(CheckpointError) as caught:
            Checkpointer("s3://no-such-bucket/run").save(1, x=1)
        self.assertIn("the bucket `no-such-bucket` does not exist", str(caught.exception))
        os.environ["AWS_ENDPOINT_URL"] = "https://user:very-secret@127.0.0.1"
        with self.assertRaises(CheckpointError) as caught:
            Checkpointer(self.root).save(1, x=1)
        self.assertIn("AWS_ENDPOINT_URL", str(caught.exception))
        self.assertNotIn(SECRET, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
