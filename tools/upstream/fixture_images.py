"""A plugin for pytest that lets upstream's end-to-end tests run on a cluster without a registry.

Upstream's files stay as they are. Every container that the tests or the SDK build uses the one image that the real
nodes have, whose programs lie under the paths that upstream's commands name, and every pod asks for a real node,
since the other nodes of the test cluster are simulated and run nothing.
"""

import functools
import os

from kubernetes.client import V1Container, V1PodSpec

IMAGE = os.environ["TRAINYARD_IMAGE"]
REAL_NODES = {"test.trainyard.dev/node": "real"}


def _with(model, **fixed):
    build = model.__init__

    @functools.wraps(build)
    def init(self, *args, **kwargs):
        build(self, *args, **{**kwargs, **fixed})

    model.__init__ = init


_with(V1Container, image=IMAGE)
_with(V1PodSpec, node_selector=REAL_NODES)
