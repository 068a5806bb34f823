"""The checkpointer: what a training script calls."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import warnings
import weakref
from typing import Any, Self

from . import _about, _arguments, _engine, _memory, _rng, _sigterm, _torch
from ._collect import Collector, disagreement
from ._engine import CheckpointError, Damaged, Fenced
from ._leaf import Leaf
from ._restore import Restored, Restorer
from ._save import Save
from ._snapshot import Snapshots, device_of
from ._tiers import Tiers
from ._world import World

#: How long another rank's record or commit may take to be seen through a network file system.
_VISIBLE_SECONDS = 60.0
#: How long after its deadline the outcome of a save is waited for.
_OUTCOME_SECONDS = 5.0
#: How long a save waits for the one before where ranks cannot agree to skip it.
_PATIENCE_SECONDS = 10.0
#: How long the end of the interpreter is held up for a save in flight.
_EXIT_SECONDS = 60.0
_BROKEN_EXIT_SECONDS = 5.0


class CheckpointWarning(UserWarning):
    """A step was not saved, or something was not restored; training continues."""


class Checkpointer:
    """Saves and restores the state of a training job below one root.

    Every rank makes one and calls it in the same order. Nothing is opened before the first call of a method.

    root: a folder that all ranks see, or `s3://bucket/prefix`. keep: how many complete steps stay, besides every step that `keep_every` divides.
    every: `step` saves when this divides the number of the step. on_error: `"warn"` or `"raise"` after a save that failed;
    `max_failures` in a row always raise, and so does `Fenced`. deadline: seconds until a save is abandoned. group: the process
    group of the ranks; without it the default one, then `RANK` and `WORLD_SIZE`. per_rank: names whose state is that of one rank.
    data: `"restart-epoch"` leaves these as they are when the number of ranks has changed. sigterm: whether SIGTERM makes the next
    `step` save at once and end the process.

    local: a folder of the node, such as a fast disk: saves commit there, and are copied to `root` in the background. drain_every: only steps
    that this divides are copied, and the newest at the end. bandwidth: bytes per second that the copy may take. grace: seconds from SIGTERM
    to SIGKILL; after the local save, the copy gets what is left of it.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        local: str | os.PathLike[str] | None = None,
        drain_every: int | None = None,
        bandwidth: int | None = None,
        grace: float = 30.0,
        keep: int = 3,
        keep_every: int | None = None,
        every: int | None = None,
        on_error: str = "warn",
        max_failures: int = 5,
        deadline: float = 1800.0,
        group: Any = None,
        rank: int | None = None,
        world: int | None = None,
        attempt: int | None = None,
        per_rank: tuple[str, ...] = ("sampler", "loader", "dataloader"),
        data: str = "exact",
        rng: bool = True,
        sigterm: bool = True,
    ) -> None:
        text = _arguments.root(root)
        if local is None and (drain_every is not None or bandwidth is not None):
            raise CheckpointError("`drain_every` and `bandwidth` are about the copy from `local` to `root`, and `local` is not given")
        _arguments.one_of("on_error", on_error, ("warn", "raise"))
        _arguments.one_of("data", data, ("exact", "restart-epoch"))
        for name, number in (("keep", keep), ("max_failures", max_failures)):
            _arguments.number(name, number, 1)
        _arguments.optional(1, every=every, keep_every=keep_every, drain_every=drain_every, bandwidth=bandwidth)
        _arguments.optional(0, rank=rank, world=world, attempt=attempt)
        for name, choice in (("rng", rng), ("sigterm", sigterm)):
            _arguments.one_of(name, choice, (True, False))
        for name, time_given in (("deadline", deadline), ("grace", grace)):
            _arguments.seconds(name, time_given)
        if (rank is None) != (world is None):
            raise CheckpointError("`rank` and `world` go together")
        self.root = text
        self._tiers = None if local is None else Tiers(_arguments.local(local), drain_every, bandwidth)
        #: Which tier the restored step came from and what the other one has, with a local tier.
        self.restored_from: str | None = None
        self._keep, self._keep_every, self._every = keep, keep_every, every
        self._on_error, self._max_failures, self._deadline = on_error, max_failures, deadline
        self._given = (rank, world, group, attempt)
        self._per_rank, self._data = _arguments.names("per_rank", per_rank), data
        self._saves_rng, self._takes_sigterm = rng, sigterm
        #: Plain values of the restored step, by name.
        self.values: dict[str, Any] = {}
        #: What became of the saves so far.
        self.counts = {"committed": 0, "failed": 0, "skipped": 0}
        self._pid = os.getpid()
        self._world: World | None = None
        self._store: _engine.Store | None = None
        self._session: _engine.Session | None = None
        self._begun: tuple[int, int] | None = None
        self._resumes_from: tuple[str, str] | None = None
        self._collector: Collector | None = None
        self._snapshots = Snapshots()
        self._last: Save | None = None
        self._has_warned_of_removal = False
        self._failed_step = -1
        self._failures = 0
        self._hooks: list[Any] = []
        self._hooked: weakref.WeakSet[Any] = weakref.WeakSet()
        self._sigterm = _sigterm.Sigterm(grace)
        self._is_prepared = False
        self._about: dict[str, Any] | None = None
        self._nodes: dict[str, Any] = {}
        self._is_closed = False

    # Methods of the training loop.

    def restore(self, *, strict: bool = True, **state: Any) -> int | None:
        """Restores the newest step that can be read; returns its number, or None where there is none."""
        _arguments.one_of("strict", strict, (True, False))
        world, store = self._open()
        unreadable: dict[str, str] = {}
        while True:
            self._begin(unreadable)
            reference = self._resumes_from
            if reference is None:
                self._hook(state)
                return None
            step: int | None = None
            outcome: tuple[str, str] | None = None
            raised: Exception | None = None
            try:
                step = self._restore_from(store, world, reference, strict, state)
            except Damaged as error:
                outcome, raised = ("damaged", str(error)), error
            except Exception as error:  # noqa: BLE001 - raised below, once every rank knows of it
                outcome, raised = ("failed", str(error)), error
            outcomes = world.gather(outcome)
            if all(one is None for one in outcomes):
                break
            others = [(rank, one[1]) for rank, one in enumerate(outcomes) if one is not None and one[0] == "failed"]
            if others:
                # The script does not fit, or a rank has no memory: not the fault of the step.
                self._is_restored(world, store, reference)
                if raised is not None:
                    raise raised
                raise CheckpointError(f"rank {others[0][0]} could not restore: {others[0][1]}")
            why = next(one[1] for one in outcomes if one is not None)
            if world.size > 1 and not world.has_group:
                raise Damaged(why)
            unreadable[reference[0]] = why
            warnings.warn(CheckpointWarning(f"step {int(reference[0].split('-')[0])} cannot be restored, trying the step before: {why}"), stacklevel=2)
        self._is_restored(world, store, reference)
        if self._tiers is not None:
            self._tiers.start()
        self._hook(state)
        self.prepare(**state)
        return step

    def step(self, step: int, **state: Any) -> Save | None:
        """Saves if the step is due, or at once after SIGTERM; otherwise does next to nothing."""
        _arguments.step(step, state)
        world, _ = self._open()
        self._reap()
        is_due = self._every is not None and step % self._every == 0
        is_urgent = self._sigterm.must_end and not world.has_group
        try:
            earlier = None if is_due else world.earlier()
        except RuntimeError as error:
            self._lose_group(error)
            earlier = None
        if earlier is not None:
            self._heed(earlier)
            is_urgent = earlier[0] > 0
        if is_due or is_urgent:
            return self._save(step, state, None, False, is_urgent)
        if world.has_group:
            try:
                world.start_most(self._flags())
            except RuntimeError as error:
                self._lose_group(error)
        if not self._is_prepared:
            # From here on the optimizer has its state, so the size is known.
            self.prepare(**state)
        return None

    def save(self, step: int, *, deadline: float | None = None, wait: bool = False, **state: Any) -> Save:
        """Saves now. Returns when the state may change on the processor; with `wait`, when the step is committed."""
        _arguments.step(step, state)
        if deadline is not None:
            _arguments.seconds("deadline", deadline)
        self._open()
        self._reap()
        return self._save(step, state, deadline, wait, False)

    def before_update(self) -> None:
        """Lets devices wait until a snapshot has copied what is about to change. The host does not wait."""
        self._snapshots.before_update()

    def prepare(self, **state: Any) -> None:
        """Reserves memory for a state of this size in the background, so that the first save is as fast as the next."""
        if not state or (self._last is not None and not self._last.done):
            return
        self._open()
        assert self._collector is not None
        self._is_prepared = True
        _, leaves = self._collector.collect(state)
        self._snapshots.prepare(leaves)

    def close(self, timeout: float | None = None) -> bool:
        """Waits for the save in flight, at most for `timeout` seconds. Returns whether nothing is in flight."""
        if timeout is not None:
            _arguments.seconds("timeout", timeout)
        handler = self._sigterm.handler
        is_late = self._sigterm.must_end and not self._is_closed
        is_done = self._close(timeout)
        if is_late and self._pid == os.getpid():
            # SIGTERM came after the last step: it is not lost.
            _sigterm.end(handler)
        return is_done

    def _close(self, timeout: float | None) -> bool:
        if self._is_closed or self._pid != os.getpid():
            return True
        self._is_closed = True
        atexit.unregister(self._at_exit)
        self._release()
        last = self._last
        end = time.monotonic() + (self._deadline if timeout is None else timeout)
        if last is not None and not last.done:
            last.committed(max(end - time.monotonic(), 0.0))
        is_done = last is None or last.done
        if is_done and self._session is not None:
            # Older steps are still being removed.
            patience = _EXIT_SECONDS if timeout is None else max(end - time.monotonic(), 0.0)
            self._session.settle(patience if self._tiers is None else self._sigterm.left(patience))
        if self._tiers is not None:
            # The local tier has the step; what is not copied in time, the next attempt copies.
            for failure in self._tiers.close(self._sigterm.left(max(end - time.monotonic(), 0.0))):
                warnings.warn(CheckpointWarning(failure), stacklevel=2)
        if not is_done and last is not None:
            warnings.warn(CheckpointWarning(f"step {last.step} was not committed before the end"), stacklevel=2)
        else:
            self._snapshots.drop_memory()
        self._reap(quiet=True)
        self._report_removal()
        return is_done

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        # With an error passing another rank may be gone, and its part never comes: the restart should not wait for it.
        self.close(None if kind is None else _BROKEN_EXIT_SECONDS)

    @property
    def removed(self) -> int:
        """How many older steps retention has removed so far, on the rank that commits."""
        return 0 if self._session is None else self._session.removed()[0]

    @property
    def terminating(self) -> bool:
        """Whether SIGTERM came."""
        return self._sigterm.came

    # Begin of an attempt.

    def _open(self) -> tuple[World, _engine.Store]:
        if self._is_closed:
            raise CheckpointError("the checkpointer is closed")
        if self._pid != os.getpid():
            raise CheckpointError("the checkpointer belongs to the process that this one was forked from")
        if self._world is not None and self._store is not None:
            return self._world, self._store
        if self._world is None:
            self._world = self._make_world()
        self._store = self._open_store(self._world)
        self._collector = self._make_collector(self._world)
        atexit.register(self._at_exit)
        if self._takes_sigterm:
            self._sigterm.take()
        return self._world, self._store

    def _open_store(self, world: World) -> _engine.Store:
        """Opens the root on every rank; where one of them cannot, all of them raise."""
        tiers = self._tiers
        return world.on_all("cannot open the root", lambda: _engine.Store(self.root) if tiers is None else tiers.open(self.root, world))

    # What adapters replace.

    def _make_world(self) -> World:
        rank, size, group, _ = self._given
        return World(rank, size, group, self._deadline)

    def _make_collector(self, world: World) -> Collector:
        return Collector(world, self._per_rank)

    def _restored(self, opened: _engine.Checkpoint, world: World, strict: bool, state: dict[str, Any]) -> Restored:
        return Restorer(opened, world, strict, self._per_rank, self._data).restore(state)

    def _begin(self, unreadable: dict[str, str]) -> None:
        """Takes the record of this attempt, or learns it; once, and again for a step that could not be read."""
        if self._begun is not None and not unreadable:
            return
        self._begun = None
        world, store = self._open()
        attempt = self._given[3] if self._given[3] is not None else world.attempt()
        self._nodes = {} if self._tiers is None else self._tiers.nodes(world, store)
        if world.size > 1 and not world.has_group:
            found = self._begin_by_files(world, store, attempt, unreadable)
        else:
            found = None
            if world.rank == 0:
                found = self._take(world, store, attempt, unreadable)
            found = world.from_first(found)
        if isinstance(found, CheckpointError):
            raise found
        assert found is not None
        number, restart, self._resumes_from, passed, self.restored_from = found
        for why in passed:
            if not unreadable:
                warnings.warn(CheckpointWarning(f"passed over {why}"), stacklevel=4)
        begun = (number, restart)
        session = _engine.Session(store, number, restart, world.rank, world.size, self._keep, self._keep_every)
        if self._tiers is not None:
            tiers = self._tiers
            world.on_all(
                "cannot use its local tier",
                lambda: tiers.begun(world, store, session, begun, self._keep, self._keep_every, self._deadline),
            )
        self._begun, self._session = begun, session

    def _job(self, world: World) -> str | None:
        """The job whose number the attempt is; an attempt that the program gives is the store's."""
        return world.job() if self._given[3] is None else None

    def _take(self, world: World, store: _engine.Store, attempt: int | None, unreadable: dict[str, str]) -> Any:
        try:
            begun = store.begin(attempt, self._job(world), world.holder(), world.size, unreadable, self._keep, self._keep_every, self._nodes)
        except CheckpointError as error:
            if world.has_group:
                return error
            raise
        passed = begun.passed if begun.failure is None else [*begun.passed, begun.failure]
        return (begun.attempt, begun.restart, begun.resumes_from, passed, begun.source)

    def _begin_by_files(self, world: World, store: _engine.Store, attempt: int | None, unreadable: dict[str, str]) -> Any:
        if attempt is None:
            raise CheckpointError(
                f"{world.size} ranks cannot agree on an attempt: call `torch.distributed.init_process_group` before, or set `TRAINYARD_ATTEMPT`"
            )
        if world.rank == 0:
            return self._take(world, store, attempt, unreadable)
        begun = store.join(attempt, self._job(world), world.launch(), _VISIBLE_SECONDS)
        return (begun.attempt, begun.restart, begun.resumes_from, begun.passed, begun.source)

    def _about_now(self) -> dict[str, Any]:
        """Versions and commit, read once."""
        if self._about is None:
            self._about = _about.about()
        return self._about

    def _is_restored(self, world: World, store: _engine.Store, reference: tuple[str, str]) -> None:
        """Records that the end of this attempt is not to be held against the step."""
        if world.rank == 0 and (world.size == 1 or world.has_group) and self._begun is not None:
            try:
                store.restored(*self._begun, reference[0])
            except CheckpointError as error:
                # The restore is good all the same; only the end of this attempt may count against the step.
                warnings.warn(CheckpointWarning(f"the restore of `{reference[0]}` was not recorded: {error}"), stacklevel=3)

    def _restore_from(self, store: _engine.Store, world: World, reference: tuple[str, str], strict: bool, state: dict[str, Any]) -> int:
        if self._tiers is not None:
            self._tiers.bring(world, store, reference[0], self._deadline)
        opened = store.open(*reference, 0.0 if world.rank == 0 else _VISIBLE_SECONDS)
        restored = self._restored(opened, world, strict, state)
        self.values = restored.values
        notes = opened.notes() + _about.differences(restored.about, self._about_now())
        notes += [f"`{name}` was not restored: the number of ranks has changed" for name in restored.skipped]
        if self._saves_rng and restored.rng is not None:
            notes += _rng.restore(restored.rng)
        elif self._saves_rng and opened.world != world.size:
            notes.append(f"random numbers were not restored: {opened.world} ranks saved them, and {world.size} run")
        for note in notes:
            warnings.warn(CheckpointWarning(f"step {opened.step}: {note}"), stacklevel=4)
        return opened.step

    # Saving.

    def _flags(self) -> list[int]:
        """What ranks must agree on: SIGTERM, the last step that failed, and whether a save is in flight."""
        is_busy = self._last is not None and not self._last.done
        return [int(self._sigterm.must_end), self._failed_step, int(is_busy)]

    def _heed(self, agreed: list[int]) -> None:
        """Does not wait for a step that another rank has failed to write."""
        if self._last is not None and not self._last.done and agreed[1] >= self._last.step:
            self._last._abandon()

    def _lose_group(self, error: RuntimeError) -> None:
        assert self._world is not None
        self._world.leave()
        text = str(error).splitlines()[0] if str(error) else "no reason given"
        warnings.warn(CheckpointWarning(f"ranks can no longer agree on saves: {text}"), stacklevel=4)

    def _may_save(self, waits: bool) -> tuple[bool, bool]:
        """Whether all ranks can save now, and whether one of them got SIGTERM."""
        assert self._world is not None
        world, last = self._world, self._last
        if last is not None and not last.done and (waits or (world.size > 1 and not world.has_group)):
            last.committed(self._deadline if waits else _PATIENCE_SECONDS)
        try:
            agreed = world.most(self._flags())
        except RuntimeError as error:
            self._lose_group(error)
            agreed = self._flags()
        self._heed(agreed)
        is_urgent = agreed[0] > 0
        if is_urgent and agreed[2] and last is not None:
            # Every rank takes this way, so nobody waits for one that skips.
            last.committed(self._deadline)
            agreed[2] = int(not last.done)
        return not agreed[2], is_urgent

    def _save(self, step: int, state: dict[str, Any], deadline: float | None, wait: bool, urgent: bool) -> Save:
        self._begin({})
        if self._tiers is not None:
            self._tiers.start()
        self._hook(state)
        may_save, is_urgent = self._may_save(wait or urgent)
        is_urgent |= urgent
        if is_urgent and self._tiers is not None:
            self._tiers.hold(True)
        save = Save(step)
        begun = time.monotonic()
        collected: tuple[dict[str, Any], list[Leaf]] | None = None
        failure: Exception | None = None
        try:
            # The save before may have ended while this one waited for it.
            self._reap()
            if may_save:
                assert self._collector is not None
                # State that cannot be saved is a mistake in the script: it raises here, whatever `on_error` is.
                collected = self._collector.collect(state)
        except Exception as error:  # noqa: BLE001 - raised below, once every rank knows of it
            failure = error
        if may_save:
            self._agree_on_state(failure)
        if failure is not None:
            raise failure
        if collected is not None:
            self._last = save
            try:
                self._snapshot(save, *collected, begun, self._deadline if deadline is None else deadline)
            except (CheckpointError, MemoryError, OSError) as error:
                save._fail(error)
                self._reap()
            except BaseException as error:
                # Such as an error of CUDA: it is the script's, and the save has ended for all who wait for it.
                save._fail(error)
                save._is_reported = True
                self._failed_step = step
                self.counts["failed"] += 1
                raise
        else:
            save._skip()
            self.counts["skipped"] += 1
        if wait or is_urgent:
            # A save ends by itself at its deadline, unless the storage hangs.
            save.committed((self._deadline if deadline is None else deadline) + _OUTCOME_SECONDS)
            self._reap()
        if is_urgent:
            self._terminate()
        return save

    def _agree_on_state(self, failure: Exception | None) -> None:
        """Raises on every rank where one of them cannot save, or where ranks do not have the same tensors: who writes a tensor follows
        from its name, so one that only some ranks have may be written by nobody."""
        assert self._world is not None and self._collector is not None
        try:
            why = disagreement(self._world, self._collector, failure)
        except RuntimeError as error:
            self._lose_group(error)
            return
        if why is not None and failure is None:
            raise CheckpointError(why)

    def _snapshot(self, save: Save, nodes: dict[str, Any], leaves: list[Leaf], begun: float, deadline: float) -> None:
        import json

        assert self._session is not None
        leaves = _memory.packed(leaves)
        layout, described = _memory.layout_of(leaves, self._snapshots.memory)
        memory = self._snapshots.memory_for(layout.size, device_of(leaves))
        views = memory.lay_out(leaves, layout, described)
        objects: dict[str, Any] = {"state": nodes, "about": self._about_now()}
        if self._saves_rng:
            objects["rng"] = _rng.capture()
        text = json.dumps(objects)
        assert self._collector is not None
        events = self._snapshots.copy(save, leaves, views, self._collector.loose)
        seconds = time.monotonic() - begun
        session = self._session
        if not events:
            save._begin(session.save(save.step, memory.arena, layout, text, seconds, deadline))
            return

        def finish() -> None:
            try:
                for event in events:
                    event.synchronize()
                save._begin(session.save(save.step, memory.arena, layout, text, seconds, deadline))
            except BaseException as error:  # noqa: BLE001 - reported by the next call
                save._fail(error)

        threading.Thread(target=finish, name="checkpoint-copy", daemon=True).start()

    def _reap(self, quiet: bool = False) -> None:
        """Reports how the last save ended, once."""
        last = self._last
        if self._tiers is not None and not quiet:
            for failure in self._tiers.failures():
                warnings.warn(CheckpointWarning(failure), stacklevel=4)
        if last is None or not last.done or last._is_reported:
            return
        last._is_reported = True
        self._report_removal()
        error = last.failed
        if error is None:
            self._failures = 0
            self.counts["committed"] += 1
            return
        self._failures += 1
        self._failed_step = last.step
        self.counts["failed"] += 1
        must_raise = isinstance(error, Fenced) or self._on_error == "raise" or self._failures >= self._max_failures
        if must_raise and not quiet:
            raise error
        warnings.warn(CheckpointWarning(f"step {last.step} was not saved: {error}"), stacklevel=4)

    def _report_removal(self) -> None:
        """Warns when retention begins to fail: the disk would fill up without a word."""
        why = None if self._session is None else self._session.removed()[1]
        if why is not None and not self._has_warned_of_removal:
            warnings.warn(CheckpointWarning(f"older steps were not removed: {why}"), stacklevel=5)
        self._has_warned_of_removal = why is not None

    def _hook(self, state: dict[str, Any]) -> None:
        for value in state.values():
            if _torch.is_optimizer(value) and value not in self._hooked:
                self._hooked.add(value)
                self._hooks.append(value.register_step_pre_hook(lambda *_: self.before_update()))

    # The end.

    def _terminate(self) -> None:
        """After the save that SIGTERM asked for."""
        handler = self._sigterm.handler
        if not self._sigterm.leave_to_program():
            self._close(None)
            _sigterm.end(handler)
        elif self._tiers is not None:
            self._tiers.hold(False)

    def _release(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._sigterm.give_back()

    def _at_exit(self) -> None:
        # After SIGTERM or an error another rank may be gone, and its part never comes: the restart should not wait for it.
        is_broken = self._sigterm.came or getattr(sys, "last_value", None) is not None
        self._close(_BROKEN_EXIT_SECONDS if is_broken else _EXIT_SECONDS)
