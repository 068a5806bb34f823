module trainyard/tools/cluster/schedulers

go 1.26.0

// Only the definitions of their kinds are read; nothing of them is built.
require (
	sigs.k8s.io/scheduler-plugins v0.33.5
	volcano.sh/volcano v1.10.0
)
