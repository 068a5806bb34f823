// Pause is process 1 of a namespace: of the whole test cluster, and of every pod's sandbox.
//
// It holds the namespace open, reaps the processes that were orphaned in it, and exits on SIGTERM or
// SIGINT, upon which the kernel kills every other process of the namespace.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// A signal that arrives while the channel is full is covered by the pending round.
	signals := make(chan os.Signal, 1)
	ends := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGCHLD)
	signal.Notify(ends, syscall.SIGTERM, syscall.SIGINT)
	collect()
	for {
		select {
		case <-ends:
			return
		case <-signals:
			collect()
		}
	}
}

func collect() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if pid <= 0 {
			return
		}
	}
}
